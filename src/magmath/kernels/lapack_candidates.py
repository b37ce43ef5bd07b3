"""What a factorisation is made of, each computed by the library that is fastest at it here.

The routines of LAPACK and BLAS that large matrices need, on rows of tensors in the host's memory.
Which library serves one is measured, once for a machine, a type and a class of sizes, by the tuner,
which gets the libraries as its candidates. All of them take the same memory and say the same about
bad data.
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

from magmath.kernels import fortran
from magmath.kernels.dispatch.registry import candidates
from magmath.kernels.dispatch.tuner import Call, Tuner, wake_thread_pool
from magmath.kernels.fortran import call, call_with_work, invoke

NOT_A_NUMBER = -1
"""What `CHOLESKY` says of a matrix with NaN or infinity."""
LEAST_FLOPS = 2e5
"""Less is not worth measuring: it takes as long as the call."""
MOST_FLOPS = 3e9
"""What takes more is measured on smaller matrices: libraries keep their order."""
BUDGET_SECONDS = 0.5
"""For measuring, which is done once for a class of sizes; some routines take a tenth of that."""

Shape = tuple[int, ...]
Shapes = Sequence[Shape]
Forms = tuple[tuple[Shape, bool], ...]
"""Shapes of matrices, and whether they lie transposed."""


@final
@dataclass(frozen=True)
class Routine:
    """Something that several libraries can compute.

    compute  (*operands, library=…, **options); the operands are tensors, which it may overwrite
    needs    the Fortran routines that a library must have
    flops    of operands of these shapes
    """

    name: str
    compute: Callable[..., Any]
    needs: tuple[str, ...]
    flops: Callable[[Shapes], float]

    def __call__(self, tuner: Tuner, *operands: Tensor, **options: Any) -> Any:
        """Compute by the library of the tuner's choice."""
        forms = tuple([(tuple(x.shape), _is_turned(x)) for x in operands])
        library = _chosen(
            self, tuner, forms, operands[0].dtype, tuple(options.items()), torch.get_num_threads()
        )
        return self.compute(*operands, library=library, **options)

    def libraries(self, dtype: torch.dtype) -> list[str]:
        """Those that can compute it, in order of preference."""
        registered = candidates(self.name, "cpu", dtype)
        return [name for name in registered if fortran.has(name, dtype, *self.needs)]

    def measured(self, forms: Forms) -> Forms:
        """The class of the operands' sizes: extents rounded up to somewhat less than a power of
        two, which is unkind to caches, and halved until they do not take too long."""
        shapes = [tuple([_rounded(n) for n in shape]) for shape, _ in forms]
        while self.flops(shapes) > MOST_FLOPS:
            shapes = [tuple([max(1, n // 2) for n in shape]) for shape in shapes]
        return tuple([(shape, turned) for shape, (_, turned) in zip(shapes, forms, strict=True)])

    def trial(self, forms: Forms, dtype: torch.dtype, **options: Any) -> Call:
        """A call on matrices of these forms."""
        given = [_stand_in(shape, turned, dtype) for shape, turned in forms]
        used, around = [x.clone() for x in given], wake_thread_pool()

        def run() -> None:
            for x, fresh in zip(used, given, strict=True):
                put(x, fresh)
            around()
            self.compute(*used, **options)

        return run


@lru_cache(maxsize=4096)
def _chosen(
    routine: Routine,
    tuner: Tuner,
    forms: Forms,
    dtype: torch.dtype,
    options: tuple[tuple[str, Any], ...],
    threads: int,
) -> str:
    """The library that computes a routine on operands of these forms, with so many threads.

    Kept, since a factorisation in panels asks for every panel.
    """
    able, forms = routine.libraries(dtype), routine.measured(forms)
    shapes = [shape for shape, _ in forms]
    if routine.flops(shapes) < LEAST_FLOPS:
        return able[0]
    words = ["×".join(map(str, shape)) for shape in shapes]
    words += [f"{key} {value}" for key, value in options]
    words.append(str(dtype).removeprefix("torch."))
    trials = {
        library: partial(routine.trial, forms, dtype, library=library, **dict(options))
        for library in able
    }
    key = f"{routine.name} in company {', '.join(words)}"
    return tuner.choose(key, trials, budget=BUDGET_SECONDS)


def _rounded(extent: int) -> int:
    power = 1 << max(extent - 1, 0).bit_length()
    return power - power // 32


def _is_turned(x: Tensor) -> bool:
    """True for a matrix that lies transposed."""
    down, along = x.stride()
    return along > 1 and down == 1


def _stand_in(shape: Shape, turned: bool, dtype: torch.dtype) -> Tensor:
    """Random numbers below a strong diagonal: definite, where that counts, and not singular."""
    m, n = shape[::-1] if turned else shape
    made = torch.randn(m, n, dtype=dtype, generator=torch.Generator().manual_seed(0))
    made.diagonal().add_(2 * max(m, n))
    return made.mT if turned else made


def put(target: Tensor, source: Tensor) -> None:
    """Copy by this thread alone: torch's threads would spin on for a while, and BLAS's own wait for
    their processors, which doubles the time of a Cholesky factorisation of 1000 columns."""
    target.numpy()[...] = source.numpy()


# on rows of tensors ---------------------------------------------------------------------------


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
    if fortran.has(library, matrix.dtype, "getri"):
        return call_with_work("getri", matrix, n, matrix, step, pivots, library=library)
    factors = torch.from_numpy(np.array(matrix.numpy(), order="C"))
    matrix.numpy()[...] = 0
    matrix.diagonal().fill_(1)
    return call("getrs", matrix, b"N", n, n, factors, n, pivots, matrix, step, library=library)


def _divide(rows: Tensor, matrix: Tensor, *, letters: str, library: str) -> None:
    m, n = rows.shape
    if rows.numel():
        one = torch.ones(1, dtype=rows.dtype)
        strides = max(matrix.stride(0), 1), max(rows.stride(0), 1)
        four = [letter.encode() for letter in letters]
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
    integers = 3 + 5 * n
    size = 1 + 6 * n + 2 * n * n
    own = (torch.empty(size, dtype=kind), size) if matrix.is_complex() else ()
    work = torch.empty(size, dtype=matrix.dtype)
    indices = torch.empty(integers, dtype=torch.int32)
    info = call(
        "syevd", matrix, job.encode(), b"U", n, matrix, n, values, work, size, *own, indices,
        integers, library=library,
    )  # fmt: skip
    return values, info


def _singular(matrix: Tensor, *, job: str, library: str) -> tuple[Tensor, Tensor, Tensor, int]:
    m, n = matrix.shape
    least, most = min(m, n), max(m, n)
    i, j = (n, m) if job == "A" else (least, least)
    values = torch.empty(least, dtype=matrix.dtype.to_real())
    vh, u = torch.empty(i, n, dtype=matrix.dtype), torch.empty(m, j, dtype=matrix.dtype)
    reals = least * max(5 * least + 7, 2 * most + 2 * least + 1)
    own = (torch.empty(reals, dtype=values.dtype),) if matrix.is_complex() else ()
    indices = torch.empty(8 * least, dtype=torch.int32)
    info = call_with_work(
        "gesdd", matrix, job.encode(), n, m, matrix, n, values, vh, n, u, j,
        after=(*own, indices), library=library,
    )  # fmt: skip
    return values, u, vh.mT, info


def _add_product(target: Tensor, a: Tensor, b: Tensor, *, sign: int, library: str) -> None:
    (m, n), k = target.shape, a.shape[1]
    factor, one = torch.full((1,), sign, dtype=a.dtype), torch.ones(1, dtype=a.dtype)
    (first, ldb), (second, lda) = _form(b), _form(a)
    invoke(
        "gemm", target, first, second, n, m, k, factor, b, ldb, a, lda, one, target,
        target.stride(0), library=library,
    )  # fmt: skip


def _form(x: Tensor) -> tuple[bytes, int]:
    """Whether a matrix lies transposed, and how far apart its rows, or columns, are."""
    if x.stride(1) == 1:
        return b"N", max(x.stride(0), x.shape[1])
    return b"T", max(x.stride(1), x.shape[0])


def _cube(times: float) -> Callable[[Shapes], float]:
    """So many times the shorter extent of the first operand squared times the longer one."""
    return lambda shapes: times * min(shapes[0]) * math.prod(shapes[0])


CHOLESKY = Routine("cholesky", _cholesky, ("potrf",), _cube(1 / 3))
"""(n, n) becomes its factor, in the lower triangle; the order of a minor that is not positive,
`NOT_A_NUMBER`, or 0."""
LU = Routine("lu", _lu, ("getrf",), _cube(2 / 3))
"""(m, n) becomes [L\\U] with columns exchanged; the pivots, from 1, and which is 0, or 0."""
INVERSE = Routine("inverse", _inverse, ("getrf", "getrs"), _cube(2))
"""(n, n) becomes its inverse; which pivot is 0, or 0."""
DIVIDE = Routine("divide", _divide, ("trsm",), lambda shapes: math.prod(shapes[0]) * shapes[1][0])
"""(m, n), and a triangle of a square matrix: becomes the solution, `letters` being trsm's, for the
transposes of both."""
REFLECTIONS = Routine("reflections", _reflections, ("geqrf", "orgqr"), _cube(8 / 3))
"""(m, n), and memory for columns, (max(j, n), m), whose first j become Q's; R, (min(m, n), n)."""
EIGEN = Routine("eigen", _eigen, ("syevd",), _cube(9))
"""Hermitian (n, n), of which the lower triangle counts, becomes its conjugate eigenvectors, by
rows, for job "V", and nothing of use for "N"; the eigenvalues, and what is wrong, or 0."""
SINGULAR = Routine("singular", _singular, ("gesdd",), _cube(22))
"""(m, n), overwritten: the singular values, U (m, …) and (Vᴴ)ᵀ (n, …), and what is wrong, or 0; for
job "S" the first min(m, n) vectors, for "A" all, for "N" nothing but values. No NaN or infinity,
with which some libraries never end."""
ADD_PRODUCT = Routine(
    "product", _add_product, ("gemm",), lambda shapes: 2 * math.prod(shapes[0]) * shapes[1][1]
)
"""(m, n), to which the product of (m, k) and (k, n), real, is added, or subtracted for sign=-1."""


def add_product(tuner: Tuner, target: Tensor, a: Tensor, b: Tensor, sign: int) -> None:
    """target += sign·a·b, of any matrices."""
    if not (target.numel() and a.shape[1]):
        return
    if fortran.takes(target) and not target.is_complex():
        ADD_PRODUCT(tuner, target, a, b, sign=sign)
    else:
        target.addmm_(a, b, alpha=sign)
