"""The order of complex numbers: by real part, then by imaginary part, nan last, as in NumPy."""

from __future__ import annotations

from magmath.core.dtypes import int64, uint8
from magmath.core.shapes import size_of
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Node, apply
from magmath.ops import argreduce
from magmath.ops import elementwise as e
from magmath.ops.indexing.along_axis import TAKE_ALONG
from magmath.ops.manipulation import permute, reshape
from magmath.ops.reductions import reduce
from magmath.ops.slicing import slice_along
from magmath.ops.sort.sorting import ARGSORT


def complex_argsort(x: Node, axis: int, descending: bool) -> Node:
    """Return the positions that sort complex numbers along an axis; equal ones keep their order.

    Numbers with a nan come last in either direction: those with a nan imaginary part first.
    """
    real, imag = e.call("real", x), e.call("imag", x)
    nan = e.add(e.astype(e.call("isnan", imag), int64), 2 * e.astype(e.call("isnan", real), int64))
    order = None
    for key, downwards in ((imag, descending), (real, descending), (nan, False)):
        sorted_so_far = key if order is None else take_along(key, order, axis)
        step = apply(ARGSORT, sorted_so_far, axis=axis, descending=downwards, line=user_line())
        order = step if order is None else take_along(order, step, axis)
    assert order is not None
    return order


def take_along(x: Node, positions: Node, axis: int) -> Node:
    """Return the elements at these positions along an axis."""
    return apply(TAKE_ALONG, x, positions, axis=axis)


def complex_arg_extremum(name: str, x: Node, axis: int) -> Node:
    """Return the positions along an axis, which is kept, of the first largest ("max") or smallest
    ("min") element; of the first nan, if there is one."""
    if not x.shape[axis]:
        raise ShapeError(
            f"{name}: axis {axis} of shape {x.shape} has extent 0"
            "; leave empty arrays out, or choose another axis"
        )
    order = complex_argsort(x, axis, descending=name == "max")
    best = slice_along(order, axis, 0, 1)
    nan = e.astype(e.call("isnan", x), uint8)
    first_nan = apply(argreduce.OPERATIONS["argmax"], nan, axis=axis, keepdims=True)
    has_nan = reduce("any", e.call("isnan", x), axis, True)
    return e.where(has_nan, e.astype(first_nan, int64), best)


def complex_extremum(name: str, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """Return the largest ("max") or smallest ("min") complex number over some axes."""
    remaining = [d for d in range(x.ndim) if d not in axes]
    shape = [x.shape[d] for d in remaining]
    lines = reshape(permute(x, (*remaining, *axes)), (*shape, size_of(x.shape[d] for d in axes)))
    last = lines.ndim - 1
    extremum = take_along(lines, complex_arg_extremum(name, lines, last), last)
    result_shape = [1 if d in axes else n for d, n in enumerate(x.shape)] if keepdims else shape
    return reshape(extremum, tuple(result_shape))
