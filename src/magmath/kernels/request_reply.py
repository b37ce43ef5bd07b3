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
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from magmath.kernels.scratch import Scratch

if TYPE_CHECKING:
    from magmath.comm import Communicator


Answer: TypeAlias = Callable[[int, Tensor, Tensor], object]
"""Computes the answers to requests from the memory of a rank, and stores them in the last
argument."""


@final
class Rows:
    """A tensor as a list of rows: its first `dims` dimensions are flattened, in C order.

    `is_flat`: `tensor` has one dimension in their place, because their strides can be merged.
    """

    def __init__(self, tensor: Tensor, dims: int) -> None:
        self._shape = tensor.shape[:dims]
        self.count, self.row_shape = prod(self._shape), tensor.shape[dims:]
        self.tensor, self.is_flat = tensor, dims == 1
        if dims > 1:
            with suppress(RuntimeError):  # if they cannot be merged into one stride
                self.tensor, self.is_flat = tensor.view(self.count, *self.row_shape), True

    def part(self, rows: slice) -> Tensor:
        """Return consecutive rows."""
        if self.is_flat:
            return self.tensor[rows]
        return self.read(torch.arange(rows.start, rows.stop, device=self.tensor.device))

    def read(self, positions: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the rows with these numbers, in `out` if given."""
        if self.is_flat and out is not None:
            return torch.index_select(self.tensor, 0, positions, out=out)
        rows = self.tensor[self._positions(positions)]
        return rows if out is None else out.copy_(rows)

    def write(self, positions: Tensor, values: Tensor) -> None:
        """Overwrite the rows with these numbers."""
        self.tensor[self._positions(positions)] = values

    def _positions(self, positions: Tensor) -> tuple[Tensor, ...]:
        return (positions,) if self.is_flat else torch.unravel_index(positions, self._shape)


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


def fetch_answers(
    rounds: Rounds,
    count: int,
    requests: Callable[[slice], tuple[Tensor, Tensor]],
    answer: Answer,
    target: Rows,
    *,
    sees_all: bool,
) -> None:
    """Fill row i of `target` with the answer to this worker's request i, out of `count`.

    `requests` returns a slice of the requests and their owners. `answer` is called for any rank if
    `sees_all`, otherwise for this one.
    """
    scratch = Scratch(rounds.scratch)
    answer_part = _answer_from_memory if sees_all else _answer_by_messages
    for part in rounds.parts(count):
        own_requests, owners = requests(part)
        with scratch.returning():
            answer_part(rounds.comm, scratch, own_requests, owners, answer, target, part.start)


def _answer_from_memory(
    comm: Communicator,
    scratch: Scratch,
    requests: Tensor,
    owners: Tensor,
    answer: Answer,
    target: Rows,
    first: int,
) -> None:
    """Fill the rows of `target` from `first` on with answers from the memory of their owners."""
    for rank in range(comm.size):
        (numbers,) = (owners == rank).nonzero(as_tuple=True)
        if len(numbers):
            answers = scratch.take(target.tensor.dtype, len(numbers), *target.row_shape)
            answer(rank, requests[numbers], answers)
            target.write(numbers + first, answers)


def _answer_by_messages(
    comm: Communicator,
    scratch: Scratch,
    requests: Tensor,
    owners: Tensor,
    answer: Answer,
    target: Rows,
    first: int,
) -> None:
    """Fill the rows of `target` from `first` on with answers that the owners send. Collective."""
    routing = _route(comm, owners)
    received = _deliver(comm, requests[routing.order], routing, scratch)
    answers = scratch.take(target.tensor.dtype, len(received), *target.row_shape)
    answer(comm.rank, received, answers)
    replies = _deliver(comm, answers, routing.reversed(), scratch)
    target.write(routing.order + first, replies)


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
        owners, contents = messages(part)
        routing = _route(comm, owners)
        with scratch.returning():
            receive(*[_deliver(comm, x[routing.order], routing, scratch) for x in contents])


@final
class _Routing(NamedTuple):
    """The order of messages by owner, and the numbers of messages to and from each rank."""

    order: Tensor
    sent: list[int]
    received: list[int]

    def reversed(self) -> _Routing:
        """Return the routing of a reply to each message."""
        return _Routing(self.order, self.received, self.sent)


def _route(comm: Communicator, owners: Tensor) -> _Routing:
    """Return the routing of messages to these owners. Collective."""
    sent = torch.bincount(owners, minlength=comm.size)
    received = torch.empty_like(sent)
    comm.all_to_all(received, sent)
    short = owners.to(torch.uint8 if comm.size <= 256 else torch.int16)  # sorts in few passes
    return _Routing(torch.argsort(short, stable=True), sent.tolist(), received.tolist())


def _deliver(comm: Communicator, rows: Tensor, routing: _Routing, scratch: Scratch) -> Tensor:
    """Send consecutive rows to each rank; return the received rows, in order of the ranks.
    Collective."""
    received = scratch.take(rows.dtype, sum(routing.received), *rows.shape[1:])
    comm.exchange(_of_ranks(rows, routing.sent), _of_ranks(received, routing.received))
    return received


def _of_ranks(rows: Tensor, counts: list[int]) -> list[tuple[int, Tensor]]:
    """Return the rows of each rank that has any."""
    return [(rank, part) for rank, part in enumerate(torch.split(rows, counts)) if len(part)]
