"""Distributed access by index, with both the array and the indices split over the workers.

No worker needs the whole array or all indices. A worker requests the elements that its indices name
from their owners, or sends values to these owners (`kernels/request_reply.py`). The array is split
along one of the indexed axes, so the index along that axis determines the owner; the indices and
the picked elements are split along one of the indices' dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final

from magmath.core.block_cyclic import round_to_cache_lines
from magmath.core.request_batching import receive_buffer_bytes, requests_per_round
from magmath.core.shapes import size_of
from magmath.core.type_aliases import BoundCall
from magmath.errors import IndexingError
from magmath.graph import CollectiveCall, CollectiveKernel, Node, NodeLayouts, Shape, Workspace
from magmath.layout import Layout, Mesh, even_cuts
from magmath.ops.indexing.local_index import front, normalized
from magmath.ops.kernel_binding import as_parts, as_signed
from magmath.ops.slicing import keep

if TYPE_CHECKING:
    import torch

    from magmath.kernels.request_reply import Rounds, Rows

NUMBER = 8
"""Bytes of a row number."""
Role = Literal["array", "picked", "index"]


@final
@dataclass(frozen=True)
class IndexedAccess:
    """Access to elements of an array of `shape` by indices along `axes`.

    The indices broadcast to the shape `common`, whose dimensions are at position `at` of the picked
    elements. A row is the elements that one combination of indices selects.
    """

    shape: Shape
    axes: tuple[int, ...]
    common: Shape
    at: int

    @cached_property
    def axis(self) -> int:
        """Return the indexed axis along which the array is split: the longest."""
        return max(self.axes, key=self.shape.__getitem__)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Return the indexed axes, the split one first."""
        return (self.axis, *[axis for axis in self.axes if axis != self.axis])

    @cached_property
    def dim(self) -> int:
        """Return the dimension along which the indices are split: the longest."""
        return max(range(len(self.common)), key=self.common.__getitem__)

    @cached_property
    def row_shape(self) -> Shape:
        """Return the extents of the dimensions that are not indexed: the shape of a row."""
        return tuple(n for d, n in enumerate(self.shape) if d not in self.axes)

    @property
    def picked(self) -> Shape:
        """Return the shape of the picked elements."""
        return (*self.row_shape[: self.at], *self.common, *self.row_shape[self.at :])

    @property
    def stride(self) -> int:
        """Return the number of rows per position along the split axis."""
        return size_of(self.shape[axis] for axis in self.order[1:])

    def is_divided(self) -> bool:
        """Return True if both the array and the indices can be split."""
        several = bool(self.common) and self.common[self.dim] > 1 and self.shape[self.axis] > 1
        return several and size_of(self.shape) > 0 and size_of(self.common) > 0

    def layout(self, role: Role, shape: Shape, mesh: Mesh) -> Layout:
        """Return the layout of an operand or result with this role.

        `shape` may broadcast for picked elements and indices.
        """
        whole, dim = {
            "array": (self.shape, self.axis),
            "picked": (self.picked, self.at + self.dim),
            "index": (self.common, self.dim),
        }[role]
        own_dim = dim - (len(whole) - len(shape))
        if own_dim < 0 or shape[own_dim] != whole[dim]:
            return Layout.replicated_on(shape, mesh)
        return Layout.even(shape, mesh, own_dim)

    def stored_range(self, rank: int, workers: int) -> tuple[int, Shape]:
        """Return the first index along `dim` that a worker stores, and the shape of its indices."""
        first, last = even_cuts(self.common[self.dim], workers)[rank : rank + 2]
        shape = (*self.common[: self.dim], last - first, *self.common[self.dim + 1 :])
        return first, shape

    def share(self, workers: int) -> int:
        """Return the maximum number of indices that a worker stores."""
        return size_of(self.stored_range(0, workers)[1])


AccessOf = Callable[[Sequence[Shape], Shape, Mapping[str, Any]], IndexedAccess]
"""(shapes of the operands, shape of the result, attributes) → the access."""
Bind = Callable[[CollectiveCall, IndexedAccess], BoundCall]


def collective_access(
    access_of: AccessOf,
    roles: Sequence[Role],
    result: Role,
    bind: Bind,
    *,
    is_worker_independent: bool = True,
) -> CollectiveKernel:
    """Return the collective kernel of a record that accesses elements by index.

    `roles` are the roles of its first operands; the other operands are indices.
    """
    exchange = _Exchange(access_of, roles, result, bind)
    return CollectiveKernel(
        layouts=exchange.layouts,
        kernel=exchange.kernel,
        workspace=exchange.workspace,
        traffic=exchange.traffic,
        touched_bytes=exchange.touched_bytes,
        is_all_to_all=True,
        reads_peers=exchange.reads,
        is_worker_independent=is_worker_independent,
    )


@final
@dataclass(frozen=True)
class _Exchange:
    """The functions of a `CollectiveKernel` for a record that accesses elements by index."""

    access_of: AccessOf
    roles: Sequence[Role]
    result: Role
    bind: Bind

    @property
    def reads(self) -> bool:
        """True if elements are read."""
        return self.result == "picked"

    @property
    def is_assignment(self) -> bool:
        """True if elements of an array are replaced."""
        return "picked" in self.roles and "array" in self.roles

    @property
    def sent(self) -> int:
        """Return the bytes per row that an owner receives in addition to the row itself.

        These are the row number and, for replacement, the number of the assignment.
        """
        return 2 * NUMBER if self.is_assignment else NUMBER

    def layouts(self, node: Node, mesh: Mesh) -> NodeLayouts | None:
        access = self._access(node)
        if not access.is_divided():
            return None
        indices: list[Role] = ["index"] * (len(node.inputs) - len(self.roles))
        inputs = [
            access.layout(role, x.shape, mesh)
            for role, x in zip([*self.roles, *indices], node.inputs, strict=True)
        ]
        return NodeLayouts(tuple(inputs), access.layout(self.result, node.shape, mesh))

    def workspace(self, node: Node, workers: int) -> Workspace:
        """Return the workspace: buffers for the requests and replies of one round.

        Replacement also needs the numbers of the assignments that an owner has made.
        """
        access, row = self._access(node), self._row_bytes(node)
        size = requests_per_round(access.share(workers), self.sent + row, workers)
        nbytes = receive_buffer_bytes(size, (self.sent, row), row if self.reads else 0, workers)
        return Workspace(
            0, nbytes + (_last_assignment_bytes(access, workers) if self.is_assignment else 0)
        )

    def traffic(self, node: Node, workers: int) -> tuple[int, int]:
        """Return bytes and messages, for evenly spread indices.

        Each round needs three messages per pair of workers: counts, row numbers and rows.
        """
        access, peers = self._access(node), workers - 1
        element_bytes = self.sent + self._row_bytes(node)
        share = access.share(workers)
        rounds = -(-share // requests_per_round(share, element_bytes, workers))
        nbytes = size_of(access.common) * element_bytes * peers // workers
        return nbytes + rounds * NUMBER * workers * peers, 3 * rounds * workers * peers

    def touched_bytes(self, node: Node, workers: int) -> int:
        """Return the bytes of local memory traffic: rows and row numbers move about four times."""
        return 4 * self._access(node).share(workers) * (self.sent + self._row_bytes(node))

    def kernel(self, call: CollectiveCall) -> BoundCall:
        shapes = [layout.shape for layout in call.layouts]
        return self.bind(call, self.access_of(shapes, call.layout.shape, call.attributes))

    def _access(self, node: Node) -> IndexedAccess:
        return self.access_of([x.shape for x in node.inputs], node.shape, node.attributes)

    def _row_bytes(self, node: Node) -> int:
        return size_of(self._access(node).row_shape) * node.dtype.itemsize


def _last_assignment_bytes(access: IndexedAccess, workers: int) -> int:
    """Return the bytes that store the number of the last assignment to each row of an owner."""
    return round_to_cache_lines(-(-access.shape[access.axis] // workers) * access.stride * NUMBER)


# the kernels on one worker's tiles ----------------------------------------------------------------


@final
class _SelectedRows:
    """The rows that this worker's indices select: their numbers in the array, and their owners.

    `indices` are local tensors, one for each axis of the access.
    """

    def __init__(
        self, call: CollectiveCall, access: IndexedAccess, indices: Sequence[torch.Tensor]
    ) -> None:
        import torch

        from magmath.kernels.request_reply import Rows

        comm = call.comm
        self.first, self.shape = access.stored_range(comm.rank, comm.size)
        self.count = size_of(self.shape)
        self.failure: IndexingError | None = None
        by_axis = dict(zip(access.axes, indices, strict=True))
        self._types = [by_axis[axis].dtype for axis in access.order]
        self._indices = [
            Rows(as_signed(by_axis[axis]).expand(self.shape), len(self.shape))
            for axis in access.order
        ]
        self._axes = [(axis, access.shape[axis]) for axis in access.order]
        self.starts = [
            cut * access.stride for cut in even_cuts(access.shape[access.axis], comm.size)
        ]
        self._bounds = torch.tensor(self.starts[1:-1], device=call.out.device)

    def rows(self, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row numbers and owners; an index out of range gives any row and sets `failure`."""
        import torch

        rows: torch.Tensor | None = None
        for index, dtype, (axis, extent) in zip(
            self._indices, self._types, self._axes, strict=True
        ):
            positions, failure = normalized(index.part(part).view(dtype), axis, extent)
            self.failure = self.failure or failure
            rows = positions if rows is None else rows * extent + positions
        assert rows is not None
        return rows, torch.bucketize(rows, self._bounds, right=True)

    def check(self) -> None:
        """Raise the first error since the last call."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def _rounds(
    call: CollectiveCall, access: IndexedAccess, scratch: torch.Tensor, nbytes: int
) -> Rounds:
    """Return the rounds of requests of `nbytes` bytes plus a row each."""
    from magmath.kernels.request_reply import Rounds

    workers, row = call.comm.size, size_of(access.row_shape) * call.out.itemsize
    share = access.share(workers)
    return Rounds(call.comm, scratch, share, requests_per_round(share, nbytes + row, workers))


def _rows_of(tensor: torch.Tensor, access: IndexedAccess, shape: Shape) -> Rows:
    """Return, as rows, the elements picked by indices of this shape, or values that broadcast."""
    from magmath.kernels.request_reply import Rows

    whole = as_signed(tensor).expand(
        (*access.row_shape[: access.at], *shape, *access.row_shape[access.at :])
    )
    return Rows(front(whole, range(access.at, access.at + len(shape))), len(shape))


def _array(tensor: torch.Tensor, access: IndexedAccess) -> Rows:
    from magmath.kernels.request_reply import Rows

    return Rows(front(as_signed(tensor), access.order), len(access.order))


def positions_along(call: CollectiveCall, access: IndexedAccess) -> list[torch.Tensor]:
    """Return an index for each axis of the access.

    The second operand indexes the first axis; along the other axes, an element's own position is
    its index.
    """
    import torch

    first, shape = access.stored_range(call.comm.rank, call.comm.size)
    positions = [call.inputs[1]]
    for d in access.axes[1:]:
        start = first if d == access.dim else 0
        indices = torch.arange(start, start + shape[d], device=call.out.device)
        positions.append(indices.view(-1, *(1,) * (len(shape) - d - 1)))
    return positions


def bind_read(
    call: CollectiveCall, access: IndexedAccess, indices: Sequence[torch.Tensor]
) -> BoundCall:
    """Bind the read of elements of the first operand."""
    from magmath.kernels.request_reply import fetch_answers

    comm, selected = call.comm, _SelectedRows(call, access, indices)
    sees_all = comm.shares_memory and call.out.device.type == "cpu"
    ranks = range(comm.size) if sees_all else (comm.rank,)
    sources = {rank: _array(call.operand_on(0, rank), access) for rank in ranks}
    target, rounds = (
        _rows_of(call.out, access, selected.shape),
        _rounds(call, access, call.scratch, NUMBER),
    )

    def answer(rank: int, rows: torch.Tensor, out: torch.Tensor) -> None:
        sources[rank].read(rows - selected.starts[rank], out)

    def run() -> None:
        if sees_all:
            comm.barrier()  # all workers have computed their tiles
        fetch_answers(rounds, selected.count, selected.rows, answer, target, sees_all=sees_all)
        selected.check()

    return run


def bind_add(
    call: CollectiveCall, access: IndexedAccess, indices: Sequence[torch.Tensor]
) -> BoundCall:
    """Bind the sum of the first operand's elements at their indices, in the order of the ranks."""
    from magmath.kernels.request_reply import send

    selected, out = _SelectedRows(call, access, indices), as_signed(call.out)
    values, target = _rows_of(call.inputs[0], access, selected.shape), _array(out, access)
    rounds, start = _rounds(call, access, call.scratch, NUMBER), selected.starts[call.comm.rank]

    def messages(part: slice) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows, owner = selected.rows(part)
        return owner, [rows, values.part(part)]

    def run() -> None:
        out.zero_()
        total = target.tensor
        if not target.is_flat:
            total = out.new_zeros((target.count, *target.row_shape))

        def receive(rows: torch.Tensor, some: torch.Tensor) -> None:
            as_parts(total).index_add_(0, rows - start, as_parts(some))

        send(rounds, selected.count, messages, receive)
        if total is not target.tensor:
            target.tensor.copy_(total.view(target.tensor.shape))
        selected.check()

    return run


def bind_replace(
    call: CollectiveCall, access: IndexedAccess, indices: Sequence[torch.Tensor]
) -> BoundCall:
    """Bind the first operand with elements replaced by the second operand's elements.

    If several values have the same index, the last one counts, regardless of its sender.
    """
    import torch

    from magmath.kernels.request_reply import send

    selected, out = _SelectedRows(call, access, indices), as_signed(call.out)
    x, values = as_signed(call.inputs[0]), _rows_of(call.inputs[1], access, selected.shape)
    target, start = _array(out, access), selected.starts[call.comm.rank]
    numbers_bytes = _last_assignment_bytes(access, call.comm.size)
    last = call.scratch[:numbers_bytes].view(torch.int64)[: target.count]
    rounds = _rounds(call, access, call.scratch[numbers_bytes:], 2 * NUMBER)

    def messages(part: slice) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows, owner = selected.rows(part)
        return owner, [torch.stack([rows, _numbers(part)], 1), values.part(part)]

    def _numbers(part: slice) -> torch.Tensor:
        """Return the numbers of assignments: their positions among all workers' assignments."""
        linear = torch.arange(part.start, part.stop, device=out.device)
        numbers = torch.zeros_like(linear)
        for d, position in enumerate(torch.unravel_index(linear, selected.shape)):
            numbers = (
                numbers * access.common[d] + position + (selected.first if d == access.dim else 0)
            )
        return numbers

    def receive(numbered: torch.Tensor, some: torch.Tensor) -> None:
        rows, number = numbered.unbind(1)
        rows = rows - start
        last.scatter_reduce_(0, rows, number, "amax")
        counts = last[rows] == number
        target.write(rows[counts], some[counts])

    def run() -> None:
        keep(out, x)
        last.fill_(-1)
        send(rounds, selected.count, messages, receive)
        selected.check()

    return run
