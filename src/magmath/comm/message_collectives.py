"""Collectives over point-to-point messages (`exchange`).

They are used by ranks without shared memory if the library has no suitable collective. Each sends
the minimal number of bytes, in one or two rounds of all-to-all messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import torch
from torch import Tensor

Messages: TypeAlias = Sequence[tuple[int, Tensor]]
ExchangeFunction: TypeAlias = Callable[[Messages, Messages], None]


@final
class MessageCollectives:
    """The collectives, for one rank. All tensors are contiguous and in host memory."""

    def __init__(self, rank: int, size: int, exchange: ExchangeFunction) -> None:
        self._rank = rank
        self._size = size
        self._exchange = exchange

    def allreduce(self, tensor: Tensor, reduction: str) -> None:
        """Replace `tensor` by its reduction over the ranks: each rank reduces one share."""
        shares = tensor.view(-1).tensor_split(self._size)
        own_share = shares[self._rank]
        self._reduce(own_share, shares, reduction)
        self._exchange(
            [(r, own_share) for r in self._others()], [(r, shares[r]) for r in self._others()]
        )

    def allgather(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with rank r's `tensor`."""
        blocks = out.view(-1).tensor_split(self._size)
        blocks[self._rank].copy_(tensor.view(-1))
        self._exchange(
            [(r, tensor) for r in self._others()], [(r, blocks[r]) for r in self._others()]
        )

    def reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None:
        """Fill `out` with the reduction over the ranks of this rank's block of `tensor`."""
        self._reduce(out, tensor.view(-1).tensor_split(self._size), reduction)

    def all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with this rank's block of rank r's `tensor`."""
        targets = out.view(-1).tensor_split(self._size)
        blocks = tensor.view(-1).tensor_split(self._size)
        targets[self._rank].copy_(blocks[self._rank])
        self._exchange(
            [(r, blocks[r]) for r in self._others()], [(r, targets[r]) for r in self._others()]
        )

    def _reduce(self, out: Tensor, shares: Sequence[Tensor], reduction: str) -> None:
        own_share = shares[self._rank]
        parts = [
            own_share if r == self._rank else torch.empty_like(own_share) for r in range(self._size)
        ]
        self._exchange(
            [(r, shares[r]) for r in self._others()], [(r, parts[r]) for r in self._others()]
        )
        from magmath.comm.reduce_kernels import reduce_tensors  # loads the compiler: on first use

        reduce_tensors(out, parts, reduction)

    def _others(self) -> list[int]:
        # Starts after this rank, so that not all ranks send to the same rank first.
        return [(self._rank + step) % self._size for step in range(1, self._size)]
