"""Order statistics: the elements at given positions of the sorted array, along an axis.

One worker finds them by partition (introselect), in linear time. If the axis is split, the array is
sorted collectively, and the elements at the positions are read from the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import with_extent
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.kernels.sort import sortable_keys
from magmath.layout import Layout
from magmath.ops.concatenation import CONCAT
from magmath.ops.index_letters import one_axis_whole
from magmath.ops.indexing.along_axis import scatter_along
from magmath.ops.kernel_binding import by_reference
from magmath.ops.slicing import slice_along
from magmath.ops.sort.sorting import ARGSORT, SORT
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch

Positions = tuple[int, ...]


def _infer(x: Node, *, axis: int, positions: Positions) -> tuple[Shape, DType]:
    require_kind("order_statistics", "ordered", x.dtype)
    return with_extent(x.shape, axis, len(positions)), x.dtype


def _kernel(call: KernelCall) -> BoundCall:
    (x,), out = call.inputs, call.out
    if x.device.type == "cpu":
        return partial(sortable_keys.order_statistics, x, out, **call.attributes)
    return partial(_by_sorting, x, out, **call.attributes)


def _by_sorting(x: torch.Tensor, out: torch.Tensor, axis: int, positions: Positions) -> None:
    import torch

    indices = torch.tensor(positions, device=x.device)
    torch.index_select(torch.sort(x, dim=axis)[0], axis, indices, out=out)


def _elements_at(ordered: Node, axis: int, positions: Positions) -> Node:
    """Return the elements of a sorted array at these positions."""
    parts = [slice_along(ordered, axis, p, p + 1) for p in positions]
    return parts[0] if len(parts) == 1 else apply(CONCAT, *parts, axis=axis)


def _by_collective_sort(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the elements of the collectively sorted array, if the axis is split."""
    (x,), (layout,), axis = node.inputs, layouts, node.attributes["axis"]
    if layout.boxes is None and layout.splits[axis] is None:
        return ()
    ordered = apply(SORT, x, axis=axis, descending=False, line=node.line)
    return (_elements_at(ordered, axis, node.attributes["positions"]),)


def _vjp(node: Node, g: Node) -> Gradients:
    """Add each cotangent to the element at its position."""
    (x,) = node.inputs
    axis = node.attributes["axis"]
    order = apply(ARGSORT, x, axis=axis, descending=False)
    origin = _elements_at(order, axis, node.attributes["positions"])
    return (scatter_along(g, origin, axis, x.shape[axis]),)


def _reference(x: Any, *, axis: int, positions: Positions) -> Any:
    return np.take(np.sort(x, axis, kind="stable"), positions, axis)


ORDER_STATISTICS = Operation(
    name="order_statistics",
    infer=_infer,
    axes=one_axis_whole,
    reduction=None,
    vjp=_vjp,
    kernel=_kernel,
    native=None,
    reference=_reference,
    numpy_function=by_reference,
    flops=lambda node: 20.0 * node.inputs[0].size,
    decompositions=_by_collective_sort,
)

OPERATIONS = {ORDER_STATISTICS.name: ORDER_STATISTICS}
