"""Factorizations of the matrices of one worker, by LAPACK from the faster of two libraries.

NumPy computes single small matrices, except for LU: its calls take a fraction of the time of
torch's. torch computes stacks, slender matrices, and all matrices on other devices. Large matrices
on the CPU use the routines of SciPy's or torch's library, called by pointer; the tuner selects the
faster library for each routine (`kernels/linalg/lapack_candidates.py`). Fortran stores matrices by
columns, so a routine reads the transpose of a row-major matrix. All routines here except QR are
used such that this needs no transposed copy.

The results of a factorization are packed into one array, horizontally or vertically, since an
operation has one result. Data that cannot be factorized raise LinAlgError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from magmath.core.tall_skinny import is_tall
from magmath.errors import LinAlgError
from magmath.kernels.dispatch.tuner import Tuner
from magmath.kernels.fortran import invoke
from magmath.kernels.linalg.diagonal_signs import normalize_signs
from magmath.kernels.linalg.lapack_candidates import (
    CHOLESKY,
    DIVIDE,
    EIGEN,
    INVERSE,
    LU,
    NOT_A_NUMBER,
    REFLECTIONS,
    SINGULAR,
    copy_single_threaded,
)
from magmath.kernels.linalg.tall_skinny_qr import try_tall_qr

MIN_BY_POINTER = 96
"""Minimum extent for calls by pointer: smaller ones use torch, whose loop over a stack is
cheaper, or NumPy."""


def cholesky(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Compute out = L with a = L·Lᴴ from the lower triangle of a; both are (…, n, n)."""
    if _is_by_pointer(a):
        copy_single_threaded(out, a)
        for matrix in _matrices(out):
            _check_definite(CHOLESKY(tuner, matrix))
            values = matrix.numpy()
            for i in range(len(values) - 1):
                values[i, i + 1 :] = 0
        return
    if _is_numpy(a):
        with suppress(np.linalg.LinAlgError):  # whose error does not tell the minor
            numpy_factor = np.linalg.cholesky(a.numpy())
            if not np.isnan(numpy_factor).any():  # which is no error in every LAPACK
                out.numpy()[...] = numpy_factor
                return
    factor, info = torch.linalg.cholesky_ex(a)
    _check_definite(int(info.max()) if info.numel() else 0)
    out.copy_(factor)


def lu(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Factorize a[:, order] = L·U, with partial pivoting of columns: out is `order` above [L\\U].

    a: (…, m, n); out: (…, m + 1, n). L is lower triangular, (m, k); U is upper triangular with a
    diagonal of ones, (k, n). A singular matrix gives a zero on the diagonal of L.
    """
    order, factors = out[..., 0, :], out[..., 1:, :]
    n = a.shape[-1]
    index = torch.arange(n, device=a.device).to(a.dtype)
    if not _is_by_pointer(a):
        packed, pivots = torch.linalg.lu_factor_ex(a.mT)[:2]
        factors.copy_(packed.mT)
        exchanges = torch.lu_unpack(packed, pivots, unpack_data=False)[0]
        order.copy_((index[:, None] * exchanges).sum(-2))
        return
    copy_single_threaded(factors, a)
    copy_single_threaded(order, index.expand(order.shape))
    for matrix, row in zip(_matrices(factors), order.reshape(-1, n), strict=True):
        pivots, _ = LU(tuner, matrix)
        invoke("laswp", matrix, 1, row, n, 1, len(pivots), pivots, 1)


def lu_solve(out: Tensor, factors: Tensor, b: Tensor, *, transpose: bool, tuner: Tuner) -> None:
    """Compute out = a⁻¹·b, or a⁻ᵀ·b, from `factors`, the result of `lu`: (…, n + 1, n); b and out
    are (…, n, k).

    Raises LinAlgError for a singular matrix.
    """
    order, triangles = factors[..., 0, :].real.long(), factors[..., 1:, :]
    check_diagonal("solve", triangles)
    rows = order[..., None].expand(b.shape)
    x = torch.gather(b, -2, rows) if transpose else b.clone()
    for system in lu_systems(transpose):
        x = _solved(system, triangles, x, tuner)
    if transpose:
        out.copy_(x)
    else:
        out.scatter_(-2, rows, x)


def inv(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Compute out = a⁻¹. Raises LinAlgError for a singular matrix."""
    if not _is_by_pointer(a):
        inverse, info = torch.linalg.inv_ex(a)
        _check_pivots("inv", bool(info.any()))
        out.copy_(inverse)
        return
    copy_single_threaded(out, a)
    for matrix in _matrices(out):
        _check_pivots("inv", bool(INVERSE(tuner, matrix)))


def parity(out: Tensor, order: Tensor) -> None:
    """Store 1 for even and -1 for odd permutations; order is (…, n), out is (…)."""
    from magmath.kernels.linalg.permutations import parities

    flat = order.reshape(out.numel(), order.shape[-1]).cpu().long().numpy()
    out.copy_(torch.from_numpy(parities(flat)).reshape(out.shape))


def solve_triangular(
    out: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    lower: bool,
    transpose: bool,
    unit: bool,
    tuner: Tuner,
) -> None:
    """Compute out = op(a)⁻¹·b from one triangle of a, (…, n, n); b and out are (…, n, k).

    Raises LinAlgError if the diagonal of a contains a zero and `unit` is False.
    """
    if not unit:
        check_diagonal("solve_triangular", a)
    out.copy_(b)
    x = _solved(Triangle(lower, transpose, unit), a, out, tuner)
    if x is not out:
        out.copy_(x)


@final
class Triangle(NamedTuple):
    """The form of a system op(a)·x = b with one triangle of a; `unit`: the diagonal counts as
    ones."""

    lower: bool
    transpose: bool
    unit: bool

    @property
    def flags(self) -> str:
        """The character arguments of trsm for the transposed system, xᵀ·op(a)ᵀ = bᵀ."""
        return "R" + "LU"[self.lower] + "NT"[self.transpose] + "NU"[self.unit]

    def by_torch(self, a: Tensor, b: Tensor) -> Tensor:
        """Return x, computed by torch."""
        matrix, upper = (a.mT, self.lower) if self.transpose else (a, not self.lower)
        solve: Callable[..., Tensor] = torch.linalg.solve_triangular
        return solve(matrix, b, upper=upper, unitriangular=self.unit)


def lu_systems(transpose: bool) -> tuple[Triangle, Triangle]:
    """Return the triangular systems of L·U·x = b, or of its transpose, in the order of solution."""
    lower = Triangle(lower=True, transpose=transpose, unit=False)
    upper = Triangle(lower=False, transpose=transpose, unit=True)
    return (upper, lower) if transpose else (lower, upper)


def _solved(system: Triangle, a: Tensor, b: Tensor, tuner: Tuner) -> Tensor:
    """Return op(a)⁻¹·b; the solution overwrites b if both are dense, large and on the CPU."""
    dense = a.stride()[-2:] == (a.shape[-1], 1) and b.is_contiguous()
    if not (_is_by_pointer(a) and dense and b.numel()):
        return system.by_torch(a, b)
    for matrix, columns in zip(_matrices(a), _matrices(b), strict=True):
        DIVIDE(tuner, columns, matrix, flags=system.flags)
    return b


def qr(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Factorize a = Q·R with a non-negative diagonal of R: out is Q (…, m, j) above R (…, j, n).

    out is (…, m + j, max(j, n)); its unused elements are zero. j is min(m, n), or m for all of Q.
    """
    m, n = a.shape[-2:]
    j = out.shape[-2] - m
    if max(j, n) > min(j, n):
        out.zero_()
    q, r = out[..., :m, :j], out[..., m:, :n]
    if a.ndim == 2 and is_tall(m, n) and j == n and try_tall_qr(q, r, a):
        return
    if _is_by_pointer(a):
        for matrix, own_q, own_r in zip(_matrices(a), _matrices(q), _matrices(r), strict=True):
            _reflect(own_q, own_r, matrix, tuner)
        return
    mode: Any = "complete" if j > min(m, n) else "reduced"
    if _is_numpy(a):
        numpy_q, numpy_r = np.linalg.qr(a.numpy(), mode=mode)
        normalize_signs(numpy_q, numpy_r)
        q.numpy()[...], r.numpy()[...] = numpy_q, numpy_r
        return
    torch_q, torch_r = torch.linalg.qr(a, mode=mode)
    normalize_signs(torch_q, torch_r)
    q.copy_(torch_q)
    r.copy_(torch_r)


def _reflect(q: Tensor, r: Tensor, a: Tensor, tuner: Tuner) -> None:
    """Factorize a = q·r for one matrix, with LAPACK."""
    (m, n), k = a.shape, min(a.shape)
    columns = a.new_empty(max(q.shape[1], n), m)
    triangle = REFLECTIONS(tuner, a, columns)
    normalize_signs(columns[:k].mT, triangle)
    q.copy_(columns[: q.shape[1]].mT)
    r[:k] = triangle
    r[k:] = 0


def eigh(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Factorize a = V·diag(λ)·Vᴴ, λ ascending, from a's lower triangle: out is the row λ above V.

    a: (…, n, n); out: (…, n + 1, n).
    """
    _check_lower_finite("eigh", a)
    values, vectors = out[..., 0, :], out[..., 1:, :]
    if _is_numpy(a):
        with _converging("eigh"):
            values.numpy()[...], vectors.numpy()[...] = np.linalg.eigh(a.numpy())
        return
    if not _is_by_pointer(a):
        with _converging("eigh"):
            torch_values, torch_vectors = torch.linalg.eigh(a)
        values.copy_(torch_values)
        vectors.copy_(torch_vectors)
        return
    for matrix, λ, v in zip(
        _matrices(a), values.reshape(-1, a.shape[-1]), _matrices(vectors), strict=True
    ):
        work = _copied(matrix)
        λ.copy_(_eigen(work, "V", tuner))
        v.copy_(work.mH)


def eigvalsh(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Compute the eigenvalues of Hermitian matrices (…, n, n), ascending: out is (…, n)."""
    _check_lower_finite("eigvalsh", a)
    if _is_numpy(a):
        with _converging("eigvalsh"):
            out.numpy()[...] = np.linalg.eigvalsh(a.numpy())
        return
    if not _is_by_pointer(a):
        with _converging("eigvalsh"):
            out.copy_(torch.linalg.eigvalsh(a))
        return
    for matrix, λ in zip(_matrices(a), out.reshape(-1, a.shape[-1]), strict=True):
        λ.copy_(_eigen(_copied(matrix), "N", tuner))


def svd(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Factorize a = U·diag(s)·Vᴴ, s descending: out is U (…, m, j) above the row s above (Vᴴ)ᵀ
    (…, n, i).

    out is (…, m + 1 + n, max(i, j)); its unused elements are zero. i and j are min(m, n), or n and
    m for all of V and U.
    """
    _check_finite("svd", a)
    m, n = a.shape[-2:]
    k, width = min(m, n), out.shape[-1]
    full = width > k
    if width > k or not k:
        out.zero_()
    left, values, right = out[..., :m, :], out[..., m, :k], out[..., m + 1 :, :]
    if _is_numpy(a):
        with _converging("svd"):
            numpy_u, numpy_s, numpy_vh = np.linalg.svd(a.numpy(), full_matrices=full)
        left.numpy()[..., : numpy_u.shape[-1]] = numpy_u
        values.numpy()[...] = numpy_s
        right.numpy()[..., : numpy_vh.shape[-2]] = np.swapaxes(numpy_vh, -1, -2)
        return
    if not _is_by_pointer(a):
        with _converging("svd"):
            u, s, vh = torch.linalg.svd(a, full_matrices=full)
        left[..., : u.shape[-1]] = u
        values.copy_(s)
        right[..., : vh.shape[-2]] = vh.mT
        return
    stacks = _matrices(a), _matrices(left), values.reshape(-1, k), _matrices(right)
    for matrix, own_left, own_values, own_right in zip(*stacks, strict=True):
        s, u, v = _singular(matrix, "A" if full else "S", tuner)
        own_left[:, : u.shape[1]] = u
        own_values.copy_(s)
        own_right[:, : v.shape[1]] = v


def svdvals(out: Tensor, a: Tensor, *, tuner: Tuner) -> None:
    """Compute the singular values of matrices (…, m, n), descending: out is (…, min(m, n))."""
    _check_finite("svdvals", a)
    if _is_numpy(a):
        with _converging("svdvals"):
            out.numpy()[...] = np.linalg.svd(a.numpy(), compute_uv=False)
        return
    if not _is_by_pointer(a):
        with _converging("svdvals"):
            out.copy_(torch.linalg.svdvals(a))
        return
    for matrix, s in zip(_matrices(a), out.reshape(-1, out.shape[-1]), strict=True):
        s.copy_(_singular(matrix, "N", tuner)[0])


def eig(out: Tensor, a: Tensor) -> None:
    """Compute a·V = V·diag(λ), both complex, with columns of V of norm 1: out is the row λ above
    V."""
    _check_finite("eig", a)
    if _is_numpy(a):
        with _converging("eig"):
            out.numpy()[..., 0, :], out.numpy()[..., 1:, :] = np.linalg.eig(a.numpy())
        return
    with _converging("eig"):
        values, vectors = torch.linalg.eig(a)
    out[..., 0, :] = values
    out[..., 1:, :] = vectors


def eigvals(out: Tensor, a: Tensor) -> None:
    """Compute the complex eigenvalues of general square matrices (…, n, n): out is (…, n)."""
    _check_finite("eigvals", a)  # LAPACK may crash otherwise
    if _is_numpy(a):
        with _converging("eigvals"):
            out.numpy()[...] = np.linalg.eigvals(a.numpy())
        return
    with _converging("eigvals"):
        out.copy_(torch.linalg.eigvals(a))


# LAPACK by pointer --------------------------------------------------------------------------------


def _is_by_pointer(a: Tensor) -> bool:
    """Return True for matrices that are factorized by LAPACK routines called by pointer."""
    return a.device.type == "cpu" and min(a.shape[-2:]) >= MIN_BY_POINTER and a.numel() > 0


def _is_numpy(a: Tensor) -> bool:
    """Return True for a single small matrix, which NumPy factorizes.

    The number of matrices is no criterion: a stack may be split over workers, with the same bits.
    """
    return a.device.type == "cpu" and a.ndim == 2 and max(a.shape) < MIN_BY_POINTER


def _copied(source: Tensor) -> Tensor:
    """Return a dense copy, made by this thread only (see `copy_single_threaded`)."""
    return torch.from_numpy(np.array(source.numpy(), order="C"))


def _matrices(stack: Tensor) -> Tensor:
    """Return a stack with its batch dimensions flattened, as a view of contiguous memory."""
    return stack.reshape(-1, *stack.shape[-2:])


def _eigen(matrix: Tensor, job: str, tuner: Tuner) -> Tensor:
    """Return the eigenvalues of a Hermitian matrix (n, n); its conjugate eigenvectors become the
    rows of `matrix`.

    job: "V", or "N" for eigenvalues only, for which the final content of `matrix` is undefined.
    """
    values: Tensor
    values, info = EIGEN(tuner, matrix, job=job)
    _check_converged("eigh", info)
    return values


def _singular(matrix: Tensor, job: str, tuner: Tuner) -> tuple[Tensor, Tensor, Tensor]:
    """Return the singular values of a matrix (m, n), U (m, …) and (Vᴴ)ᵀ (n, …).

    job: "S" for the first min(m, n) vectors, "A" for all, "N" for values only.
    """
    s, u, v, info = SINGULAR(tuner, _copied(matrix), job=job)
    _check_converged("svd", info)
    return s, u, v


# errors for invalid data --------------------------------------------------------------------------


def _check_definite(info: int) -> None:
    if info == NOT_A_NUMBER:
        raise not_finite_error("cholesky")
    if info:
        raise not_definite_error(info)


def not_definite_error(order: int) -> LinAlgError:
    """Return the error for a matrix whose leading minor of this order is not positive."""
    return LinAlgError(
        f"cholesky: the matrix is not positive definite: its leading minor of order {order} "
        f"is not positive"
    )


def _check_pivots(name: str, singular: bool) -> None:
    if singular:
        raise singular_error(name)


def singular_error(name: str) -> LinAlgError:
    """Return the error for a system without a unique solution."""
    return LinAlgError(
        f"{name}: the matrix is singular: a pivot is exactly zero"
        "; solve in the sense of least squares with mm.linalg.lstsq or pinv"
    )


def check_diagonal(name: str, triangles: Tensor) -> None:
    """Raise LinAlgError if a diagonal contains a zero."""
    _check_pivots(name, bool((triangles.diagonal(dim1=-2, dim2=-1) == 0).any()))


def _check_converged(routine: str, info: int) -> None:
    if info:
        raise LinAlgError(f"{routine} did not converge (info {info}); has the matrix NaN or inf?")


def _check_finite(name: str, values: Tensor) -> None:
    """Raise LinAlgError for NaN and infinity, which some routines ignore and with which others do
    not terminate."""
    if not _are_finite(values):
        raise not_finite_error(name)


def _check_lower_finite(name: str, a: Tensor) -> None:
    """Raise LinAlgError for NaN and infinity in the lower triangles of matrices."""
    if not _are_finite(a):
        _check_finite(name, a.tril())


def _are_finite(values: Tensor) -> bool:
    on_cpu = values.device.type == "cpu"  # by this thread only, as copies
    finite = np.isfinite(values.numpy()) if on_cpu else torch.isfinite(values)
    return bool(finite.all())


def not_finite_error(name: str) -> LinAlgError:
    """Return the error for a matrix with NaN or infinity."""
    return LinAlgError(f"{name}: the matrix has NaN or inf")


@contextmanager
def _converging(name: str) -> Iterator[None]:
    """Convert the errors of torch and NumPy to magmath's."""
    try:
        yield
    except (torch.linalg.LinAlgError, np.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
        raise LinAlgError(f"{name} did not converge; has the matrix NaN or inf?") from error
