"""BLAS by pointer, for compiled code: the routines of SciPy's library, called without Python.

`gemm` takes row-major matrices by their addresses. Generated native code calls it; for replayed
programs, `run` computes a product with its epilogue in one call with one argument. Calls share no
state, so any thread may call.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from magmath.codegen.aot_cache import AotModule

_LETTERS: Final = {"float32": "s", "float64": "d"}
_ROUTINES: Final = {"gemm": 13, "gemv": 11}
"""The routines and their numbers of arguments, which are all passed by reference."""

RECORD = np.dtype(
    {
        "names": [
            "transpose_a", "transpose_b", "m", "n", "k", "a", "lda", "b", "ldb", "c", "ldc",
            "count", "step_a", "step_b", "step_c", "bias", "bias_step", "relu", "alpha", "beta",
        ],
        "formats": ["i8"] * 18 + ["f8"] * 2,
    }
)  # fmt: skip
"""The argument of `run`: the arguments of `gemm`, with addresses for a, b and c; the number of such
products and the bytes between them; a row to add (its address or 0, and the elements between its
elements); whether negative results become 0; alpha and beta."""

CONSTANTS: Final = {name.upper(): i for i, name in enumerate(RECORD.names or ())}
"""The positions in `RECORD`, in words of 64 bits, by the names that the sources use."""

RUN: Final = '''
def run(record: int64) -> int64:
    """Compute the products of the RECORD at this address."""
    job: int64[1] = record
    numbers: float64[1] = record
    alpha = {T}(numbers[ALPHA])
    beta = {T}(numbers[BETA])
    for i in range(job[COUNT]):
        a = job[A] + i * job[STEP_A]
        b = job[B] + i * job[STEP_B]
        c = job[C] + i * job[STEP_C]
        multiply(job, alpha, a, b, beta, c)
    return 0
'''
"""Source code for the compiler. It follows a function `multiply`, which computes one product."""

_FORTRAN: Final = """
def fortran_gemm(
    first: int64, second: int64, m: int64, n: int64, k: int64, alpha: {T}, a: int64, lda: int64,
    b: int64, ldb: int64, beta: {T}, c: int64, ldc: int64
):
    flags: uint8[1] = stack(2)
    numbers: int32[1] = stack(24)
    factors: {T}[1] = stack(16)
    flags[0] = first
    flags[1] = second
    numbers[0] = m
    numbers[1] = n
    numbers[2] = k
    numbers[3] = lda
    numbers[4] = ldb
    numbers[5] = ldc
    factors[0] = alpha
    factors[1] = beta
    where = address(numbers)
    gemm_routine(
        address(flags), address(flags) + 1, where, where + 4, where + 8, address(factors), a,
        where + 12, b, where + 16, address(factors) + {itemsize}, c, where + 20
    )

def fortran_gemv(
    turned: int64, m: int64, n: int64, alpha: {T}, a: int64, lda: int64, x: int64, incx: int64,
    beta: {T}, y: int64, incy: int64
):
    flags: uint8[1] = stack(1)
    numbers: int32[1] = stack(20)
    factors: {T}[1] = stack(16)
    flags[0] = turned
    numbers[0] = m
    numbers[1] = n
    numbers[2] = lda
    numbers[3] = incx
    numbers[4] = incy
    factors[0] = alpha
    factors[1] = beta
    where = address(numbers)
    gemv_routine(
        address(flags), where, where + 4, address(factors), a, where + 8, x, where + 12,
        address(factors) + {itemsize}, y, where + 16
    )
"""

# Fortran reads row-major matrices as their transposes: Cᵀ = op(B)ᵀ · op(A)ᵀ. A product of matrix
# and vector uses gemv, up to 4 times faster, except for k = 0, for which gemv leaves C unchanged.
_GEMM: Final = '''
def gemm(
    transpose_a: int64, transpose_b: int64, m: int64, n: int64, k: int64, alpha: {T}, a: int64,
    lda: int64, b: int64, ldb: int64, beta: {T}, c: int64, ldc: int64
):
    """C = alpha · op(A) · op(B) + beta · C, all row-major: C is (m, n), op(A) (m, k), op(B) (k, n).

    lda, ldb, ldc are the distances between rows, in elements; a, b, c are addresses.
    """
    if m <= 0 or n <= 0:
        return
    if n == 1 and k > 0:
        step = 1 if transpose_b != 0 else ldb
        if transpose_a != 0:
            fortran_gemv(NO, m, k, alpha, a, lda, b, step, beta, c, ldc)
        else:
            fortran_gemv(YES, k, m, alpha, a, lda, b, step, beta, c, ldc)
    elif m == 1 and k > 0:
        step = lda if transpose_a != 0 else 1
        if transpose_b != 0:
            fortran_gemv(YES, k, n, alpha, b, ldb, a, step, beta, c, 1)
        else:
            fortran_gemv(NO, n, k, alpha, b, ldb, a, step, beta, c, 1)
    else:
        first = YES if transpose_b != 0 else NO
        second = YES if transpose_a != 0 else NO
        fortran_gemm(first, second, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc)

def finish(
    c: int64, pitch: int64, m: int64, n: int64, bias: int64, step: int64, relu: int64
):
    """Add a row to the product and clamp it at 0, in one pass; a NaN stays."""
    row: {T}[1] = bias
    for i in range(m):
        line: {T}[1] = c + i * pitch
        if bias == 0:
            for j in range(n):
                line[j] = 0 if line[j] <= 0 else line[j]
        elif relu != 0 and step == 1:
            for j in range(n):
                value = line[j] + row[j]
                line[j] = 0 if value <= 0 else value
        else:
            for j in range(n):
                value = line[j] + row[j * step]
                line[j] = 0 if relu != 0 and value <= 0 else value

def multiply(job: int64[1], alpha: {T}, a: int64, b: int64, beta: {T}, c: int64):
    gemm(
        job[TRANSPOSE_A], job[TRANSPOSE_B], job[M], job[N], job[K], alpha, a, job[LDA], b, job[LDB],
        beta, c, job[LDC]
    )
    if job[BIAS] != 0 or job[RELU] != 0:
        finish(c, job[LDC] * {itemsize}, job[M], job[N], job[BIAS], job[BIAS_STEP], job[RELU])
'''


@cache
def code(dtype: str) -> AotModule:
    """Return the compiled functions `gemm` and `run` for float32 or float64; `run` computes the
    products of the RECORD at an address."""
    source = (_FORTRAN + _GEMM + RUN).format(T=dtype, itemsize=np.dtype(dtype).itemsize)
    letter = _LETTERS[dtype]
    external = {
        f"{routine}_routine": (f"magmath_{letter}{routine}", ("int64",) * count, "")
        for routine, count in _ROUTINES.items()
    }
    return AotModule(
        source, ("gemm", "run"), constants={**CONSTANTS, "NO": ord("N"), "YES": ord("T")},
        external=external,
        prepare=lambda: _register(letter),
    )  # fmt: skip


def _register(letter: str) -> None:
    """Register the addresses of the Fortran routines with LLVM."""
    import llvmlite.binding as llvm

    from magmath.kernels.fortran import address_of

    for routine in _ROUTINES:
        llvm.add_symbol(f"magmath_{letter}{routine}", address_of(f"{letter}{routine}"))
