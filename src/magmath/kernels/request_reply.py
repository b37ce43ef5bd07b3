"""Requests and answers between workers: reading and writing what, as data say, others own.

A worker has requests, each for one owner. Where workers see each other's memory it answers them
itself, out of the owner's part. Where they do not, requests go to the owners, and answers come back
(the inspector and executor of PARTI, Saltz et al. 1990, made anew each time). That goes in rounds
of few requests each, so that a worker that owns what everybody wants needs no more memory than the
others. `send` is the first half of this: messages for owners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magmath.kernels.scratch import Scratch

if TYPE_CHECKING:
    from magmath.comm import Communicator


class Rows:
    """The first dimensions of a tensor, whose elements are numbered as one, in C order."""

    def __init__(self, tensor: Tensor, dims: int) -> None:
        self._shape = tensor.shape[:dims]
        self.count, self.row = prod(self._shape), tensor.shape[dims:]
        self.tensor, self.is_one = tensor, dims == 1
        if dims > 1:
            with suppress(RuntimeError):  # where they do not lie one after the other
                self.tensor, self.is_one = tensor.view(self.count, *self.row), True

    def part(self, some: slice) -> Tensor:
        """Neighbouring rows."""
        if self.is_one:
            return self.tensor[some]
        return self.read(torch.arange(some.start, some.stop, device=self.tensor.device))

    def read(self, places: Tensor, out: Tensor | None = None) -> Tensor:
        """The rows at these places, in `out` if it is given."""
        if self.is_one and out is not None:
            return torch.index_select(self.tensor, 0, places, out=out)
        found = self.tensor[self._places(places)]
        return found if out is None else out.copy_(found)

    def write(self, places: Tensor, values: Tensor) -> None:
        """Replace rows."""
        self.tensor[self._places(places)] = values

    def _places(self, places: Tensor) -> tuple[Tensor, ...]:
        return (places,) if self.is_one else torch.unravel_index(places, self._shape)


@dataclass(frozen=True, slots=True)
class Rounds:
    """What the workers talk by: their communicator, memory for what comes, the most requests that
    any of them has, and how many of its own each sends at a time."""

    comm: Communicator
    scratch: Tensor
    share: int
    size: int

    def parts(self, count: int) -> Iterator[slice]:
        """The requests of each round, of this worker's `count`; as many rounds for all workers."""
        for start in range(0, self.share, self.size):
            yield slice(min(start, count), min(start + self.size, count))


def ask(
    rounds: Rounds,
    count: int,
    requests: Callable[[slice], tuple[Tensor, Tensor]],
    answer: Callable[[int, Tensor, Tensor], object],
    target: Rows,
    *,
    sees_all: bool,
) -> None:
    """Fill row i of `target` with the answer to this worker's request i, of `count`.

    `requests` gives some of them and their owners, `answer(rank, requests, out)` answers what is
    asked of a rank: of any rank where this one `sees_all`, of this one elsewhere.
    """
    comm, scratch = rounds.comm, Scratch(rounds.scratch)
    for part in rounds.parts(count):
        asked, owner = requests(part)
        with scratch.returning():
            if sees_all:
                for rank in range(comm.size):
                    (where,) = (owner == rank).nonzero(as_tuple=True)
                    if len(where):
                        got = scratch.take(target.tensor.dtype, len(where), *target.row)
                        answer(rank, asked[where], got)
                        target.write(where + part.start, got)
                continue
            order, sent, received = _sorted_out(comm, owner)
            wanted = _swapped(comm, asked[order], sent, received, scratch)
            answers = scratch.take(target.tensor.dtype, len(wanted), *target.row)
            answer(comm.rank, wanted, answers)
            target.write(order + part.start, _swapped(comm, answers, received, sent, scratch))


def send(
    rounds: Rounds,
    count: int,
    messages: Callable[[slice], tuple[Tensor, Sequence[Tensor]]],
    receive: Callable[..., object],
) -> None:
    """Send this worker's `count` messages to their owners.

    `messages` gives the owners of some of them, and what they say, in several tensors; `receive`
    gets these with what comes to this worker, in the order of the ranks.
    """
    comm, scratch = rounds.comm, Scratch(rounds.scratch)
    for part in rounds.parts(count):
        owner, given = messages(part)
        order, sent, received = _sorted_out(comm, owner)
        with scratch.returning():
            receive(*[_swapped(comm, x[order], sent, received, scratch) for x in given])


def _sorted_out(comm: Communicator, owner: Tensor) -> tuple[Tensor, list[int], list[int]]:
    """The order by owner, how many each owner gets, and how many come from each rank."""
    sent = torch.bincount(owner, minlength=comm.size)
    received = torch.empty_like(sent)
    comm.all_to_all(received, sent)
    short = owner.to(torch.uint8 if comm.size <= 256 else torch.int16)  # sorted in few passes
    return torch.argsort(short, stable=True), sent.tolist(), received.tolist()


def _swapped(
    comm: Communicator, given: Tensor, sent: list[int], received: list[int], scratch: Scratch
) -> Tensor:
    """What the ranks give this one, of the tensors of each: so many of its rows for every rank."""
    got = scratch.take(given.dtype, sum(received), *given.shape[1:])
    comm.exchange(
        [(rank, rows) for rank, rows in enumerate(torch.split(given, sent)) if len(rows)],
        [(rank, rows) for rank, rows in enumerate(torch.split(got, received)) if len(rows)],
    )
    return got
