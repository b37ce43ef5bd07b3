"""Sorting along an axis.

A sorted axis must be whole, except in arrays of one dimension or of a few lines, which all workers
sort collectively, line by line (`kernels/sort/distributed_sort.py`). NaN is last in either
direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.block_cyclic import panel_ring_bytes
from magmath.core.dtypes import DType, int64
from magmath.core.shapes import size_of
from magmath.core.type_aliases import BoundCall
from magmath.graph import (
    CollectiveCall,
    CollectiveKernel,
    KernelCall,
    Node,
    NodeLayouts,
    Operation,
    Shape,
    Workspace,
    apply,
)
from magmath.graph.operation import Gradients, Kernel
from magmath.kernels.sort import sortable_keys
from magmath.layout import Layout, Mesh, even_cuts
from magmath.ops.concatenation import CONCAT
from magmath.ops.index_letters import one_axis_whole
from magmath.ops.indexing.along_axis import TAKE_ALONG
from magmath.ops.kernel_binding import by_reference
from magmath.ops.manipulation import permute, reshape
from magmath.ops.shared_fields import no_gradient
from magmath.ops.slicing import slice_along
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch

MIN_KEYS = 4096
"""Elements of a line from which a sort of keys is faster than a stable sort by NumPy."""


def _sort_infer(name: str, result: DType | None) -> Callable[..., tuple[Shape, DType]]:
    def infer(x: Node, *, axis: int, descending: bool) -> tuple[Shape, DType]:
        require_kind(name, "ordered", x.dtype)
        return x.shape, result or x.dtype

    return infer


def _flops(weight: float) -> Callable[[Node], float]:
    """Return a cost function with `weight` flops per comparison."""

    def count(node: Node) -> float:
        extent = node.shape[node.attributes["axis"]]
        return weight * node.size * int(extent).bit_length()

    return count


def _order(x: Any, axis: int, descending: bool) -> Any:
    """Return the positions that sort an array; equal elements keep their order."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    if x.dtype.kind == "f":
        return np.argsort(-x, axis=axis, kind="stable")
    return np.argsort(~x, axis=axis, kind="stable")  # ~ reverses integers and booleans


def _sort_reference(x: Any, *, axis: int, descending: bool) -> Any:
    return np.take_along_axis(x, _order(x, axis, descending), axis)


def _numpy_function(node: Node) -> Callable[..., object] | None:
    """Return a function that sorts lines as NumPy does; None for a stable sort of long ones, which
    the kernel sorts faster by their keys."""
    axis, descending = node.attributes["axis"], node.attributes["descending"]
    if node.operation is SORT and not descending:
        return partial(_sort_ascending, axis)
    return by_reference(node) if node.shape[axis] < MIN_KEYS else None


def _sort_ascending(axis: int, x: Any, out: Any) -> None:
    out[...] = x
    out.sort(axis)


def _kernel(name: str) -> Kernel:
    def bind(call: KernelCall) -> BoundCall:
        (x,), out = call.inputs, call.out
        if x.device.type == "cpu":
            return partial(getattr(sortable_keys, name), x, out, **call.attributes)
        part = ("sort", "argsort").index(name)
        return lambda: out.copy_(_sorted(x, **call.attributes)[part])

    return bind


def _sorted(x: torch.Tensor, axis: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sorted values and their positions, for a tensor on a device."""
    import torch

    if descending and x.is_floating_point():
        negated, order = torch.sort(-x, dim=axis, stable=True)
        return -negated, order
    values, order = torch.sort(x, dim=axis, descending=descending, stable=True)
    return values, order


def _layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
    """Return even splits for arrays of one dimension; None for others."""
    if node.ndim != 1 or not node.size:
        return None
    layout = Layout.even(node.shape, mesh, 0)
    return NodeLayouts((layout,), layout)


def _bind_collective_sort(name: str) -> Callable[[CollectiveCall], BoundCall]:
    """Return a function that binds the collective sort; the host sorts arrays of a device."""

    def bind(call: CollectiveCall) -> BoundCall:
        import torch

        from magmath.kernels.sort import distributed_sort

        (x,), out, comm = call.inputs, call.out, call.comm
        memory = [None if m is None else m[panel_ring_bytes(0) :] for m in call.memory]
        if out.device.type != "cpu":
            memory = [None] * comm.size
            memory[comm.rank] = torch.empty(len(call.scratch), dtype=torch.uint8)
        cuts = even_cuts(call.layout.shape[0], comm.size)
        sort, descending = getattr(distributed_sort, name), call.attributes["descending"]

        def run() -> None:
            comm.barrier()  # no worker uses the workspace any more
            target = out.cpu() if out.device.type != "cpu" else out
            sort(comm, memory, cuts, x.cpu(), target, descending=descending)
            if target is not out:
                out.copy_(target)

        return run

    return bind


def _workspace(name: str) -> Callable[[Node, int], Workspace]:
    def workspace(node: Node, workers: int) -> Workspace:
        count = sortable_keys.sort_bytes if name == "sort" else sortable_keys.argsort_bytes
        return Workspace(0, count(node.size, workers, node.inputs[0].dtype.itemsize))

    return workspace


def _traffic(name: str) -> Callable[[Node, int], tuple[int, int]]:
    """Return the traffic function: bytes and messages.

    Every element that is not on its final worker is sent there; before that, the workers exchange
    counts for every four bits of the keys.
    """

    def traffic(node: Node, workers: int) -> tuple[int, int]:
        itemsize = node.inputs[0].dtype.itemsize
        if name == "argsort":
            itemsize = 8 if itemsize <= 4 else 16
        moved = node.size * itemsize * (workers - 1) // workers
        return moved, 2 * min(itemsize, 8) + workers * (workers - 1)

    return traffic


def _collective(name: str) -> CollectiveKernel:
    return CollectiveKernel(
        layouts=_layouts,
        kernel=_bind_collective_sort(name),
        workspace=_workspace(name),
        traffic=_traffic(name),
        is_worker_independent=True,
    )


def _sort_vjp(node: Node, g: Node) -> Gradients:
    """Move each cotangent to the original position of its element."""
    (x,) = node.inputs
    axis = node.attributes["axis"]
    order = apply(ARGSORT, x, **node.attributes)
    back = apply(ARGSORT, order, axis=axis, descending=False)
    return (apply(TAKE_ALONG, g, back, axis=axis),)


def _line_by_line(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return a sort of each line by all workers, if the axis is split and there are few lines.

    Few means fewer lines than workers.
    """
    (x,), (layout,), axis = node.inputs, layouts, node.attributes["axis"]
    extent = x.shape[axis]
    lines = size_of(x.shape) // max(extent, 1)
    split = layout.boxes is not None or layout.splits[axis] is not None
    if x.ndim == 1 or not split or not 0 < lines < layout.mesh.size:
        return []
    order = (axis, *[d for d in range(x.ndim) if d != axis])
    columns = reshape(permute(x, order), (extent, lines))
    attributes = {**node.attributes, "axis": 0}
    sorted_lines = []
    for i in range(lines):
        line = reshape(slice_along(columns, 1, i, i + 1), (extent,))
        sorted_line = apply(node.operation, line, line=node.line, **attributes)
        sorted_lines.append(reshape(sorted_line, (extent, 1)))
    joined = sorted_lines[0] if lines == 1 else apply(CONCAT, *sorted_lines, axis=1)
    whole = reshape(joined, tuple(x.shape[d] for d in order))
    return [permute(whole, tuple(order.index(d) for d in range(x.ndim)))]


SORT = Operation(
    name="sort",
    infer=_sort_infer("sort", None),
    axes=one_axis_whole,
    reduction=None,
    vjp=_sort_vjp,
    kernel=_kernel("sort"),
    native=None,
    reference=_sort_reference,
    numpy_function=_numpy_function,
    flops=_flops(20.0),
    decompositions=_line_by_line,
    collective=_collective("sort"),
)

ARGSORT = Operation(
    name="argsort",
    infer=_sort_infer("argsort", int64),
    axes=one_axis_whole,
    reduction=None,
    vjp=no_gradient,
    kernel=_kernel("argsort"),
    native=None,
    reference=_order,
    numpy_function=_numpy_function,
    flops=_flops(60.0),
    decompositions=_line_by_line,
    collective=_collective("argsort"),
)


OPERATIONS = {record.name: record for record in (SORT, ARGSORT)}
