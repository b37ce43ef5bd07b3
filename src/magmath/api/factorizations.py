"""Factorizations of matrices: Cholesky, QR, LU, eigenvalues and singular values.

`api/linalg.py` describes the matrices and their types.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

from magmath.arrays.array import Array, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import DType, real_dtype
from magmath.core.integers import require_integer
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.linalg import eigen
from magmath.ops.linalg.cholesky import CHOLESKY
from magmath.ops.linalg.lapack import check_matrix, check_type
from magmath.ops.linalg.lu import LU, lu_parts
from magmath.ops.linalg.matrix_algebra import adjoint, columns, rows
from magmath.ops.linalg.qr import QR, qr_parts
from magmath.ops.linalg.qr import qr as packed_qr
from magmath.ops.linalg.svd import SVD, SVDVALS, svd_parts
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.product.contraction import matmul as product


@final
class QRResult(NamedTuple):
    """x = Q·R."""

    Q: Array
    R: Array


@final
class LUResult(NamedTuple):
    """x = P·L·U."""

    P: Array
    L: Array
    U: Array


@final
class EighResult(NamedTuple):
    """x·V = V·diag(λ), the eigenvectors V being columns."""

    eigenvalues: Array
    eigenvectors: Array


@final
class EigResult(NamedTuple):
    """x·V = V·diag(λ), the eigenvectors V being columns."""

    eigenvalues: Array
    eigenvectors: Array


@final
class SVDResult(NamedTuple):
    """x = U·diag(S)·Vh."""

    U: Array
    S: Array
    Vh: Array


@dispatch_cached
def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """Return the lower triangular L with x = L·Lᴴ, or with `upper` U with x = Uᴴ·U.

    Reads only the corresponding triangle of x. The gradient is Hermitian, as in PyTorch and JAX: it
    is that with respect to Hermitian matrices. Raises LinAlgError if x is not positive definite.
    """
    node = floating("cholesky", x).node
    if not upper:
        return Array(apply(CHOLESKY, node, line=user_line()))
    check_matrix("cholesky", node, square=True)
    return Array(transpose(apply(CHOLESKY, transpose(node), line=user_line())))


@dispatch_cached
def qr(a: Array, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and an upper triangular R, by Householder's reflections or,
    for tall well-conditioned matrices, by Cholesky. The diagonal of R is real and not negative, so
    that the factors of a matrix of full rank are unique.

    mode: "reduced" for (…, m, k) and (…, k, n), k = min(m, n); "complete" for a square Q; "r" for R
    alone.
    """
    if mode == "r":
        return qr(a).R
    if mode not in ("reduced", "complete"):
        raise ValueError(f'qr: mode must be "reduced", "complete" or "r", was given {mode!r}')
    x = floating("qr", a).node
    packed = apply(QR, x, full=mode == "complete", line=user_line())
    q, r = qr_parts(packed, *x.shape[-2:])
    return QRResult(Array(q), Array(r))


@dispatch_cached
def lu(x: Array, /) -> LUResult:
    """Return the permutation matrix P, L (…, m, k) with ones on its diagonal, and U (…, k, n), with
    k = min(m, n)."""
    a = floating("lu", x).node
    check_matrix("lu", a)
    order, low, high = lu_parts(apply(LU, transpose(a), line=user_line()))
    return LUResult(Array(order), Array(transpose(high)), Array(transpose(low)))


def _eigen(packed: Node, dtype: DType) -> tuple[Array, Array]:
    values, vectors = eigen.eigen_parts(packed)
    flat = reshape(values, (*values.shape[:-2], values.shape[-1]))
    return Array(flat if flat.dtype is dtype else e.real(flat)), Array(vectors)


@dispatch_cached
def eigh(a: Array, UPLO: str = "L") -> EighResult:
    """Return eigenvalues, real and ascending, and orthonormal eigenvectors of a Hermitian matrix.

    Only its lower triangle is read, or its upper one where UPLO is "U". The gradient is Hermitian,
    as in `cholesky`.
    """
    x = _lower("eigh", a, UPLO)
    return EighResult(*_eigen(apply(eigen.EIGH, x, line=user_line()), real_dtype(x.dtype)))


@dispatch_cached
def eigvalsh(a: Array, UPLO: str = "L") -> Array:
    """Return the eigenvalues of a Hermitian matrix, real and ascending; see `eigh`."""
    return Array(apply(eigen.EIGVALSH, _lower("eigvalsh", a, UPLO), line=user_line()))


def _lower(name: str, x: Array, uplo: str) -> Node:
    """Return a Hermitian matrix whose lower triangle is the one that is read."""
    if uplo not in ("L", "l", "U", "u"):
        raise ValueError(f'{name}: UPLO must be "L" or "U", was given {uplo!r}')
    a = floating(name, x).node
    if uplo in ("L", "l"):
        return a
    check_matrix(name, a, square=True)
    return adjoint(a)


@dispatch_cached
def eig(a: Array) -> EigResult:
    """Return the complex eigenvalues, in no order, and unit eigenvectors of a square matrix."""
    packed = apply(eigen.EIG, floating("eig", a).node, line=user_line())
    return EigResult(*_eigen(packed, packed.dtype))


@dispatch_cached
def eigvals(a: Array) -> Array:
    """Return the complex eigenvalues of a square matrix, in no order."""
    return Array(apply(eigen.EIGVALS, floating("eigvals", a).node, line=user_line()))


@dispatch_cached
def svd(
    a: Array, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Return U, the singular values, descending, and Vᴴ; the singular values alone without
    `compute_uv`.

    With `full_matrices` U and Vᴴ are square, otherwise (…, m, k) and (…, k, n) with k = min(m, n).
    `hermitian` is not needed.
    """
    if not compute_uv:
        return svdvals(a)
    x = floating("svd", a).node
    full = full_matrices and x.ndim > 1 and x.shape[-1] != x.shape[-2]
    return _svd(apply(SVD, x, full=full, line=user_line()), x, full)


def _svd(packed: Node, a: Node, full: bool) -> SVDResult:
    u, s, vh = svd_parts(packed, *a.shape[-2:], full=full)
    values = e.real(reshape(s, (*s.shape[:-2], s.shape[-1])))
    return SVDResult(Array(u), Array(values), Array(vh))


@dispatch_cached
def svdvals(x: Array, /) -> Array:
    """Return the singular values in descending order."""
    return Array(apply(SVDVALS, floating("svdvals", x).node, line=user_line()))


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
    max_rank, k = min(a.shape[-2:]), require_integer("svd_truncated: k", k, 0)
    if k > max_rank:
        raise ShapeError(
            f"svd_truncated: k must be 0 to {max_rank} for {a.shape}, was given {k}"
            "; use mm.linalg.svd for all singular values"
        )
    width = min(k + oversampling, max_rank)
    drawn = random.normal(shape=(a.shape[-1], width), dtype=real_dtype(a.dtype)).node
    basis = product(a, e.astype(drawn, a.dtype))
    for _ in range(iterations):
        basis = product(a, _orthonormal(product(adjoint(a), _orthonormal(basis))))
    q = _orthonormal(basis)
    small = product(adjoint(q), a)
    u, s, vh = svd_parts(apply(SVD, small, full=False), *small.shape[-2:], full=False)
    u, s, vh = product(q, columns(u, 0, k)), columns(s, 0, k), rows(vh, 0, k)
    return SVDResult(Array(u), Array(e.real(reshape(s, (*s.shape[:-2], k)))), Array(vh))


def _orthonormal(x: Node) -> Node:
    return qr_parts(packed_qr(x), *x.shape[-2:])[0]
