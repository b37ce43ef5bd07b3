"""Sums over workers by messages: along a ring, and along a binary tree.

Unlike the collectives of `comm`, which choose an algorithm by size, these follow the textbook
algorithms, so their messages can be counted and compared. Both give every worker the same bits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from magmath.core.type_aliases import BoundCall
from magmath.layout import even_cuts

if TYPE_CHECKING:
    from magmath.comm import Communicator


def ring(
    comm: Communicator, result: torch.Tensor, part: torch.Tensor, message_dtype: str
) -> BoundCall:
    """Bind the sum along a ring: each worker sends to the next one only.

    Of P chunks, P - 1 rounds add up one on each worker, and P - 1 rounds pass the sums on, so a
    worker sends 2·(P - 1)/P of the array. `part` is this worker's summand. Source: Patarasuk and
    Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations.
    """
    out = result.view(-1)
    size, rank = comm.size, comm.rank
    cuts = even_cuts(out.numel(), size)
    chunks = [out[start:stop] for start, stop in pairwise(cuts)]
    longest = max(chunk.numel() for chunk in chunks)
    sent, received = _buffers(out, message_dtype, longest)
    following, previous = (rank + 1) % size, (rank - 1) % size

    def pass_on(outgoing: int, incoming: int) -> torch.Tensor:
        """Send a chunk to the next worker; return the chunk of the previous one."""
        chunk, count = chunks[outgoing], chunks[incoming].numel()
        sent[: chunk.numel()].copy_(chunk)
        comm.exchange([(following, sent[: chunk.numel()])], [(previous, received[:count])])
        return received[:count]

    def run() -> None:
        out.copy_(part.reshape(-1))
        for step in range(size - 1):
            incoming = (rank - step - 1) % size
            chunks[incoming].add_(pass_on((rank - step) % size, incoming))
        own_chunk = chunks[(rank + 1) % size]
        own_chunk.copy_(own_chunk.to(sent.dtype))  # rounded as its copies are
        for step in range(size - 1):
            incoming = (rank - step) % size
            chunks[incoming].copy_(pass_on((rank + 1 - step) % size, incoming))

    return run


def tree(
    comm: Communicator, result: torch.Tensor, part: torch.Tensor, message_dtype: str
) -> BoundCall:
    """Bind the sum along a binomial tree: sums pass up to worker 0, and the result passes down.

    Every worker except the first sends and receives the array once, in 2·⌈log₂ P⌉ rounds.
    """
    out = result.view(-1)
    sent, received = _buffers(out, message_dtype, out.numel())
    parent, children = _tree_neighbours(comm.rank, comm.size)

    def run() -> None:
        out.copy_(part.reshape(-1))
        for child in reversed(children):
            comm.exchange([], [(child, received)])
            out.add_(received)
        sent.copy_(out)
        if parent is not None:
            comm.exchange([(parent, sent)], [])
            comm.exchange([], [(parent, sent)])
        out.copy_(sent)
        for child in children:
            comm.exchange([(child, sent)], [])

    return run


def _tree_neighbours(rank: int, size: int) -> tuple[int | None, list[int]]:
    """Return the parent of a worker in the binomial tree, and its children, the one with the
    largest subtree first."""
    lowest = rank & -rank if rank else 1 << (size - 1).bit_length()
    bits = [1 << i for i in reversed(range(lowest.bit_length() - 1))]
    children = [rank + bit for bit in bits if rank + bit < size]
    return (rank - lowest if rank else None), children


def _buffers(
    out: torch.Tensor, message_dtype: str, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a buffer for sent and one for received elements of the type of the messages."""
    dtype = getattr(torch, message_dtype)
    return out.new_empty(length, dtype=dtype), out.new_empty(length, dtype=dtype)
