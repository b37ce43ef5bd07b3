"""Picking elements by all workers together, where the array and the indices are divided.

Nobody needs the whole of either. Who has indices asks those who have the elements that they name,
or sends them what belongs there (`kernels/request_reply.py`). The array is divided along one of the
indexed axes, so that the index along that axis tells the owner; the indices, and what is picked,
are divided along one of their dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from magmath.core.block_cyclic import round_to_cache_lines
from magmath.core.request_batching import receive_buffer_bytes, requests_per_round
from magmath.core.shapes import size_of
from magmath.graph import DistributedCall, DistributedKernel, Node, Shape, Workspace
from magmath.layout import Layout, Mesh, even_cuts
from magmath.ops.infer_rules import as_signed
from magmath.ops.local_index import front, normalised
from magmath.ops.slicing import keep

if TYPE_CHECKING:
    import torch

    from magmath.kernels.request_reply import Rounds, Rows

NUMBER = 8
"""Bytes of the number of a row."""
Role = Literal["array", "picked", "index"]


@dataclass(frozen=True)
class IndexedAccess:
    """Elements of an array of `shape`, by indices along `axes` that broadcast to `common`, whose
    dimensions stand at position `at` of what is picked."""

    shape: Shape
    axes: tuple[int, ...]
    common: Shape
    at: int

    @cached_property
    def axis(self) -> int:
        """The indexed axis along which the array is divided: the longest."""
        return max(self.axes, key=self.shape.__getitem__)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The indexed axes, the divided one first."""
        return (self.axis, *[axis for axis in self.axes if axis != self.axis])

    @cached_property
    def dim(self) -> int:
        """The dimension along which the indices are divided: the longest."""
        return max(range(len(self.common)), key=self.common.__getitem__)

    @cached_property
    def rest(self) -> Shape:
        """The dimensions that are not indexed: what one index picks."""
        return tuple(n for d, n in enumerate(self.shape) if d not in self.axes)

    @property
    def picked(self) -> Shape:
        """The shape of what is picked."""
        return (*self.rest[: self.at], *self.common, *self.rest[self.at :])

    @property
    def stride(self) -> int:
        """The rows that one position along the divided axis stands for."""
        return size_of(self.shape[axis] for axis in self.order[1:])

    def is_divided(self) -> bool:
        """True where both the array and the indices can be."""
        several = bool(self.common) and self.common[self.dim] > 1 and self.shape[self.axis] > 1
        return several and size_of(self.shape) > 0 and size_of(self.common) > 0

    def layout(self, role: Role, shape: Shape, mesh: Mesh) -> Layout:
        """How the array is divided, or what is picked, or indices; the last two may have a shape
        that broadcasts."""
        whole, dim = {
            "array": (self.shape, self.axis),
            "picked": (self.picked, self.at + self.dim),
            "index": (self.common, self.dim),
        }[role]
        own = dim - (len(whole) - len(shape))
        if own < 0 or shape[own] != whole[dim]:
            return Layout.whole(shape, mesh)
        return Layout.even(shape, mesh, own)

    def held(self, rank: int, workers: int) -> tuple[int, Shape]:
        """The first index along `dim` that a worker has, and the shape of its indices."""
        first, last = even_cuts(self.common[self.dim], workers)[rank : rank + 2]
        shape = (*self.common[: self.dim], last - first, *self.common[self.dim + 1 :])
        return first, shape

    def share(self, workers: int) -> int:
        """The most indices that a worker has."""
        return size_of(self.held(0, workers)[1])


PickingOf = Callable[[Sequence[Shape], Shape, Mapping[str, Any]], IndexedAccess]
"""(shapes of the operands, shape of the result, attributes) → how elements are picked."""
Bind = Callable[[DistributedCall, IndexedAccess], Callable[[], object]]


def distributed_access(
    picking_of: PickingOf, roles: Sequence[Role], result: Role, bind: Bind, *, exact: bool = True
) -> DistributedKernel:
    """The collective form of a record that picks elements.

    `roles` are those of its first operands, the others are indices.
    """
    together = _Exchange(picking_of, roles, result, bind)
    return DistributedKernel(
        layouts=together.layouts,
        kernel=together.kernel,
        workspace=together.workspace,
        traffic=together.traffic,
        touched=together.touched,
        spread=True,
        reads=together.reads,
        exact=exact,
    )


@dataclass(frozen=True)
class _Exchange:
    """What the planner asks of a record that picks elements, and its kernel."""

    picking_of: PickingOf
    roles: Sequence[Role]
    result: Role
    bind: Bind

    @property
    def reads(self) -> bool:
        """True where elements are read."""
        return self.result == "picked"

    @property
    def replaces(self) -> bool:
        """True where elements of an array are replaced."""
        return "picked" in self.roles and "array" in self.roles

    @property
    def sent(self) -> int:
        """The bytes that an owner gets for each element besides itself: the number of its row, and
        where it is replaced, that of the assignment."""
        return 2 * NUMBER if self.replaces else NUMBER

    def layouts(self, node: Node, mesh: Mesh) -> tuple[tuple[Layout, ...], Layout] | None:
        p = self._of(node)
        if not p.is_divided():
            return None
        indices: list[Role] = ["index"] * (len(node.inputs) - len(self.roles))
        inputs = [
            p.layout(role, x.shape, mesh)
            for role, x in zip([*self.roles, *indices], node.inputs, strict=True)
        ]
        return tuple(inputs), p.layout(self.result, node.shape, mesh)

    def workspace(self, node: Node, workers: int) -> Workspace:
        """What is asked and answered in a round; where elements are replaced, also the numbers of
        the assignments that an owner has made."""
        p, row = self._of(node), self._row_bytes(node)
        size = requests_per_round(p.share(workers), self.sent + row, workers)
        nbytes = receive_buffer_bytes(size, (self.sent, row), row if self.reads else 0, workers)
        return Workspace(0, nbytes + (_noted_bytes(p, workers) if self.replaces else 0))

    def traffic(self, node: Node, workers: int) -> tuple[int, int]:
        """Of what is evenly spread; three messages for each round: how many, which, and what."""
        p, each, peers = self._of(node), self.sent + self._row_bytes(node), workers - 1
        share = p.share(workers)
        rounds = -(-share // requests_per_round(share, each, workers))
        nbytes = size_of(p.common) * each * peers // workers
        return nbytes + rounds * NUMBER * workers * peers, 3 * rounds * workers * peers

    def touched(self, node: Node, workers: int) -> int:
        """What is picked, and the numbers of the rows, go through memory about four times."""
        return 4 * self._of(node).share(workers) * (self.sent + self._row_bytes(node))

    def kernel(self, call: DistributedCall) -> Callable[[], object]:
        shapes = [layout.shape for layout in call.layouts]
        return self.bind(call, self.picking_of(shapes, call.layout.shape, call.attributes))

    def _of(self, node: Node) -> IndexedAccess:
        return self.picking_of([x.shape for x in node.inputs], node.shape, node.attributes)

    def _row_bytes(self, node: Node) -> int:
        return size_of(self._of(node).rest) * node.dtype.itemsize


def _noted_bytes(p: IndexedAccess, workers: int) -> int:
    """The bytes of the number of the last assignment to each row that a worker owns."""
    return round_to_cache_lines(-(-p.shape[p.axis] // workers) * p.stride * NUMBER)


# the kernels on one worker's part -----------------------------------------------------------------


class _Named:
    """The rows that this worker's indices name: their numbers in the array, and who owns them.

    `indices` are local tensors, one for each of the picking's axes.
    """

    def __init__(
        self, call: DistributedCall, p: IndexedAccess, indices: Sequence[torch.Tensor]
    ) -> None:
        import torch

        from magmath.kernels.request_reply import Rows

        comm = call.comm
        self.first, self.shape = p.held(comm.rank, comm.size)
        self.count = size_of(self.shape)
        self.failure: IndexError | None = None
        by_axis = dict(zip(p.axes, indices, strict=True))
        self._types = [by_axis[axis].dtype for axis in p.order]
        self._indices = [
            Rows(as_signed(by_axis[axis]).expand(self.shape), len(self.shape)) for axis in p.order
        ]
        self._axes = [(axis, p.shape[axis]) for axis in p.order]
        self.starts = [cut * p.stride for cut in even_cuts(p.shape[p.axis], comm.size)]
        self._bounds = torch.tensor(self.starts[1:-1], device=call.out.device)

    def rows(self, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and their owners; for an index out of range any row, and a failure that is noted."""
        import torch

        rows: torch.Tensor | None = None
        for index, dtype, (axis, extent) in zip(
            self._indices, self._types, self._axes, strict=True
        ):
            positions, failure = normalised(index.part(part).view(dtype), axis, extent)
            self.failure = self.failure or failure
            rows = positions if rows is None else rows * extent + positions
        assert rows is not None
        return rows, torch.bucketize(rows, self._bounds, right=True)

    def check(self) -> None:
        """Raise what went wrong since the last call."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def _rounds(call: DistributedCall, p: IndexedAccess, scratch: torch.Tensor, nbytes: int) -> Rounds:
    """Rounds of requests that take so many bytes each, with what is picked."""
    from magmath.kernels.request_reply import Rounds

    workers, row = call.comm.size, size_of(p.rest) * call.out.itemsize
    share = p.share(workers)
    return Rounds(call.comm, scratch, share, requests_per_round(share, nbytes + row, workers))


def _picked(tensor: torch.Tensor, p: IndexedAccess, shape: Shape) -> Rows:
    """What is picked by indices of this shape, or broadcasts to it, as rows."""
    from magmath.kernels.request_reply import Rows

    whole = as_signed(tensor).expand((*p.rest[: p.at], *shape, *p.rest[p.at :]))
    return Rows(front(whole, range(p.at, p.at + len(shape))), len(shape))


def _array(tensor: torch.Tensor, p: IndexedAccess) -> Rows:
    from magmath.kernels.request_reply import Rows

    return Rows(front(as_signed(tensor), p.order), len(p.order))


def places_along(call: DistributedCall, p: IndexedAccess) -> list[torch.Tensor]:
    """The second operand as indices of the first of the picking's axes, and for each of the others
    the places along it."""
    import torch

    first, shape = p.held(call.comm.rank, call.comm.size)
    found = [call.inputs[1]]
    for d in p.axes[1:]:
        start = first if d == p.dim else 0
        places = torch.arange(start, start + shape[d], device=call.out.device)
        found.append(places.view(-1, *(1,) * (len(shape) - d - 1)))
    return found


def bind_read(
    call: DistributedCall, p: IndexedAccess, indices: Sequence[torch.Tensor]
) -> Callable[[], object]:
    """Elements of the first operand."""
    from magmath.kernels.request_reply import ask

    comm, named = call.comm, _Named(call, p, indices)
    sees_all = comm.shares_memory and call.out.device.type == "cpu"
    ranks = range(comm.size) if sees_all else (comm.rank,)
    sources = {rank: _array(call.seen(0, rank), p) for rank in ranks}
    target, rounds = _picked(call.out, p, named.shape), _rounds(call, p, call.scratch, NUMBER)

    def answer(rank: int, rows: torch.Tensor, out: torch.Tensor) -> None:
        sources[rank].read(rows - named.starts[rank], out)

    def run() -> None:
        if sees_all:
            comm.barrier()  # everybody's part is there
        ask(rounds, named.count, named.rows, answer, target, sees_all=sees_all)
        named.check()

    return run


def bind_add(
    call: DistributedCall, p: IndexedAccess, indices: Sequence[torch.Tensor]
) -> Callable[[], object]:
    """The elements of the first operand added up where they belong, those of the first worker
    first."""
    from magmath.kernels.request_reply import send

    named, out = _Named(call, p, indices), as_signed(call.out)
    values, target = _picked(call.inputs[0], p, named.shape), _array(out, p)
    rounds, start = _rounds(call, p, call.scratch, NUMBER), named.starts[call.comm.rank]

    def messages(part: slice) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows, owner = named.rows(part)
        return owner, [rows, values.part(part)]

    def run() -> None:
        out.zero_()
        total = target.tensor
        if not target.is_one:
            total = out.new_zeros((target.count, *target.row))

        def receive(rows: torch.Tensor, some: torch.Tensor) -> None:
            total.index_add_(0, rows - start, some)

        send(rounds, named.count, messages, receive)
        if total is not target.tensor:
            target.tensor.copy_(total.view(target.tensor.shape))
        named.check()

    return run


def bind_replace(
    call: DistributedCall, p: IndexedAccess, indices: Sequence[torch.Tensor]
) -> Callable[[], object]:
    """The first operand with elements replaced by those of the second: of several for one place
    the last, whoever sends it."""
    import torch

    from magmath.kernels.request_reply import send

    named, out, workers = _Named(call, p, indices), as_signed(call.out), call.comm.size
    x, values = as_signed(call.inputs[0]), _picked(call.inputs[1], p, named.shape)
    target, start = _array(out, p), named.starts[call.comm.rank]
    noted = _noted_bytes(p, workers)
    last = call.scratch[:noted].view(torch.int64)[: target.count]
    rounds = _rounds(call, p, call.scratch[noted:], 2 * NUMBER)

    def messages(part: slice) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows, owner = named.rows(part)
        return owner, [torch.stack([rows, _numbers(part)], 1), values.part(part)]

    def _numbers(part: slice) -> torch.Tensor:
        """The positions of assignments among all of them."""
        places = torch.arange(part.start, part.stop, device=out.device)
        found = torch.zeros_like(places)
        for d, position in enumerate(torch.unravel_index(places, named.shape)):
            found = found * p.common[d] + position + (named.first if d == p.dim else 0)
        return found

    def receive(numbered: torch.Tensor, some: torch.Tensor) -> None:
        rows, number = numbered.unbind(1)
        places = rows - start
        last.scatter_reduce_(0, places, number, "amax")
        counts = last[places] == number
        target.write(places[counts], some[counts])

    def run() -> None:
        keep(out, x)
        last.fill_(-1)
        send(rounds, named.count, messages, receive)
        named.check()

    return run
