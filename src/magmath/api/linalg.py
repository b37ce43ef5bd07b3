"""`mm.linalg`: the array API's linear algebra, NumPy's, and lu, solve_triangular, svd_truncated.

The last two axes are matrices, leading axes stack them. float32, float64, complex64 and complex128
are computed without conversion; integers become floating point (`promotion.floating_dtype`) if
results are not integers. A matrix that cannot be factorised raises `mm.errors.LinAlgError`, a
subclass of numpy.linalg.LinAlgError, when the value is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from magmath.api.chain_products import multi_dot
from magmath.api.norms import matrix_norm, norm, vector_norm
from magmath.api.products import matmul, matrix_transpose, outer, tensordot, vecdot
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.operands import operands
from magmath.core.dtypes import DType, as_dtype, int64, real_dtype
from magmath.core.integers import require_integer
from magmath.core.numpy_aliases import alias_hint
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import broadcast, normalize_axis, size_of
from magmath.engine.user_line import user_line
from magmath.errors import LinAlgError, ShapeError
from magmath.graph import Node, Operation, apply
from magmath.ops import eigen, least_squares, solvers
from magmath.ops import elementwise as e
from magmath.ops.cholesky import CHOLESKY
from magmath.ops.concatenation import CONCAT
from magmath.ops.contraction import matmul as product
from magmath.ops.lapack import check_matrix, check_type
from magmath.ops.leaves import parameter
from magmath.ops.lu import LU, lu_parts
from magmath.ops.manipulation import permute, reshape, transpose
from magmath.ops.matrix_algebra import DIAGONAL, adjoint, columns, identity_matrix, rows
from magmath.ops.qr import QR, qr_parts
from magmath.ops.qr import qr as packed_qr
from magmath.ops.reductions import broadcast_to, sum_
from magmath.ops.slicing import slice_along
from magmath.ops.triangular import SOLVE_TRIANGULAR

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Raise AttributeError; for a NumPy name the message has the name used here."""
        raise AttributeError(f"module 'magmath.linalg' has no attribute {name!r}{alias_hint(name)}")


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


class QRResult(NamedTuple):
    """x = Q·R."""

    Q: Array
    R: Array


class LUResult(NamedTuple):
    """x = P·L·U."""

    P: Array
    L: Array
    U: Array


class EighResult(NamedTuple):
    """x·V = V·diag(λ), the eigenvectors V being columns."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """x·V = V·diag(λ), the eigenvectors V being columns."""

    eigenvalues: Array
    eigenvectors: Array


class SVDResult(NamedTuple):
    """x = U·diag(S)·Vh."""

    U: Array
    S: Array
    Vh: Array


class SlogdetResult(NamedTuple):
    """det(x) = sign · exp(logabsdet)."""

    sign: Array
    logabsdet: Array


class LstsqResult(NamedTuple):
    """The solution, sums of squared residuals (…, k), ranks, and singular values of the matrix."""

    solution: Array
    residuals: Array
    rank: Array
    singular_values: Array


def _applied(record: Operation, *operands: Node, **attributes: Any) -> Node:
    return apply(record, *operands, line=user_line(), **attributes)


def _system(name: str, x1: Array, x2: Array) -> tuple[Node, Node, bool]:
    """Return a matrix and right-hand sides of one type and stack shape, and whether the latter were
    a vector."""
    a, b = (e.astype(x, floating_dtype(x.dtype)) for x in operands(name, x1, x2))
    given = f"{a.shape} and {b.shape}"
    check_matrix(name, a)
    vector = b.ndim == 1
    if vector:
        b = reshape(b, (*b.shape, 1))
    if b.ndim == 0 or a.shape[-2] != b.shape[-2]:
        raise ShapeError(f"{name}: needs (…, m, n) and (m,) or (…, m, k), was given {given}")
    stack = broadcast(name, a.shape[:-2], b.shape[:-2])
    a, b = broadcast_to(a, (*stack, *a.shape[-2:])), broadcast_to(b, (*stack, *b.shape[-2:]))
    return a, b, vector


def _solution(x: Node, vector: bool) -> Array:
    return Array(reshape(x, x.shape[:-1]) if vector else x)


# factorisations -----------------------------------------------------------------------------------


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """Return the lower triangular L with x = L·Lᴴ, or with `upper` U with x = Uᴴ·U.

    Reads only the corresponding triangle of x, which alone has a gradient. Raises LinAlgError if x
    is not positive definite.
    """
    node = floating("cholesky", x).node
    if not upper:
        return Array(_applied(CHOLESKY, node))
    check_matrix("cholesky", node, square=True)
    return Array(transpose(_applied(CHOLESKY, transpose(node))))


def qr(x: Array, /, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and an upper triangular R, by Householder's reflections or,
    for tall well-conditioned matrices, by Cholesky. The diagonal of R is real and not negative, so
    that the factors of a matrix of full rank are unique.

    mode: "reduced" for (…, m, k) and (…, k, n), k = min(m, n); "complete" for a square Q; "r" for R
    alone.
    """
    if mode == "r":
        return qr(x).R
    if mode not in ("reduced", "complete"):
        raise ValueError(f'qr: mode must be "reduced", "complete" or "r", was given {mode!r}')
    a = floating("qr", x).node
    packed = _applied(QR, a, full=mode == "complete")
    q, r = qr_parts(packed, *a.shape[-2:])
    return QRResult(Array(q), Array(r))


def lu(x: Array, /) -> LUResult:
    """Return the permutation matrix P, L (…, m, k) with ones on its diagonal, and U (…, k, n), with
    k = min(m, n)."""
    a = floating("lu", x).node
    check_matrix("lu", a)
    order, low, high = lu_parts(_applied(LU, transpose(a)))
    return LUResult(Array(order), Array(transpose(high)), Array(transpose(low)))


def _eigen(packed: Node, dtype: DType) -> tuple[Array, Array]:
    values, vectors = eigen.eigen_parts(packed)
    flat = reshape(values, (*values.shape[:-2], values.shape[-1]))
    return Array(flat if flat.dtype is dtype else e.real(flat)), Array(vectors)


def eigh(x: Array, /, UPLO: str = "L") -> EighResult:
    """Return eigenvalues, real and ascending, and orthonormal eigenvectors of a Hermitian matrix.

    Only its lower triangle is read, or its upper one where UPLO is "U".
    """
    a = _lower("eigh", x, UPLO)
    return EighResult(*_eigen(_applied(eigen.EIGH, a), real_dtype(a.dtype)))


def eigvalsh(x: Array, /, UPLO: str = "L") -> Array:
    """Return the eigenvalues of a Hermitian matrix, real and ascending; see `eigh`."""
    return Array(_applied(eigen.EIGVALSH, _lower("eigvalsh", x, UPLO)))


def _lower(name: str, x: Array, uplo: str) -> Node:
    """Return a Hermitian matrix whose lower triangle is the one that is read."""
    if uplo not in ("L", "U"):
        raise ValueError(f'{name}: UPLO must be "L" or "U", was given {uplo!r}')
    a = floating(name, x).node
    if uplo == "L":
        return a
    check_matrix(name, a, square=True)
    return adjoint(a)


def eig(x: Array, /) -> EigResult:
    """Return the complex eigenvalues, in no order, and unit eigenvectors of a square matrix."""
    packed = _applied(eigen.EIG, floating("eig", x).node)
    return EigResult(*_eigen(packed, packed.dtype))


def eigvals(x: Array, /) -> Array:
    """Return the complex eigenvalues of a square matrix, in no order."""
    return Array(_applied(eigen.EIGVALS, floating("eigvals", x).node))


def svd(x: Array, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return U, the singular values, descending, and Vᴴ; the singular values alone without
    `compute_uv`.

    With `full_matrices` U and Vᴴ are square, otherwise (…, m, k) and (…, k, n) with k = min(m, n).
    """
    if not compute_uv:
        return svdvals(x)
    a = floating("svd", x).node
    full = full_matrices and a.ndim > 1 and a.shape[-1] != a.shape[-2]
    return _svd(_applied(eigen.SVD, a, full=full), a, full)


def _svd(packed: Node, a: Node, full: bool) -> SVDResult:
    u, s, vh = eigen.svd_parts(packed, *a.shape[-2:], full=full)
    values = e.real(reshape(s, (*s.shape[:-2], s.shape[-1])))
    return SVDResult(Array(u), Array(values), Array(vh))


def svdvals(x: Array, /) -> Array:
    """Return the singular values in descending order."""
    return Array(_applied(eigen.SVDVALS, floating("svdvals", x).node))


def svd_truncated(x: Array, k: int, /, *, oversampling: int = 10, iterations: int = 2) -> SVDResult:
    """Return approximations of the k largest singular values and their vectors, by random
    projection.

    x is only multiplied with k + oversampling vectors, 2 + 2 · `iterations` times. The error is
    near that of the best rank-k approximation; each iteration reduces the difference by the square
    of the ratio of the omitted to the kept singular values. The vectors are drawn from the next
    stream of `mm.random`. Source: Halko, Martinsson and Tropp (2011), algorithms 4.4 and 5.1.
    """
    from magmath.api import random

    a = floating("svd_truncated", x).node
    check_type("svd_truncated", a)
    check_matrix("svd_truncated", a)
    least, k = min(a.shape[-2:]), require_integer("svd_truncated: k", k, 0)
    if k > least:
        raise ShapeError(f"svd_truncated: k must be 0 to {least} for {a.shape}, was given {k}")
    width = min(k + oversampling, least)
    drawn = random.normal(shape=(a.shape[-1], width), dtype=real_dtype(a.dtype)).node
    basis = product(a, e.astype(drawn, a.dtype))
    for _ in range(iterations):
        basis = product(a, _orthonormal(product(adjoint(a), _orthonormal(basis))))
    q = _orthonormal(basis)
    small = product(adjoint(q), a)
    u, s, vh = eigen.svd_parts(eigen.svd(small), *small.shape[-2:], full=False)
    u, s, vh = product(q, columns(u, 0, k)), columns(s, 0, k), rows(vh, 0, k)
    return SVDResult(Array(u), Array(e.real(reshape(s, (*s.shape[:-2], k)))), Array(vh))


def _orthonormal(x: Node) -> Node:
    return qr_parts(packed_qr(x), *x.shape[-2:])[0]


# systems ------------------------------------------------------------------------------------------


def solve(x1: Array, x2: Array, /) -> Array:
    """Return x with x1·x = x2, for a vector (n,) or columns (…, n, k), by LU with partial pivoting.

    Raises LinAlgError if x1 is singular.
    """
    a, b, vector = _system("solve", x1, x2)
    return _solution(_applied(solvers.SOLVE, a, b, transpose=False), vector)


def solve_triangular(
    x1: Array,
    x2: Array,
    /,
    *,
    lower: bool = False,
    transpose: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Return x with x1·x = x2, or with `transpose` x1ᵀ·x = x2; reads one triangle of x1.

    Raises LinAlgError if its diagonal has a zero; with `unit_diagonal` the diagonal is not read.
    """
    a, b, vector = _system("solve_triangular", x1, x2)
    x = _applied(SOLVE_TRIANGULAR, a, b, lower=lower, transpose=transpose, unit=unit_diagonal)
    return _solution(x, vector)


def inv(x: Array, /) -> Array:
    """Return the inverse. Raises LinAlgError if x is singular."""
    return Array(_applied(solvers.INV, floating("inv", x).node))


def det(x: Array, /) -> Array:
    """Return the determinant. Its gradient needs a matrix that is not singular."""
    return Array(_applied(solvers.DET, floating("det", x).node))


def slogdet(x: Array, /) -> SlogdetResult:
    """Return the sign of the determinant (of length 1 or 0) and the log of its absolute value."""
    a = floating("slogdet", x).node
    sign, log = _applied(solvers.DET_SIGN, a), _applied(solvers.LOGABSDET, a)
    return SlogdetResult(Array(sign), Array(log))


def pinv(x: Array, /, rcond: Any = None, *, rtol: float | Array | None = None) -> Array:
    """Return the Moore-Penrose inverse; singular values up to rtol times the largest count as zero.

    rtol: a number, or one for each matrix; max(m, n) · eps by default. NumPy also names it rcond.
    """
    a = floating("pinv", x).node
    given = rcond if rtol is None else rtol
    return Array(_applied(least_squares.PINV, a, _tolerance("pinv", a, given)))


def lstsq(
    x1: Array, x2: Array, /, rcond: Any = None, *, rtol: float | Array | None = None
) -> LstsqResult:
    """Return the shortest x that makes x1·x - x2 shortest; `rtol` as for `pinv`."""
    a, b, vector = _system("lstsq", x1, x2)
    tolerance = _tolerance("lstsq", a, rcond if rtol is None else rtol)
    x = _applied(least_squares.LSTSQ, a, b, tolerance)
    distance = e.call("abs", e.subtract(product(a, x), b))
    residuals = sum_(e.call("square", distance), (a.ndim - 2,))
    s = _applied(eigen.SVDVALS, a)
    if vector:
        residuals = reshape(residuals, residuals.shape[:-1])
    return LstsqResult(_solution(x, vector), Array(residuals), Array(_rank(s, tolerance)), Array(s))


def _tolerance(name: str, a: Node, rtol: float | Array | None) -> Node:
    """Return the relative tolerance, one number for each matrix."""
    check_type(name, a)
    check_matrix(name, a)
    dtype = real_dtype(a.dtype)
    if rtol is None:
        rtol = float(max(*a.shape[-2:], 1) * np.finfo(dtype.name).eps)
    if not isinstance(rtol, (int, float)):
        node = e.astype(as_array(name, rtol).node, dtype)
    else:
        node = parameter(float(rtol), dtype)
    return broadcast_to(node, a.shape[:-2])


def _rank(s: Node, tolerance: Node) -> Node:
    largest = slice_along(s, s.ndim - 1, 0, min(s.shape[-1], 1))
    limit = e.multiply(largest, reshape(tolerance, (*tolerance.shape, 1)))
    return sum_(e.astype(e.call("greater", s, limit), int64), (s.ndim - 1,))


def matrix_rank(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """Return the number of singular values above rtol times the largest; `rtol` as for `pinv`."""
    a = floating("matrix_rank", x).node
    tolerance = _tolerance("matrix_rank", a, rtol)
    return Array(_rank(_applied(eigen.SVDVALS, a), tolerance))


def matrix_power(x: Array, n: int, /) -> Array:
    """Return x to the power n; for negative n a power of the inverse."""
    a = as_array("matrix_power", x).node
    if not hasattr(n, "__index__"):
        raise TypeError(f"matrix_power: the power is an integer, was given {n!r}")
    check_matrix("matrix_power", a, square=True)
    if n < 0:
        a, n = _applied(solvers.INV, e.astype(a, floating_dtype(a.dtype))), -n
    result: Node | None = None
    while n:
        if n & 1:
            result = a if result is None else product(result, a)
        n >>= 1
        if n:
            a = product(a, a)
    n_rows = a.shape[-1]
    one = identity_matrix(n_rows, n_rows, a)
    return Array(broadcast_to(one, a.shape) if result is None else result)


def cond(x: Array, /, p: Any = None) -> Array:
    """Return the condition number: the norm of a matrix times that of its inverse; for None and 2
    the ratio of the largest to the least singular value, for -2 its inverse."""
    a = floating("cond", x)
    if p in (None, 2, -2):
        s = svdvals(a)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return matrix_norm(a, ord=p) * matrix_norm(inv(a), ord=p)


def tensorsolve(a: Array, b: Array, /, axes: Sequence[int] | None = None) -> Array:
    """Return the x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to the end first."""
    x, right = as_array("tensorsolve", a), as_array("tensorsolve", b)
    if axes is not None:
        last = [normalize_axis("tensorsolve", axis, x.ndim) for axis in axes]
        x = Array(permute(x.node, (*(d for d in range(x.ndim) if d not in last), *last)))
    shape = x.shape[right.ndim :]
    if x.size != right.size**2:
        raise ShapeError(
            f"tensorsolve: the extents that are solved for, {shape}, must have the product "
            f"{right.size}"
        )
    matrix = Array(reshape(x.node, (right.size, right.size)))
    found = solve(matrix, Array(reshape(right.node, (right.size,))))
    return Array(reshape(found.node, shape))


def tensorinv(a: Array, /, ind: int = 2) -> Array:
    """Return the inverse of a tensor as a linear map of its last axes to its first `ind` ones."""
    x = as_array("tensorinv", a)
    rows_, columns_ = x.shape[:ind], x.shape[ind:]
    n = size_of(rows_)
    if ind < 1 or n != size_of(columns_):
        raise ShapeError(
            f"tensorinv: the first {ind} and the other extents of {x.shape} must have equal "
            f"products"
        )
    found = inv(Array(reshape(x.node, (n, n))))
    return Array(reshape(found.node, (*columns_, *rows_)))


# diagonals and cross products ---------------------------------------------------------------------


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """Return the elements (i, i + offset) of each matrix, as vectors."""
    return Array(_diagonal(as_array("diagonal", x).node, offset))


def _diagonal(a: Node, offset: int) -> Node:
    check_matrix("diagonal", a)
    m, n = a.shape[-2:]
    first_row, first_column = max(-offset, 0), max(offset, 0)
    length = max(min(m - first_row, n - first_column), 0)
    if length == 0:
        first_row = first_column = 0
    square = rows(a, first_row, first_row + length)
    square = columns(square, first_column, first_column + length)
    return _applied(DIAGONAL, square)


def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """Return the sum of the elements (i, i + offset) of each matrix."""
    along = _diagonal(as_array("trace", x).node, offset)
    if dtype is not None:
        along = e.astype(along, as_dtype(dtype))
    total = sum_(along, (along.ndim - 1,))
    return Array(total if dtype is None else e.astype(total, as_dtype(dtype)))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return the vector product of vectors of 3 elements along `axis`."""
    a, b = given = operands("cross", x1, x2)
    shape = broadcast("cross", a.shape, b.shape)
    if not -min(a.ndim, b.ndim) <= axis < 0 and a.ndim != b.ndim:
        raise ShapeError(f"cross: axis must be {-min(a.ndim, b.ndim)} to -1, was given {axis}")
    place = normalize_axis("cross", axis, len(shape))
    a, b = broadcast_to(a, shape), broadcast_to(b, shape)
    if any(x.shape[axis] != 3 for x in given):
        raise ShapeError(
            f"cross: needs 3 elements along axis {axis}, was given "
            f"{' and '.join(str(x.shape) for x in given)}"
        )
    u = [slice_along(a, place, i, i + 1) for i in range(3)]
    v = [slice_along(b, place, i, i + 1) for i in range(3)]
    parts = [
        e.subtract(e.multiply(u[i], v[j]), e.multiply(u[j], v[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return Array(_applied(CONCAT, *parts, axis=place))
