"""Piecewise linear interpolation, by NumPy's `interp`. Each worker has all points, and interpolates
at the positions that it stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.core.dtypes import DType, float64, int64
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops import elementwise as e
from magmath.ops.host_fallback import is_on_host, through_host
from magmath.ops.index_letters import LETTERS
from magmath.ops.indexing.gather_scatter import scatter_add, take
from magmath.ops.kernel_binding import by_reference
from magmath.ops.leaves import constant
from magmath.ops.shared_fields import flops_per_element
from magmath.ops.slicing import slice_along
from magmath.ops.sort.searchsorted import MIN_SORTED_VALUES, SEARCHSORTED, computed_in_order
from magmath.ops.sums import sum_


def _infer(at: Node, points: Node, values: Node, left: Node, right: Node) -> tuple[Shape, DType]:
    for x in (at, points, values, left, right):
        if x.dtype is not float64:
            raise DTypeError(f"interp: takes float64, was given {x.dtype}; convert with mm.astype")
    if (
        points.ndim != 1
        or points.shape != values.shape
        or not points.size
        or left.ndim
        or right.ndim
    ):
        raise ShapeError(
            f"interp: needs vectors of points and values of one length, 1 or more, and numbers for "
            f"the values outside, was given {points.shape}, {values.shape}, {left.shape} and "
            f"{right.shape}; flatten them"
        )
    return at.shape, float64


def _axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters},.,.,,->{letters}"


def _kernel(call: KernelCall) -> BoundCall:
    from torch import from_numpy

    if not is_on_host(call):
        return through_host(_kernel, call)
    at, out = call.inputs[0], call.out
    points, *others = [x.numpy() for x in call.inputs[1:]]

    def interpolated(positions: Any) -> Any:
        return from_numpy(_reference(positions.numpy(), points, *others))

    if min(at.numel(), points.size) < MIN_SORTED_VALUES:
        x, y = at.numpy(), out.numpy()
        return lambda: np.copyto(y, _reference(x, points, *others))
    return lambda: out.copy_(computed_in_order(at, interpolated))


def _reference(at: Any, points: Any, values: Any, left: Any, right: Any) -> Any:
    return np.asarray(np.interp(at, points, values, float(left), float(right)))


def _vjp(node: Node, g: Node) -> Gradients:
    """Return the slope of the line at each position, and the shares of its two ends.

    The last of equal points has the value there, and the slope 0.
    """
    at, points, values, *_ = node.inputs
    zero, n = constant(0, float64), points.size
    first, last = (take(points, constant(i, int64), 0) for i in (0, n - 1))
    ends = [sum_(e.where(e.call("less", *pair), g, zero)) for pair in ((at, first), (last, at))]
    is_inner = e.call(
        "logical_and", e.call("less_equal", first, at), e.call("less_equal", at, last)
    )
    at, inner = e.where(is_inner, at, first), e.where(is_inner, g, zero)
    if n == 1:
        total = scatter_add(sum_(inner), [constant(0, int64)], axes=(0,), at=0, extents=(1,))
        return None, None, total, *ends
    number = apply(SEARCHSORTED, points, at, side="right") - constant(1, int64)
    number = e.call("maximum", number, constant(0, int64))
    below = e.call("minimum", number, constant(n - 2, int64))
    rises, runs = (slice_along(x, 0, 1, n) - slice_along(x, 0, 0, n - 1) for x in (values, points))
    is_step, one = e.call("equal", runs, zero), constant(1, float64)
    runs = e.where(is_step, one, runs)
    run, slope = take(runs, below, 0), take(e.where(is_step, zero, rises / runs), below, 0)
    share = e.where(e.call("less", below, number), one, (at - take(points, below, 0)) / run)

    def to_ends(x: Node) -> Node:
        above = below + constant(1, int64)
        weights = ((below, x - share * x), (above, share * x))
        parts = [scatter_add(y, [i], axes=(0,), at=0, extents=(n,)) for i, y in weights]
        return parts[0] + parts[1]

    of_slope = inner * slope
    return of_slope, -to_ends(of_slope), to_ends(inner), *ends


INTERPOLATION = Operation(
    name="interp",
    infer=_infer,
    axes=_axes,
    reduction=None,
    vjp=_vjp,
    kernel=_kernel,
    native=None,
    reference=_reference,
    numpy_function=by_reference,
    flops=flops_per_element(20.0),
)

OPERATIONS = {INTERPOLATION.name: INTERPOLATION}
