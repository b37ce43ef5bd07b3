"""Norms of vectors and matrices, composed of reductions and singular values."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import compute_dtype, real_dtype
from magmath.core.integers import is_integer
from magmath.core.shapes import Axis, normalize_axes, normalize_axis, reduced_shape
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, scalar
from magmath.ops.linalg.lapack import check_matrix
from magmath.ops.linalg.svd import SVDVALS
from magmath.ops.manipulation import permute, reshape
from magmath.ops.reductions import reduce

INF = float("inf")


@dispatch_cached
def vector_norm(
    x: Array,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: float | np.number[Any] = 2,
) -> Array:
    """Return the real ord-norm of the vectors along `axis`, or of all elements.

    ord: inf and -inf for the largest and smallest absolute value, 0 for the number of nonzero
    elements, any other p for sum(|x|^p)^(1/p). The gradient of an element that is 0 is 0.
    """
    a = floating("vector_norm", x).node
    axes = normalize_axes("vector_norm", axis, a.ndim)
    order: Any = ord.item() if isinstance(ord, np.number) else ord
    if not isinstance(order, (int, float)):
        raise OptionError(
            f"vector_norm: ord must be a number, inf or -inf, was given {ord!r}"
            "; choose one of these, or use mm.linalg.matrix_norm"
        )
    if order == 2:
        norm = e.call("root", reduce("sum", e.squared_sizes(a), axes, keepdims))
    else:
        norm = _vector_norm(e.call("abs", a), axes, keepdims, order)
    return Array(e.astype(norm, real_dtype(a.dtype)))


def _vector_norm(size: Node, axes: tuple[int, ...], keepdims: bool, ord: float) -> Node:
    """Return the norm of vectors of absolute values; half types give float32."""
    if ord in (INF, -INF):
        return _extreme("vector_norm", ord, size, axes, keepdims)
    if ord == 0:
        size = e.astype(e.call("not_equal", size, constant(0, size.dtype)), size.dtype)
    size = e.astype(size, compute_dtype(size.dtype))
    if ord in (0, 1):
        return reduce("sum", size, axes, keepdims)
    total = reduce("sum", _powers(size, ord), axes, keepdims)
    inverse = scalar(1.0 / ord, size.dtype)
    if ord < 0:
        return e.call("power", total, inverse)
    is_zero = e.call("equal", total, constant(0, total.dtype))  # where the slope is 0
    positive = e.where(is_zero, constant(1, total.dtype), total)
    return e.where(is_zero, total, e.call("power", positive, inverse))


def _powers(size: Node, ord: float) -> Node:
    """Return powers of absolute values. Where the slope would be infinite, at 0 for powers below 1,
    it is 0, as in PyTorch."""
    exponent = scalar(float(ord), size.dtype)
    if ord > 1:
        return e.call("power", size, exponent)
    is_zero = e.call("equal", size, constant(0, size.dtype))
    positive = e.where(is_zero, constant(1, size.dtype), size)
    at_zero = constant(0.0 if ord > 0 else INF, size.dtype)
    return e.where(is_zero, at_zero, e.call("power", positive, exponent))


def _extreme(
    name: str, sign: float, values: Node, axes: tuple[int, ...] | int, keepdims: bool = False
) -> Node:
    """Return the largest of non-negative values, 0 for no values; with a negative sign the
    smallest.

    Raises ShapeError for the smallest of no values.
    """
    reduced = (axes,) if isinstance(axes, int) else axes
    if all(values.shape[axis] for axis in reduced):
        return reduce("max" if sign > 0 else "min", values, axes, keepdims)
    if sign < 0:
        raise ShapeError(
            f"{name}: nothing is the least of no values; needs extents of 1 or more"
            "; leave empty arrays out"
        )
    return reduce("sum", values, axes, keepdims)


@dispatch_cached
def matrix_norm(
    x: Array,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "f", "nuc"] | None = "fro",
) -> Array:
    """Return a real norm of each matrix.

    ord: "fro" or "f" for the root of the sum of squares, "nuc" for the sum of the singular values,
    2 and -2 for the largest and smallest of them, 1 and -1 for the largest and smallest sum of a
    column's absolute values, inf and -inf for those of a row.
    """
    a = floating("matrix_norm", x).node
    check_matrix("matrix_norm", a)
    row, column = a.ndim - 2, a.ndim - 1
    if ord in ("fro", "f", None):
        return vector_norm(x, axis=(row, column), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = apply(SVDVALS, a, line=user_line())
        if ord == "nuc":
            result = reduce("sum", values, row)
        else:
            result = _extreme("matrix_norm", float(ord), values, row)
    elif ord in (1, -1, INF, -INF):
        added, compared = (row, row) if abs(float(ord)) == 1 else (column, row)
        size = e.call("abs", a)
        sums = reduce("sum", e.astype(size, compute_dtype(size.dtype)), added)
        result = e.astype(_extreme("matrix_norm", float(ord), sums, compared), size.dtype)
    else:
        raise OptionError(
            f'matrix_norm: ord must be "fro", "nuc", 1, -1, 2, -2, inf or -inf, was given {ord!r}'
        )
    shape = reduced_shape(a.shape, (row, column), True)
    return Array(reshape(result, shape) if keepdims else result)


@dispatch_cached
def norm(
    x: Any, ord: Any = None, axis: int | tuple[int, int] | None = None, keepdims: bool = False
) -> Array:
    """Return a norm by NumPy's rules: of all elements by default, of vectors along one axis, of
    matrices in two axes; see `vector_norm` and `matrix_norm` for `ord`."""
    a = as_array("norm", x)
    if axis is None and (ord is None or a.ndim == 1):
        return vector_norm(a, keepdims=keepdims, ord=2 if ord is None else ord)
    if axis is None:
        axis = _matrix_axes(a)
    axes = (axis,) if is_integer(axis) else tuple(axis)
    if len(axes) == 1:
        return vector_norm(a, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    dims = [normalize_axis("norm", d, a.ndim) for d in axes]
    if len(axes) != 2 or dims[0] == dims[1]:
        raise ShapeError(
            f"norm: needs one axis or two different ones, was given {axis}"
            "; name them as axis=-1 or axis=(-2, -1)"
        )
    stack_dims = [d for d in range(a.ndim) if d not in dims]
    matrices = permute(a.node, (*stack_dims, *dims))
    norms = matrix_norm(Array(matrices), ord=ord)
    shape = reduced_shape(a.shape, tuple(dims), True)
    return Array(reshape(norms.node, shape)) if keepdims else norms


def _matrix_axes(a: Array) -> tuple[int, int]:
    if a.ndim != 2:
        raise ShapeError(
            f"norm: with `ord`, an array of {a.ndim} dimensions needs `axis`"
            "; name one axis for vectors, two for matrices"
        )
    return 0, 1
