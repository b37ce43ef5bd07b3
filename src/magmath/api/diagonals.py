"""Diagonals and triangles of matrices, and the indices of their elements."""

from __future__ import annotations

from typing import Any

from magmath.api.creation import (
    DTypeLike,
    arange,
    asarray,
    by_diagonal,
    created_array,
    eye,
    ones,
    zeros,
)
from magmath.api.cumulative import cumulative_prod
from magmath.api.data_types import astype
from magmath.api.elementwise import not_equal
from magmath.api.index_functions import cycled
from magmath.api.linalg import diagonal as matrix_diagonal
from magmath.api.linalg import trace as matrix_trace
from magmath.api.manipulation import broadcast_to, flip, moveaxis, ravel, reshape
from magmath.api.searching import nonzero, where
from magmath.arrays.array import Array, as_array
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored, target
from magmath.core.dtypes import bool_, float64, int64, uint64
from magmath.core.promotion import get_default_dtype
from magmath.errors import ShapeError
from magmath.ops import elementwise as e
from magmath.ops import sums
from magmath.ops.leaves import constant


def _as_last(name: str, a: Any, axis1: int, axis2: int) -> Array:
    """Return the array with the two axes of its matrices moved to the end."""
    x = as_array(name, a)
    if x.ndim < 2:
        raise ShapeError(
            f"{name}: needs 2 or more dimensions, was given shape {x.shape}"
            "; add one with mm.expand_dims(x, 0)"
        )
    return moveaxis(x, (axis1, axis2), (-2, -1))


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the elements (i, i + offset) of the matrices in two axes, as the last axis: a view
    that is only read."""
    return matrix_diagonal(_as_last("diagonal", a, axis1, axis2), offset=offset)


@dispatch_cached
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Array:
    """Return the sum of the elements (i, i + offset) of the matrices in two axes."""
    x = _as_last("trace", a, axis1, axis2)
    return stored("trace", matrix_trace(x, offset=offset, dtype=dtype), out)


@dispatch_cached
def diag(v: Any, k: int = 0) -> Array:
    """Return a matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix, which
    is a view that is only read."""
    x = as_array("diag", v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(
            f"diag: needs 1 or 2 dimensions, was given shape {x.shape}"
            "; use mm.linalg.diagonal for more dimensions"
        )
    n = x.size + abs(k)
    if not x.size:
        return zeros((n, n), dtype=x.dtype)
    along = arange(n) - max(k, 0)
    values = x[where((along >= 0) & (along < x.size), along, 0)]
    return where(eye(n, k=k, dtype=bool_), values, astype(asarray(0), x.dtype))


@dispatch_cached
def diagflat(v: Any, k: int = 0) -> Array:
    """Return a matrix with the flattened elements on its k-th diagonal."""
    return diag(ravel(v), k)


@dispatch_cached
def tril(m: Array, k: int = 0) -> Array:
    """Return `m` with zeros above the k-th diagonal of its last two dimensions."""
    return _triangle("tril", m, "less_equal", k)


@dispatch_cached
def triu(m: Array, k: int = 0) -> Array:
    """Return `m` with zeros below the k-th diagonal of its last two dimensions."""
    return _triangle("triu", m, "greater_equal", k)


def _triangle(name: str, x: Array, comparison: str, k: int) -> Array:
    x = as_array(name, x)
    if x.ndim == 0:
        raise ShapeError(
            f"{name}: needs 1 or more dimensions, was given {x.shape}"
            "; add them with mm.reshape(x, (1, 1))"
        )
    if x.ndim == 1:  # a vector stands for equal rows
        x = Array(sums.broadcast_to(x.node, (x.size, x.size)))
    is_kept = by_diagonal(comparison, x.shape, k)
    return created_array(e.where(is_kept, x.node, constant(0, x.dtype)))


@dispatch_cached
def tri(
    N: int, M: int | None = None, k: int = 0, dtype: DTypeLike = None, *, layout: Any = None
) -> Array:
    """Return ones on and below the k-th diagonal of N rows and M columns, zeros above."""
    element = get_default_dtype() if dtype is None else dtype
    shape = (N, N if M is None else M)
    return tril(ones(shape, dtype=element, layout=layout), k)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """Return the indices of the elements on and below the k-th diagonal of n rows and m columns."""
    return nonzero(tri(n, m, k, bool_))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """Return the indices of the elements on and above the k-th diagonal of n rows and m columns."""
    return nonzero(~tri(n, m, k - 1, bool_))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """Return `tril_indices` for the shape of a matrix."""
    return tril_indices(*_shape_of("tril_indices_from", arr, k))


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """Return `triu_indices` for the shape of a matrix."""
    return triu_indices(*_shape_of("triu_indices_from", arr, k))


def _shape_of(name: str, arr: Any, k: int) -> tuple[int, int, int]:
    x = as_array(name, arr)
    if x.ndim != 2:
        raise ShapeError(
            f"{name}: needs a matrix, was given shape {x.shape}; take one matrix, as x[0]"
        )
    return x.shape[0], k, x.shape[1]


def mask_indices(n: int, mask_func: Any, k: Any = 0) -> tuple[Array, ...]:
    """Return the indices where `mask_func(ones((n, n)), k)` is not zero, as for `mm.triu`."""
    return nonzero(not_equal(mask_func(ones((n, n), dtype=int64), k), 0))


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Return the indices of the main diagonal of an array with `ndim` dimensions of extent n."""
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """Return `diag_indices` for the shape of an array, whose extents must be equal."""
    x = as_array("diag_indices_from", arr)
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(
            f"diag_indices_from: needs 2 or more dimensions of equal extent, was given {x.shape}"
            "; take the indices of one extent with mm.diag_indices(n, ndim)"
        )
    return diag_indices(x.shape[0], x.ndim)


def fill_diagonal(a: Array, val: Any, wrap: bool = False) -> None:
    """Write values to the main diagonal of an array; with `wrap`, a tall matrix has further
    diagonals below, each after an empty row."""
    a = target("fill_diagonal", a)
    if a.ndim < 2:
        raise ShapeError(
            f"fill_diagonal: needs 2 or more dimensions, was given {a.shape}"
            "; assign to an element of a 1-D array with x[0] = value"
        )
    if a.ndim > 2:
        indices: tuple[Any, ...] = diag_indices_from(a)
        a[indices] = cycled("fill_diagonal", a, val, a.shape[0])
        return
    rows, columns = a.shape
    positions = arange(
        0, rows * columns if wrap else min(rows, columns) * (columns + 1), columns + 1
    )
    positions = positions[: -(-rows * columns // (columns + 1))]
    a[positions // columns, positions % columns] = cycled("fill_diagonal", a, val, positions.size)


@dispatch_cached
def identity(n: int, dtype: DTypeLike = None, *, layout: Any = None) -> Array:
    """Return the n × n matrix with ones on its main diagonal."""
    return eye(n, dtype=dtype, layout=layout)


@dispatch_cached
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """Return the powers of a vector as columns: N of them, falling unless `increasing`. Those of
    narrow integers are int64, of uint64 float64, as in NumPy."""
    v = as_array("vander", x)
    if v.dtype is bool_ or v.dtype.is_integer:
        v = astype(v, float64 if v.dtype is uint64 else int64)
    if v.ndim != 1:
        raise ShapeError(
            f"vander: needs a 1-D array, was given shape {v.shape}"
            "; flatten it with mm.reshape(x, (-1,))"
        )
    n = v.size if N is None else N
    wide = broadcast_to(reshape(v, (v.size, 1)), (v.size, max(n - 1, 0)))
    powers = cumulative_prod(wide, axis=1, include_initial=True)[:, :n]
    return powers if increasing else flip(powers, 1)
