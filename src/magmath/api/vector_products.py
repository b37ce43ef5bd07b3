"""Products by NumPy's names: dot, inner, kron and those of stacks of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.api.elementwise import conj, multiply
from magmath.api.linalg import cross as cross_of_three
from magmath.api.manipulation import concat, moveaxis, ravel, reshape
from magmath.api.products import matmul, tensordot, vecdot
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.errors import ShapeError


@dispatch_cached
def dot(a: Any, b: Any, out: Any = None) -> Array:
    """Return the sum of products over the last axis of a and the last but one of b (its only one,
    for a vector); a 0-d operand multiplies all elements of the other."""
    x, y = as_arrays("dot", a, b)
    if not x.ndim or not y.ndim:
        result = multiply(a, b)
        return stored("dot", as_array("dot", result), out)
    if x.ndim <= 2 and y.ndim <= 2:
        return matmul(x, y, out)
    return stored("dot", tensordot(x, y, ((-1,), (-1 if y.ndim == 1 else -2,))), out)


@dispatch_cached
def inner(a: Any, b: Any) -> Array:
    """Return the sum of products over the last axes of both; a 0-d operand multiplies all elements
    of the other."""
    x, y = as_arrays("inner", a, b)
    if not x.ndim or not y.ndim:
        return as_array("inner", multiply(a, b))
    return tensordot(x, y, ((-1,), (-1,)))


@dispatch_cached
def vdot(a: Any, b: Any) -> Array:
    """Return the sum of conj(a)·b of the flattened arrays."""
    return vecdot(*map(ravel, as_arrays("vdot", a, b)))


@dispatch_cached
def matvec(x1: Any, x2: Any, /, out: Any = None) -> Array:
    """Return the products of matrices (…, m, n) and vectors (…, n)."""
    x, y = as_arrays("matvec", x1, x2)
    product = matmul(x, reshape(y, (*y.shape, 1)))
    return stored("matvec", reshape(product, product.shape[:-1]), out)


@dispatch_cached
def vecmat(x1: Any, x2: Any, /, out: Any = None) -> Array:
    """Return the products of conjugated vectors (…, m) and matrices (…, m, n)."""
    x, y = as_arrays("vecmat", x1, x2)
    x = conj(x)
    product = matmul(reshape(x, (*x.shape[:-1], 1, x.shape[-1])), y)
    return stored("vecmat", reshape(product, (*product.shape[:-2], product.shape[-1])), out)


@dispatch_cached
def kron(a: Any, b: Any) -> Array:
    """Return the Kronecker product: each element of a times all of b."""
    x, y = as_arrays("kron", a, b)
    ndim = max(x.ndim, y.ndim)
    outer = (1,) * (ndim - x.ndim) + x.shape
    inside = (1,) * (ndim - y.ndim) + y.shape
    wide = reshape(x, [n for extent in outer for n in (extent, 1)])
    product = wide * reshape(y, [n for extent in inside for n in (1, extent)])
    return reshape(product, [m * n for m, n in zip(outer, inside, strict=True)])


@dispatch_cached
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Return the vector product of vectors of 3 elements; of vectors of 2, its third element
    alone."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = (
        moveaxis(vectors, d, -1)
        for vectors, d in zip(as_arrays("cross", a, b), (axisa, axisb), strict=True)
    )
    if not {x.shape[-1], y.shape[-1]} <= {2, 3}:
        raise ShapeError(
            f"cross: needs vectors of 2 or 3 elements, was given {x.shape}, {y.shape}"
            "; choose the axis of the vectors with axis=…"
        )
    if x.shape[-1] == y.shape[-1] == 2:
        return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]
    if x.shape[-1] == y.shape[-1]:
        product = cross_of_three(x, y)
    else:
        product = _cross_of_two(x, y) if x.shape[-1] == 2 else -_cross_of_two(y, x)
    return moveaxis(product, -1, axisc)


def _cross_of_two(x: Array, y: Array) -> Array:
    """Return the vector product of vectors of 2 and of 3 elements. A third element of 0 would give
    nan where y is infinite."""
    (x0, x1), (y0, y1, y2) = ([a[..., i : i + 1] for i in range(a.shape[-1])] for a in (x, y))
    return concat([x1 * y2, -(x0 * y2), x0 * y1 - x1 * y0], -1)


def einsum_path(subscripts: str, *operands: Any, optimize: Any = "greedy") -> Any:
    """Return the order in which NumPy would contract operands of these shapes, and its report."""
    stubs = [np.broadcast_to(np.empty(()), as_array("einsum_path", x).shape) for x in operands]
    return np.einsum_path(subscripts, *stubs, optimize=optimize)
