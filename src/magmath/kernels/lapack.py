"""Factorisations of the matrices that one worker holds: LAPACK, from the faster of two libraries.

torch does stacks of small matrices, devices, QR and triangular solves. For large matrices on the
CPU, SciPy's OpenBLAS is called by pointer: its Cholesky, LU, eigenvalues and SVD are up to twice as
fast as torch's (MKL) on processors that are not Intel's. Fortran stores a matrix by columns, so it
sees the transpose of ours: every routine here is one that takes this as it is, and nothing is
transposed in memory.

A factorisation's results are packed into one array, side by side or one over the other, since an
operation has one result. Data that cannot be factorised raise LinAlgError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from magmath.core.panels import is_tall
from magmath.errors import LinAlgError
from magmath.kernels.fortran import call, invoke
from magmath.kernels.tall import tall_qr

DIRECT = 96
"""Matrices with smaller extents than this go to torch, whose loop over a stack costs less."""


def cholesky(out: Tensor, a: Tensor) -> None:
    """out = L with a = L·Lᴴ, reading the lower triangle of a; both (…, n, n)."""
    if _is_direct(a):
        _put(out, a)
        n = a.shape[-1]
        for matrix in _each(out):
            _check_definite(call("potrf", matrix, b"U", n, matrix, n))
            _check_numbers("cholesky", matrix.diagonal())
            values = matrix.numpy()
            for i in range(n - 1):
                values[i, i + 1 :] = 0
        return
    factor, info = torch.linalg.cholesky_ex(a)
    _check_definite(int(info.max()) if info.numel() else 0)
    out.copy_(factor)


def lu(out: Tensor, a: Tensor) -> None:
    """a[:, order] = L·U, by columns with partial pivoting: out is `order` over [L\\U].

    a: (…, m, n); out: (…, m + 1, n). L is lower triangular, (m, k); U is upper triangular with a
    diagonal of ones, (k, n). A singular matrix gives a zero on the diagonal of L.
    """
    order, factors = out[..., 0, :], out[..., 1:, :]
    n = a.shape[-1]
    index = torch.arange(n, device=a.device).to(a.dtype)
    if not _is_direct(a):
        packed, pivots = torch.linalg.lu_factor_ex(a.mT)[:2]
        factors.copy_(packed.mT)
        exchanges = torch.lu_unpack(packed, pivots, unpack_data=False)[0]
        order.copy_((index[:, None] * exchanges).sum(-2))
        return
    _put(factors, a)
    _put(order, index.expand(order.shape))
    for matrix, row in zip(_each(factors), order.reshape(-1, n), strict=True):
        m = matrix.shape[0]
        pivots = torch.empty(min(m, n), dtype=torch.int32)
        call("getrf", matrix, n, m, matrix, n, pivots)
        invoke("laswp", matrix, 1, row, n, 1, len(pivots), pivots, 1)


def lu_solve(out: Tensor, factors: Tensor, b: Tensor, *, transpose: bool) -> None:
    """out = a⁻¹·b, or a⁻ᵀ·b, from what `lu` made of a; (…, n + 1, n) and (…, n, k).

    Raises LinAlgError for a singular matrix.
    """
    order, triangles = factors[..., 0, :].real.long(), factors[..., 1:, :]
    check_diagonal("solve", triangles)
    rows = order[..., None].expand(b.shape)
    if transpose:
        half = _solved(triangles, torch.gather(b, -2, rows), lower=False, transpose=True, unit=True)
        out.copy_(_solved(triangles, half, lower=True, transpose=True, unit=False))
    else:
        half = _solved(triangles, b.clone(), lower=True, transpose=False, unit=False)
        out.scatter_(-2, rows, _solved(triangles, half, lower=False, transpose=False, unit=True))


def inv(out: Tensor, a: Tensor) -> None:
    """out = a⁻¹; LinAlgError for a singular matrix."""
    if not _is_direct(a):
        inverse, info = torch.linalg.inv_ex(a)
        _check_pivots("inv", bool(info.any()))
        out.copy_(inverse)
        return
    _put(out, a)
    n = a.shape[-1]
    pivots = torch.empty(n, dtype=torch.int32)
    work = torch.empty(64 * n, dtype=a.dtype)  # LAPACK's own block size
    for matrix in _each(out):
        singular = call("getrf", matrix, n, n, matrix, n, pivots)
        _check_pivots("inv", bool(singular))
        call("getri", matrix, n, matrix, n, pivots, work, work.numel())


def parity(out: Tensor, order: Tensor) -> None:
    """1 for even and -1 for odd permutations (…, n): (…)."""
    from magmath.kernels.permutations import parities

    flat = order.reshape(out.numel(), order.shape[-1]).cpu().long().numpy()
    out.copy_(torch.from_numpy(parities(flat)).reshape(out.shape))


def solve_triangular(
    out: Tensor, a: Tensor, b: Tensor, *, lower: bool, transpose: bool, unit: bool
) -> None:
    """out = op(a)⁻¹·b, reading one triangle of a; (…, n, n) and (…, n, k).

    Raises LinAlgError where the diagonal of a has a zero.
    """
    if not unit:
        check_diagonal("solve_triangular", a)
    out.copy_(b)
    solved = _solved(a, out, lower=lower, transpose=transpose, unit=unit)
    if solved is not out:
        out.copy_(solved)


def _solved(a: Tensor, b: Tensor, *, lower: bool, transpose: bool, unit: bool) -> Tensor:
    """op(a)⁻¹·b; b itself with the solution in it where both lie densely in this host's memory."""
    dense = a.stride()[-2:] == (a.shape[-1], 1) and b.is_contiguous()
    if not (_is_direct(a) and dense and b.numel()):
        matrix, upper = (a.mT, lower) if transpose else (a, not lower)
        solve: Callable[..., Tensor] = torch.linalg.solve_triangular
        return solve(matrix, b, upper=upper, unitriangular=unit)
    n, k = b.shape[-2:]
    one = torch.ones(1, dtype=b.dtype)
    # the transposed system, in which the solution stands on the left
    letters = b"R", b"U" if lower else b"L", b"T" if transpose else b"N", b"U" if unit else b"N"
    for matrix, columns in zip(_each(a), _each(b), strict=True):
        invoke("trsm", matrix, *letters, k, n, one, matrix, n, columns, k)
    return b


def qr(out: Tensor, a: Tensor) -> None:
    """a = Q·R with a diagonal of R that is not negative: out is Q (…, m, j) over R (…, j, n).

    out is (…, m + j, max(j, n)), its unused elements are zero: j is min(m, n), or m for all of Q.
    """
    m, n = a.shape[-2:]
    j = out.shape[-2] - m
    if max(j, n) > min(j, n):
        out.zero_()
    q, r = out[..., :m, :j], out[..., m:, :n]
    if a.ndim == 2 and is_tall(m, n) and j == n and tall_qr(q, r, a):
        return
    found_q, found_r = torch.linalg.qr(a, mode="complete" if j > min(m, n) else "reduced")
    sign = torch.sgn(found_r.diagonal(dim1=-2, dim2=-1))
    sign = torch.where(sign == 0, 1, sign)
    k = sign.shape[-1]
    q.copy_(found_q)
    r.copy_(found_r)
    q[..., :k] *= sign[..., None, :]
    r[..., :k, :] *= sign.conj()[..., :, None]


def eigh(out: Tensor, a: Tensor) -> None:
    """a = V·diag(λ)·Vᴴ, λ ascending: out is the row λ over V, reading a's lower triangle.

    a: (…, n, n); out: (…, n + 1, n).
    """
    values, vectors = out[..., 0, :], out[..., 1:, :]
    if not _is_direct(a):
        with _converging("eigh"):
            found = torch.linalg.eigh(a)
        values.copy_(found[0])
        vectors.copy_(found[1])
        return
    for matrix, λ, v in zip(_each(a), values.reshape(-1, a.shape[-1]), _each(vectors), strict=True):
        work = _copied(matrix)
        λ.copy_(_eigen(work, b"V"))
        v.copy_(work.mH)


def eigvalsh(out: Tensor, a: Tensor) -> None:
    """The eigenvalues of Hermitian matrices (…, n, n), ascending: (…, n)."""
    if not _is_direct(a):
        with _converging("eigvalsh"):
            out.copy_(torch.linalg.eigvalsh(a))
        return
    for matrix, λ in zip(_each(a), out.reshape(-1, a.shape[-1]), strict=True):
        λ.copy_(_eigen(_copied(matrix), b"N"))


def svd(out: Tensor, a: Tensor) -> None:
    """a = U·diag(s)·Vᴴ, s descending: out is U (…, m, j), the row s, and (Vᴴ)ᵀ (…, n, i).

    out is (…, m + 1 + n, max(i, j)), its unused elements are zero: i and j are min(m, n), or n and
    m for all of V and U.
    """
    m, n = a.shape[-2:]
    k, width = min(m, n), out.shape[-1]
    full = width > k
    if width > k or not k:
        out.zero_()
    tall, row, flat = out[..., :m, :], out[..., m, :k], out[..., m + 1 :, :]
    if not _is_direct(a):
        with _converging("svd"):
            u, s, vh = torch.linalg.svd(a, full_matrices=full)
        tall[..., : u.shape[-1]] = u
        row.copy_(s)
        flat[..., : vh.shape[-2]] = vh.mT
        return
    packed = zip(_each(a), _each(tall), row.reshape(-1, k), _each(flat), strict=True)
    for matrix, above, middle, below in packed:
        s, u, v = _singular(matrix, b"A" if full else b"S")
        above[:, : u.shape[1]] = u
        middle.copy_(s)
        below[:, : v.shape[1]] = v


def svdvals(out: Tensor, a: Tensor) -> None:
    """The singular values of matrices (…, m, n), descending: (…, min(m, n))."""
    if not _is_direct(a):
        with _converging("svdvals"):
            out.copy_(torch.linalg.svdvals(a))
        return
    for matrix, s in zip(_each(a), out.reshape(-1, out.shape[-1]), strict=True):
        s.copy_(_singular(matrix, b"N")[0])


def eig(out: Tensor, a: Tensor) -> None:
    """a·V = V·diag(λ), both complex, columns of V of length 1: out is the row λ over V."""
    with _converging("eig"):
        values, vectors = torch.linalg.eig(a)
    out[..., 0, :] = values
    out[..., 1:, :] = vectors


def eigvals(out: Tensor, a: Tensor) -> None:
    """The eigenvalues, complex, of any square matrices (…, n, n): (…, n)."""
    with _converging("eigvals"):
        out.copy_(torch.linalg.eigvals(a))


# LAPACK by pointer --------------------------------------------------------------------------------


def _is_direct(a: Tensor) -> bool:
    """True for matrices that go to SciPy's LAPACK."""
    return a.device.type == "cpu" and min(a.shape[-2:]) >= DIRECT and a.numel() > 0


def _put(target: Tensor, source: Tensor) -> None:
    """Copy by this thread alone: torch's threads would spin on for a while, and BLAS's own wait for
    their processors, which doubles the time of a Cholesky factorisation of 1000 columns."""
    target.numpy()[...] = source.numpy()


def _copied(source: Tensor) -> Tensor:
    """A dense copy, made by this thread alone."""
    return torch.from_numpy(np.array(source.numpy(), order="C"))


def _each(stack: Tensor) -> Tensor:
    """The matrices of a stack, one after the other; views of contiguous memory."""
    return stack.reshape(-1, *stack.shape[-2:])


def _eigen(matrix: Tensor, job: bytes) -> Tensor:
    """The eigenvalues of a Hermitian matrix (n, n); conjugate eigenvectors as the rows of `matrix`.

    job: "V", or "N" for eigenvalues alone, which leaves nothing of use in `matrix`.
    """
    n, kind = matrix.shape[0], matrix.dtype.to_real()
    values = torch.empty(n, dtype=kind)
    integers = 3 + 5 * n
    size = 1 + 6 * n + 2 * n * n
    reals: list[Tensor | int] = [torch.empty(size, dtype=kind), size]
    routine, own = ("heevd", reals) if matrix.is_complex() else ("syevd", [])
    work = torch.empty(size, dtype=matrix.dtype)
    indices = torch.empty(integers, dtype=torch.int32)
    info = call(
        routine, matrix, job, b"U", n, matrix, n, values, work, size, *own, indices, integers
    )
    _check_converged(routine, info)
    _check_numbers("eigh", values)
    return values


def _singular(matrix: Tensor, job: bytes) -> tuple[Tensor, Tensor, Tensor]:
    """The singular values of a matrix (m, n), U (m, …) and (Vᴴ)ᵀ (n, …).

    job: "S" for the first min(m, n) vectors, "A" for all, "N" for values alone.
    """
    m, n = matrix.shape
    least, most = min(m, n), max(m, n)
    i, j = (n, m) if job == b"A" else (least, least)
    values = torch.empty(least, dtype=matrix.dtype.to_real())
    vh, u = torch.empty(i, n, dtype=matrix.dtype), torch.empty(m, j, dtype=matrix.dtype)
    reals = least * max(5 * least + 7, 2 * most + 2 * least + 1)
    own = [torch.empty(reals, dtype=values.dtype)] if matrix.is_complex() else []
    indices = torch.empty(8 * least, dtype=torch.int32)
    copy = _copied(matrix)

    def run(work: Tensor, size: int) -> int:
        return call(
            "gesdd", matrix, job, n, m, copy, n, values, vh, n, u, j, work, size, *own, indices
        )

    wanted = torch.empty(1, dtype=matrix.dtype)
    run(wanted, -1)
    size = int(wanted.real.item())
    _check_converged("gesdd", run(torch.empty(size, dtype=matrix.dtype), size))
    return values, u, vh.mT


# What data can do wrong ---------------------------------------------------------------------------


def _check_definite(info: int) -> None:
    if info:
        raise not_definite(info)


def not_definite(order: int) -> LinAlgError:
    """The error of a matrix with a leading minor that is not positive."""
    return LinAlgError(
        f"cholesky: the matrix is not positive definite: its leading minor of order {order} "
        f"is not positive"
    )


def _check_pivots(name: str, singular: bool) -> None:
    if singular:
        raise LinAlgError(f"{name}: the matrix is singular: a pivot is exactly zero")


def check_diagonal(name: str, triangles: Tensor) -> None:
    """LinAlgError if a diagonal has a zero."""
    _check_pivots(name, bool((triangles.diagonal(dim1=-2, dim2=-1) == 0).any()))


def _check_converged(routine: str, info: int) -> None:
    if info:
        raise LinAlgError(f"{routine} did not converge (info {info}); has the matrix NaN or inf?")


def _check_numbers(name: str, result: Tensor) -> None:
    """LinAlgError for NaN, which some routines pass on in silence."""
    if bool(torch.isnan(result).any()):
        raise LinAlgError(f"{name}: the matrix has NaN or inf")


@contextmanager
def _converging(name: str) -> Iterator[None]:
    """torch's error as ours."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise LinAlgError(f"{name} did not converge; has the matrix NaN or inf?") from error
