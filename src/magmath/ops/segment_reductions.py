"""Reductions of the segments of an axis that begin at ascending positions, as NumPy's `reduceat`.

Each worker reduces the part of each segment that it stores; if the axis is split, the results of
the workers are combined by the same reduction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, compute_dtype, int64
from magmath.core.index_set import IndexSet
from magmath.core.shapes import with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Kernel, Vjp
from magmath.ops import elementwise as e
from magmath.ops.creation import iota
from magmath.ops.host_fallback import is_on_host, through_host
from magmath.ops.index_letters import LETTERS, letters_except
from magmath.ops.indexing.gather_scatter import check_indices, take
from magmath.ops.indexing.local_index import neutral
from magmath.ops.kernel_binding import by_reference
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.product_gradients import products_of_others_in_segments
from magmath.ops.shared_fields import no_gradient
from magmath.ops.sort.searchsorted import SEARCHSORTED
from magmath.ops.sums import UFUNCS, identity_element
from magmath.ops.type_rules import require_kind


def _infer(domain: str, x: Node, starts: Node, *, axis: int) -> tuple[Shape, DType]:
    require_kind("reduceat", domain, x.dtype)
    if compute_dtype(x.dtype) is not x.dtype:
        raise DTypeError(f"reduceat: reduces no {x.dtype}; convert with mm.astype(x, mm.float32)")
    check_indices("reduceat", starts)
    return with_extent(x.shape, axis, starts.shape[0]), x.dtype


def _axes(node: Node) -> str:
    x, _ = node.inputs
    return f"{LETTERS[: x.ndim]},.->{letters_except(x.ndim, (node.attributes['axis'],))}"


def _reference(name: str) -> Callable[..., Any]:
    ufunc = UFUNCS[name]
    return lambda x, starts, *, axis: ufunc.reduceat(x, starts.astype(np.intp), axis, x.dtype)


def _kernel(name: str) -> Kernel:
    reduceat = UFUNCS[name].reduceat

    def bind(call: KernelCall) -> BoundCall:
        if not is_on_host(call):
            return through_host(bind, call)
        axis = call.attributes["axis"]
        stored: IndexSet = call.tiles[0][axis]
        x, starts, out = call.inputs[0].numpy(), call.inputs[1].numpy(), call.out.numpy()
        if stored.size == call.shapes[0][axis]:
            return lambda: reduceat(x, starts, axis, x.dtype, out)
        identity = _identity(name, call)

        def run() -> None:
            bounds = np.append(_count_below(stored, starts), stored.size)
            is_stored = bounds[1:] > bounds[:-1]
            call.out.fill_(identity)
            if is_stored.any():
                sums = reduceat(x, bounds[:-1][is_stored], axis, x.dtype)
                out[(slice(None),) * axis + (is_stored,)] = sums

        return run

    return bind


def _identity(name: str, call: KernelCall) -> float:
    from magmath.memory.torch_dtypes import from_torch

    if name == "sum":
        return neutral(call.out)
    return identity_element(name, from_torch(call.out.dtype))


def _count_below(indices: IndexSet, positions: Any) -> Any:
    """Return the number of indices of a set that are less than each position."""
    firsts, stops = indices.segments()
    lengths = stops - firsts
    before = np.append(np.cumsum(lengths) - lengths, indices.size)
    segment = np.searchsorted(stops, positions, side="right")
    within = positions - np.append(firsts, positions.max(initial=0))[segment]
    return before[segment] + np.maximum(within, 0)


# gradients ----------------------------------------------------------------------------------------


def _segment_of(node: Node) -> Node:
    """Return the number of the segment of each position of the axis, -1 before the first one."""
    x, starts = node.inputs
    positions = iota((x.shape[node.attributes["axis"]],), 0)
    after = apply(SEARCHSORTED, e.astype(starts, int64), positions, side="right")
    return after - constant(1, int64)


def _of_elements(node: Node, values: Node) -> Node:
    """Return, for each element of the operand, the value of its segment, 0 if it is in none."""
    axis, number = node.attributes["axis"], _segment_of(node)
    zero = constant(0, int64)
    spread = take(values, e.call("maximum", number, zero), axis)
    is_within = _along(node, e.call("less_equal", zero, number))
    return e.where(is_within, spread, constant(0, values.dtype))


def _along(node: Node, values: Node) -> Node:
    """Return values of positions of the axis in a shape that broadcasts to the operand's."""
    return reshape(values, (values.size, *(1,) * (node.ndim - 1 - node.attributes["axis"])))


def _sum_vjp(node: Node, g: Node) -> Gradients:
    return _of_elements(node, g), None


def _extremum_vjp(node: Node, g: Node) -> Gradients:
    """Divide the cotangent of a segment evenly between the elements that attain the extremum."""
    x, starts = node.inputs
    attained = e.call("equal", x, _of_elements(node, node))
    ones = e.where(attained, constant(1, x.dtype), constant(0, x.dtype))
    count = reduced_segments("sum", ones, starts, node.attributes["axis"])
    share = _of_elements(node, g / count)
    return e.where(attained, share, constant(0, x.dtype)), None


def _prod_vjp(node: Node, g: Node) -> Gradients:
    x, starts = node.inputs
    axis, number = node.attributes["axis"], _segment_of(node)
    positions, one = iota(number.shape, 0), constant(1, int64)
    extent = e.call("maximum", positions, constant(x.shape[axis], int64))
    last = constant(starts.shape[0] - 1, int64)
    following = take(e.astype(starts, int64), e.call("minimum", number + one, last), 0)
    stop = e.where(e.call("less", number, last), following, extent)
    first = take(e.astype(starts, int64), e.call("maximum", number, constant(0, int64)), 0)
    before, behind = _along(node, positions - first), _along(node, stop - one - positions)
    others = products_of_others_in_segments(x, before, behind, axis)
    return _of_elements(node, g) * others, None


def _record(name: str, domain: str, vjp: Vjp) -> Operation:
    return Operation(
        name=f"segment_{name}",
        infer=partial(_infer, domain),
        axes=_axes,
        reduction=name,
        vjp=vjp,
        kernel=_kernel(name),
        native=None,
        reference=_reference(name),
        numpy_function=by_reference,
        flops=lambda node: float(node.inputs[0].size),
    )


_SEGMENT_REDUCTIONS = {
    "sum": _record("sum", "numeric", _sum_vjp),
    "prod": _record("prod", "numeric", _prod_vjp),
    "max": _record("max", "real", _extremum_vjp),
    "min": _record("min", "real", _extremum_vjp),
    "any": _record("any", "bool", no_gradient),
    "all": _record("all", "bool", no_gradient),
}
OPERATIONS = {record.name: record for record in _SEGMENT_REDUCTIONS.values()}


def reduced_segments(name: str, x: Node, starts: Node, axis: int) -> Node:
    """Return the reduction of each segment of an axis, from each start up to the next one; the
    starts ascend. Half types are reduced in float32."""
    wide = e.astype(x, compute_dtype(x.dtype))
    return e.astype(apply(_SEGMENT_REDUCTIONS[name], wide, starts, axis=axis), x.dtype)
