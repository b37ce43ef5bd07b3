"""`mm.linalg`: the array API's linear algebra, NumPy's, and lu, solve_triangular, svd_truncated.

The last two axes are matrices, leading axes stack them. float32, float64, complex64 and complex128
are computed without conversion; integers become floating point (`promotion.floating_dtype`) if
results are not integers. A matrix that cannot be factorized raises `mm.errors.LinAlgError`, a
subclass of numpy.linalg.LinAlgError, when the value is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magmath.api.chain_products import multi_dot
from magmath.api.condition_numbers import cond
from magmath.api.factorizations import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lu,
    qr,
    svd,
    svd_truncated,
    svdvals,
)
from magmath.api.linear_systems import (
    det,
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    pinv,
    slogdet,
    solve,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from magmath.api.norms import matrix_norm, norm, vector_norm
from magmath.api.products import matmul, matrix_transpose, tensordot, vecdot
from magmath.api.products import outer as flat_outer
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.views import Diagonal, link
from magmath.core.dtypes import as_dtype
from magmath.core.foreign_names import MM_NAMES, hint, missing_in_module
from magmath.core.missing_numpy_names import numpy_hint
from magmath.core.shapes import broadcast, normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import LinAlgError, ShapeError
from magmath.graph import apply
from magmath.ops import elementwise as e
from magmath.ops.concatenation import CONCAT
from magmath.ops.linalg import matrix_algebra
from magmath.ops.linalg.lapack import check_matrix
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to, sum_

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Raise AttributeError; for a NumPy name the message has the name used here."""
        raise missing_in_module(
            "magmath.linalg", __all__, name, numpy_hint(name) or hint(MM_NAMES, name)
        )


__all__ = [
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svd_truncated",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return __all__


def outer(x1: Any, x2: Any, /) -> Array:
    """Return all products of an element of one vector and one of another: (m, n)."""
    x, y = as_arrays("linalg.outer", x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            f"linalg.outer: needs two 1-D arrays, was given {x.shape} and {y.shape}"
            "; mm.outer flattens them"
        )
    return flat_outer(x, y)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """Return the elements (i, i + offset) of each matrix, as vectors: a view that is only read."""
    x = as_array("diagonal", x)
    check_matrix("diagonal", x.node)
    view = Array(matrix_algebra.diagonal(x.node, offset, user_line()))
    link(x, view, Diagonal(offset))
    return view


@dispatch_cached
def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """Return the sum of the elements (i, i + offset) of each matrix."""
    node = as_array("trace", x).node
    check_matrix("trace", node)
    along = matrix_algebra.diagonal(node, offset, user_line())
    if dtype is not None:
        along = e.astype(along, as_dtype(dtype))
    total = sum_(along, (along.ndim - 1,))
    return Array(total if dtype is None else e.astype(total, as_dtype(dtype)))


@dispatch_cached
def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return the vector product of vectors of 3 elements along `axis`."""
    a, b = operands = promoted_nodes("cross", x1, x2)
    shape = broadcast("cross", a.shape, b.shape)
    if not -min(a.ndim, b.ndim) <= axis < 0 and a.ndim != b.ndim:
        raise ShapeError(
            f"cross: axis must be {-min(a.ndim, b.ndim)} to -1, was given {axis}"
            "; move the axis of the vectors to the end with mm.moveaxis"
        )
    dim = normalize_axis("cross", axis, len(shape))
    a, b = broadcast_to(a, shape), broadcast_to(b, shape)
    if any(x.shape[axis] != 3 for x in operands):
        raise ShapeError(
            f"cross: needs 3 elements along axis {axis}, was given "
            f"{' and '.join(str(x.shape) for x in operands)}"
            "; use mm.cross for vectors of 2 elements"
        )
    u = [slice_along(a, dim, i, i + 1) for i in range(3)]
    v = [slice_along(b, dim, i, i + 1) for i in range(3)]
    parts = [
        e.subtract(e.multiply(u[i], v[j]), e.multiply(u[j], v[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return Array(apply(CONCAT, *parts, axis=dim, line=user_line()))
