"""The LAPACK and BLAS routines of factorizations, each computed by the fastest library.

The routines operate on row-major tensors in host memory. The tuner measures the libraries as
candidates, once per machine, type and class of sizes. All libraries need the same memory and report
the same errors for invalid data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from magmath.core.shapes import Shape
from magmath.core.type_aliases import BoundCall
from magmath.kernels import fortran
from magmath.kernels.dispatch.candidate import LAPACK, SINGLE_AND_DOUBLE
from magmath.kernels.dispatch.tuner import Tuner, wake_thread_pool
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.fortran import call, call_with_work, check_extent, invoke
from magmath.kernels.gemm.gemm_problem import blas_order

LIBRARIES = ("scipy", "torch")
"""The libraries with LAPACK's interface, in order of preference: SciPy's, and torch's MKL."""
NOT_A_NUMBER = -1
"""The result of `CHOLESKY` for a matrix with NaN or infinity."""
MIN_FLOPS = 2e5
"""Minimum size of a measured routine: smaller ones take as long as the call itself."""
MAX_FLOPS = 3e9
"""Maximum size of a measurement: larger problems are measured on smaller matrices, for which the
ranking of the libraries is the same."""
BUDGET_SECONDS = 0.5
"""The measuring time per class of sizes; some routines take a tenth of it."""

Shapes = Sequence[Shape]
OperandForms = tuple[tuple[Shape, bool], ...]
"""Shapes of matrices, and whether they are stored transposed."""


@final
@dataclass(frozen=True)
class Routine:
    """A routine that several libraries can compute.

    compute  (*operands, library=…, **options); the operands are tensors, which it may overwrite
    needs    the Fortran routines that a library must have
    flops    the number of operations for operands of the given shapes
    dtypes   the types that it takes
    """

    name: str
    compute: Callable[..., Any]
    needs: tuple[str, ...]
    flops: Callable[[Shapes], float]
    dtypes: frozenset[torch.dtype] = LAPACK

    def __call__(self, tuner: Tuner, *operands: Tensor, **options: Any) -> Any:
        """Compute with the library that the tuner chooses."""
        forms = tuple([(tuple(x.shape), _is_transposed(x)) for x in operands])
        library = _chosen(
            self, tuner, forms, operands[0].dtype, tuple(options.items()), torch.get_num_threads()
        )
        return self.compute(*operands, library=library, **options)

    def libraries(self, dtype: torch.dtype) -> list[str]:
        """Return the libraries that can compute it, in order of preference."""
        if dtype not in self.dtypes:
            return []
        return [name for name in LIBRARIES if fortran.has_routines(name, dtype, *self.needs)]

    def size_class(self, forms: OperandForms) -> OperandForms:
        """Return the class of the operands' sizes.

        Extents are rounded up to slightly less than a power of two, since powers of two cause cache
        conflicts, and halved until the routine needs at most `MAX_FLOPS`.
        """
        shapes = [tuple([_rounded(n) for n in shape]) for shape, _ in forms]
        while self.flops(shapes) > MAX_FLOPS:
            shapes = [tuple([max(1, n // 2) for n in shape]) for shape in shapes]
        pairs = zip(shapes, forms, strict=True)
        return tuple([(shape, transposed) for shape, (_, transposed) in pairs])

    def trial(self, forms: OperandForms, dtype: torch.dtype, **options: Any) -> BoundCall:
        """Return a call on new matrices of these forms, for measurements."""
        originals = [_dummy_matrix(shape, transposed, dtype) for shape, transposed in forms]
        operands, wake = [x.clone() for x in originals], wake_thread_pool()

        def run() -> None:
            for operand, original in zip(operands, originals, strict=True):
                copy_single_threaded(operand, original)
            wake()
            self.compute(*operands, **options)

        return run


@lru_cache(maxsize=4096)
def _chosen(
    routine: Routine,
    tuner: Tuner,
    forms: OperandForms,
    dtype: torch.dtype,
    options: tuple[tuple[str, Any], ...],
    threads: int,
) -> str:
    """Return the library that computes a routine on operands of these forms with `threads` threads.

    Memoised, since a blocked factorization calls it for every panel.
    """
    libraries, forms = routine.libraries(dtype), routine.size_class(forms)
    shapes = [shape for shape, _ in forms]
    if routine.flops(shapes) < MIN_FLOPS:
        return libraries[0]
    words = ["×".join(map(str, shape)) for shape in shapes]
    words += [f"{key} {value}" for key, value in options]
    words.append(dtype_name(dtype))
    trials = {
        library: partial(routine.trial, forms, dtype, library=library, **dict(options))
        for library in libraries
    }
    key = f"{routine.name} {', '.join(words)}"
    return tuner.choose(key, trials, budget=BUDGET_SECONDS)


def _rounded(extent: int) -> int:
    power = 1 << max(extent - 1, 0).bit_length()
    return power - power // 32


def _is_transposed(x: Tensor) -> bool:
    """Return True for a matrix that is stored transposed."""
    down, along = x.stride()
    return along > 1 and down == 1


def _dummy_matrix(shape: Shape, transposed: bool, dtype: torch.dtype) -> Tensor:
    """Return a random matrix with a dominant diagonal: not singular, and positive definite if it is
    read as Hermitian."""
    m, n = shape[::-1] if transposed else shape
    matrix = torch.randn(m, n, dtype=dtype, generator=torch.Generator().manual_seed(0))
    matrix.diagonal().add_(2 * max(m, n))
    return matrix.mT if transposed else matrix


def copy_single_threaded(target: Tensor, source: Tensor) -> None:
    """Copy `source` to `target` by this thread only.

    Torch's threads would spin for a while after a copy, and those of BLAS wait for their
    processors, which doubles the time of a Cholesky factorization of 1000 columns.
    """
    target.numpy()[...] = source.numpy()


# on row-major tensors -----------------------------------------------------------------------------


def _cholesky(matrix: Tensor, *, library: str) -> int:
    info = call("potrf", matrix, b"U", len(matrix), matrix, matrix.stride(0), library=library)
    if bool(torch.isnan(matrix.diagonal()[: info or None]).any()):
        return NOT_A_NUMBER
    return info


def _lu(matrix: Tensor, *, library: str) -> tuple[Tensor, int]:
    m, n = matrix.shape
    pivots = torch.zeros(min(m, n), dtype=torch.int32)
    info = call("getrf", matrix, n, m, matrix, matrix.stride(0), pivots, library=library)
    return pivots, info


def _inverse(matrix: Tensor, *, library: str) -> int:
    n, step = len(matrix), matrix.stride(0)
    pivots, info = _lu(matrix, library=library)
    if info:
        return info
    if fortran.has_routines(library, matrix.dtype, "getri"):
        return call_with_work("getri", matrix, n, matrix, step, pivots, library=library)
    factors = torch.from_numpy(np.array(matrix.numpy(), order="C"))
    matrix.numpy()[...] = 0
    matrix.diagonal().fill_(1)
    return call("getrs", matrix, b"N", n, n, factors, n, pivots, matrix, step, library=library)


def _divide(rows: Tensor, matrix: Tensor, *, flags: str, library: str) -> None:
    m, n = rows.shape
    if rows.numel():
        one = torch.ones(1, dtype=rows.dtype)
        strides = max(matrix.stride(0), 1), max(rows.stride(0), 1)
        four = [flag.encode() for flag in flags]
        invoke(
            "trsm", rows, *four, n, m, one, matrix, strides[0], rows, strides[1], library=library
        )


def _reflections(matrix: Tensor, columns: Tensor, *, library: str) -> Tensor:
    m, n = matrix.shape
    k, j = min(m, n), min(len(columns), m)
    columns[:n].copy_(matrix.mT)
    scales = columns.new_empty(k)
    call_with_work("geqrf", columns, m, n, columns, m, scales, library=library)
    triangle = columns[:n, :k].mT.triu()
    call_with_work("orgqr", columns, m, j, k, columns, m, scales, library=library)
    return triangle


def _eigen(matrix: Tensor, *, job: str, library: str) -> tuple[Tensor, int]:
    n, kind = matrix.shape[0], matrix.dtype.to_real()
    values = torch.empty(n, dtype=kind)
    reals, integers = (1 + 6 * n + 2 * n * n, 3 + 5 * n) if job == "V" else (n, 1)
    check_extent(reals)
    real_workspace = (torch.empty(reals, dtype=kind), reals) if matrix.is_complex() else ()
    indices = torch.empty(integers, dtype=torch.int32)
    info = call_with_work(
        "syevd", matrix, job.encode(), b"U", n, matrix, n, values,
        after=(*real_workspace, indices, integers), library=library,
    )  # fmt: skip
    return values, info


def _singular(matrix: Tensor, *, job: str, library: str) -> tuple[Tensor, Tensor, Tensor, int]:
    m, n = matrix.shape
    shorter, longer = min(m, n), max(m, n)
    i, j = (n, m) if job == "A" else (shorter, shorter)
    values = torch.empty(shorter, dtype=matrix.dtype.to_real())
    vh, u = torch.empty(i, n, dtype=matrix.dtype), torch.empty(m, j, dtype=matrix.dtype)
    reals = shorter * max(5 * shorter + 7, 2 * longer + 2 * shorter + 1)
    real_workspace = (torch.empty(reals, dtype=values.dtype),) if matrix.is_complex() else ()
    indices = torch.empty(8 * shorter, dtype=torch.int32)
    info = call_with_work(
        "gesdd", matrix, job.encode(), n, m, matrix, n, values, vh, n, u, j,
        after=(*real_workspace, indices), library=library,
    )  # fmt: skip
    return values, u, vh.mT, info


def _add_product(target: Tensor, a: Tensor, b: Tensor, *, sign: int, library: str) -> None:
    (m, n), k = target.shape, a.shape[1]
    factor, one = torch.full((1,), sign, dtype=a.dtype), torch.ones(1, dtype=a.dtype)
    of_a, of_b = blas_order(a), blas_order(b)
    assert of_a is not None, "the rows or columns of the first operand are contiguous"
    assert of_b is not None, "the rows or columns of the second operand are contiguous"
    flags = [b"T" if order.is_transposed else b"N" for order in (of_b, of_a)]
    invoke(
        "gemm", target, *flags, n, m, k, factor, b, of_b.row_stride, a, of_a.row_stride, one,
        target, target.stride(0), library=library,
    )  # fmt: skip


def _cube(times: float) -> Callable[[Shapes], float]:
    """Return the function of shapes `times` · k² · l, where k is the shorter and l the longer
    extent of the first operand."""
    return lambda shapes: times * min(shapes[0]) * math.prod(shapes[0])


CHOLESKY = Routine("cholesky", _cholesky, ("potrf",), _cube(1 / 3))
"""Overwrites the lower triangle of a matrix (n, n) with its Cholesky factor. Returns the order of a
minor that is not positive, `NOT_A_NUMBER`, or 0."""
LU = Routine("lu", _lu, ("getrf",), _cube(2 / 3))
"""Overwrites a matrix (m, n) with [L\\U], columns exchanged. Returns the pivots, counted from 1,
and the number of the first zero on the diagonal, or 0."""
INVERSE = Routine("inverse", _inverse, ("getrf", "getrs"), _cube(2))
"""Overwrites a matrix (n, n) with its inverse. Returns the number of the first zero on the diagonal
of the factor, or 0."""
DIVIDE = Routine("divide", _divide, ("trsm",), lambda shapes: math.prod(shapes[0]) * shapes[1][0])
"""Overwrites rows (m, n) with the solution of a triangular system, given a square matrix T; `flags`
are the character arguments of trsm, for the transposes of both. The first is L for rows·op(T)⁻¹ and
R for op(T)⁻¹·rows."""
REFLECTIONS = Routine("reflections", _reflections, ("geqrf", "orgqr"), _cube(8 / 3))
"""QR of a matrix (m, n): stores j columns of Q in the first rows of the second operand,
(max(j, n), m), and returns R, (min(m, n), n), before its diagonal is made positive."""
EIGEN = Routine("eigen", _eigen, ("syevd",), _cube(9))
"""Overwrites a Hermitian matrix (n, n), read from its lower triangle, with its conjugate
eigenvectors as rows for job "V", and with undefined values for "N". Returns the eigenvalues, and
LAPACK's error code or 0."""
SINGULAR = Routine("singular", _singular, ("gesdd",), _cube(22))
"""Overwrites a matrix (m, n). Returns the singular values, U (m, …) and (Vᴴ)ᵀ (n, …), and LAPACK's
error code or 0: for job "S" the first min(m, n) vectors, for "A" all, for "N" only values. The
matrix must not contain NaN or infinity, with which some libraries do not terminate."""
ADD_PRODUCT = Routine(
    "product",
    _add_product,
    ("gemm",),
    lambda shapes: 2 * math.prod(shapes[0]) * shapes[1][1],
    SINGLE_AND_DOUBLE,
)
"""Adds the product of real matrices (m, k) and (k, n) to a matrix (m, n), or subtracts it for
sign=-1."""


def add_product(tuner: Tuner, target: Tensor, a: Tensor, b: Tensor, sign: int) -> None:
    """Compute target += sign·a·b, for matrices of any type and device."""
    if not (target.numel() and a.shape[1]):
        return
    if fortran.is_in_host_memory(target) and not target.is_complex():
        ADD_PRODUCT(tuner, target, a, b, sign=sign)
    else:
        target.addmm_(a, b, alpha=sign)
