"""Requests and replies between workers, for data-dependent access to elements of other workers.

A worker has requests, each for one owner. With shared memory, it answers them itself from the
memory of the owner. Without shared memory, the requests are sent to the owners, which send the
answers back (the inspector and executor of PARTI, Saltz et al. 1990, repeated for each call). This
happens in rounds of a bounded number of requests, so that a worker that owns the elements of many
requests needs no more memory than the others. `send` is the first half: messages to owners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from magmath.kernels.scratch import Scratch

if TYPE_CHECKING:
    from magmath.comm import Communicator


@final
class Rows:
    """A tensor as a list of rows: its first `dims` dimensions are flattened, in C order."""

    def __init__(self, tensor: Tensor, dims: int) -> None:
        self._shape = tensor.shape[:dims]
        self.count, self.row = prod(self._shape), tensor.shape[dims:]
        self.tensor, self.is_one = tensor, dims == 1
        if dims > 1:
            with suppress(RuntimeError):  # if they cannot be merged into one stride
                self.tensor, self.is_one = tensor.view(self.count, *self.row), True

    def part(self, some: slice) -> Tensor:
        """Return consecutive rows."""
        if self.is_one:
            return self.tensor[some]
        return self.read(torch.arange(some.start, some.stop, device=self.tensor.device))

    def read(self, positions: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the rows with these numbers, in `out` if given."""
        if self.is_one and out is not None:
            return torch.index_select(self.tensor, 0, positions, out=out)
        found = self.tensor[self._positions(positions)]
        return found if out is None else out.copy_(found)

    def write(self, positions: Tensor, values: Tensor) -> None:
        """Overwrite the rows with these numbers."""
        self.tensor[self._positions(positions)] = values

    def _positions(self, positions: Tensor) -> tuple[Tensor, ...]:
        return (positions,) if self.is_one else torch.unravel_index(positions, self._shape)


@final
@dataclass(frozen=True, slots=True)
class Rounds:
    """The parameters of an exchange in rounds: the communicator of the workers, memory for received
    data, the maximum number of requests of a worker, and the number of requests per worker and
    round."""

    comm: Communicator
    scratch: Tensor
    share: int
    size: int

    def parts(self, count: int) -> Iterator[slice]:
        """Yield this worker's requests of each round, out of `count`. The number of rounds is equal
        on all workers."""
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
    """Fill row i of `target` with the answer to this worker's request i, out of `count`.

    `requests` returns a slice of the requests and their owners. `answer(rank, requests, out)`
    computes the answers from the memory of a rank: of any rank if `sees_all`, otherwise of this
    one.
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

    `messages` returns the owners of a slice of the messages, and their content as several tensors.
    `receive` is called with the same tensors for the messages to this worker, in order of the
    ranks.
    """
    comm, scratch = rounds.comm, Scratch(rounds.scratch)
    for part in rounds.parts(count):
        owner, given = messages(part)
        order, sent, received = _sorted_out(comm, owner)
        with scratch.returning():
            receive(*[_swapped(comm, x[order], sent, received, scratch) for x in given])


def _sorted_out(comm: Communicator, owner: Tensor) -> tuple[Tensor, list[int], list[int]]:
    """Return the order by owner, the number of requests to each owner, and from each rank."""
    sent = torch.bincount(owner, minlength=comm.size)
    received = torch.empty_like(sent)
    comm.all_to_all(received, sent)
    short = owner.to(torch.uint8 if comm.size <= 256 else torch.int16)  # sorts in few passes
    return torch.argsort(short, stable=True), sent.tolist(), received.tolist()


def _swapped(
    comm: Communicator, given: Tensor, sent: list[int], received: list[int], scratch: Scratch
) -> Tensor:
    """Send `sent[r]` consecutive rows of `given` to each rank r; return the received rows, with
    `received[r]` rows from each rank, in order of the ranks."""
    got = scratch.take(given.dtype, sum(received), *given.shape[1:])
    comm.exchange(
        [(rank, rows) for rank, rows in enumerate(torch.split(given, sent)) if len(rows)],
        [(rank, rows) for rank, rows in enumerate(torch.split(got, received)) if len(rows)],
    )
    return got
