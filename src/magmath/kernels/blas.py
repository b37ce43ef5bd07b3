"""BLAS by pointer, for compiled code: SciPy's own library, called without Python in between.

`gemm` is a plain Numba function on row-major matrices, used by generated native code and by the
replayed path, for which `run` makes a whole product with its epilogue one call with one argument.
The symbols are registered with LLVM by name, so compiled code can be cached on disk and linked
again in another process. Nothing is shared between calls: any thread may call.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from scipy.linalg import cython_blas

from magmath.kernels.threads import limit_loaded
from magmath.machine.raw import pointer

_LETTERS = {"float32": "s", "float64": "d"}
_NO, _YES = np.uint8(ord("N")), np.uint8(ord("T"))


def _register(routine: str) -> None:
    """Give LLVM the address of a Fortran routine, as `magmath_<routine>`."""
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    signature = name(cython_blas.__pyx_capi__[routine]).decode()
    if not re.search(r"\bint \*", signature):
        raise ImportError(
            f"SciPy's {routine} has the signature {signature}; magmath needs a SciPy whose BLAS "
            "takes 32-bit integers, as the wheels on PyPI do"
        )
    address = get_cython_function_address("scipy.linalg.cython_blas", routine)
    llvm.add_symbol(f"magmath_{routine}", address)


for _letter in _LETTERS.values():
    _register(f"{_letter}gemm")
    _register(f"{_letter}gemv")
limit_loaded()


def _generator(routine: str, number: Any) -> Any:
    """Code that calls a Fortran routine: every argument by reference, from the stack."""
    symbol = f"magmath_{_LETTERS[str(number)]}{routine}"

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8), ir.IntType(32)
        pointer = byte.as_pointer()

        def passed(value: Any, kind: Any) -> Any:
            if isinstance(kind, types.Array):
                data = context.make_array(kind)(context, builder, value).data
                return builder.bitcast(data, pointer)
            if kind == types.uintp:
                return builder.inttoptr(value, pointer)
            if kind == types.intp:
                value = builder.trunc(value, word)
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, pointer)

        passing = [passed(v, k) for v, k in zip(arguments, signature.args, strict=True)]
        kind = ir.FunctionType(ir.VoidType(), [pointer] * len(passing))
        function = cgutils.get_or_insert_function(builder.module, kind, symbol)
        builder.call(function, passing)
        return context.get_dummy_value()

    return generate


def _place(operand: Any) -> Any:
    """The type by which a matrix is passed: itself, or an address as an unsigned integer."""
    return operand if isinstance(operand, types.Array) else types.uintp


def _number(alpha: Any, operand: Any) -> Any:
    return operand.dtype if isinstance(operand, types.Array) else alpha


@intrinsic  # type: ignore[untyped-decorator]
def _fortran_gemm(
    typing_context: Any, trans_a: Any, trans_b: Any, m: Any, n: Any, k: Any, alpha: Any, a: Any,
    lda: Any, b: Any, ldb: Any, beta: Any, c: Any, ldc: Any,
) -> Any:  # fmt: skip
    i, t, number = types.intp, types.uint8, _number(alpha, c)
    a, b, c = _place(a), _place(b), _place(c)
    signature = types.void(t, t, i, i, i, number, a, i, b, i, number, c, i)
    return signature, _generator("gemm", number)


@intrinsic  # type: ignore[untyped-decorator]
def _fortran_gemv(
    typing_context: Any, trans: Any, m: Any, n: Any, alpha: Any, a: Any, lda: Any, x: Any,
    incx: Any, beta: Any, y: Any, incy: Any,
) -> Any:  # fmt: skip
    i, number = types.intp, _number(alpha, y)
    a, x, y = _place(a), _place(x), _place(y)
    signature = types.void(types.uint8, i, i, number, a, i, x, i, number, y, i)
    return signature, _generator("gemv", number)


@njit(nogil=True, cache=True, inline="never")  # type: ignore[untyped-decorator]
def gemm(
    transpose_a: bool, transpose_b: bool, m: int, n: int, k: int, alpha: Any, a: Any, lda: int,
    b: Any, ldb: int, beta: Any, c: Any, ldc: int,
) -> None:  # fmt: skip
    """C = alpha · op(A) · op(B) + beta · C, all row-major: C is (m, n), op(A) (m, k), op(B) (k, n).

    lda, ldb, ldc are the distances between rows, in elements. a, b, c are float32 or float64
    arrays, or addresses as integers, and then alpha and beta say which type lies there.
    """
    # Fortran sees the transposes: Cᵀ = op(B)ᵀ · op(A)ᵀ. Matrix times vector has its own routine,
    # up to 4 times faster; it leaves C alone where there is nothing to add.
    if m <= 0 or n <= 0:
        return
    if n == 1 and k > 0:
        step = 1 if transpose_b else ldb
        if transpose_a:
            _fortran_gemv(_NO, m, k, alpha, a, lda, b, step, beta, c, ldc)
        else:
            _fortran_gemv(_YES, k, m, alpha, a, lda, b, step, beta, c, ldc)
    elif m == 1 and k > 0:
        step = lda if transpose_a else 1
        if transpose_b:
            _fortran_gemv(_YES, k, n, alpha, b, ldb, a, step, beta, c, 1)
        else:
            _fortran_gemv(_NO, n, k, alpha, b, ldb, a, step, beta, c, 1)
    else:
        first = _YES if transpose_b else _NO
        second = _YES if transpose_a else _NO
        _fortran_gemm(first, second, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc)


RECORD = np.dtype(
    {
        "names": [
            "transpose_a", "transpose_b", "m", "n", "k", "a", "lda", "b", "ldb", "c", "ldc",
            "count", "step_a", "step_b", "step_c", "bias", "bias_step", "relu", "alpha", "beta",
        ],
        "formats": ["i8"] * 18 + ["f8"] * 2,
    }
)  # fmt: skip
"""What `run32` and `run64` read: a product as `gemm` takes it, with addresses for a, b and c; how
many such products there are and how many bytes apart; a row to add (its address or 0, and how many
elements apart its elements are); whether negative results become 0; alpha and beta."""


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _finish(
    c: int, pitch: int, m: int, n: int, bias: int, step: int, relu: bool, zero: Any
) -> None:
    """Add a row to the product and cut it off below 0, in one pass; a NaN stays."""
    row = carray(pointer(bias, zero), ((n - 1) * step + 1,))
    for i in range(m):
        line = carray(pointer(c + i * pitch, zero), (n,))
        if bias == 0:
            for j in range(n):
                line[j] = zero if line[j] <= zero else line[j]
        elif relu and step == 1:
            for j in range(n):
                value = line[j] + row[j]
                line[j] = zero if value <= zero else value
        else:
            for j in range(n):
                value = line[j] + row[j * step]
                line[j] = zero if relu and value <= zero else value


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _run(w: Any, alpha: Any, beta: Any, zero: Any, itemsize: int) -> None:
    for i in range(w[11]):
        a, b, c = w[5] + i * w[12], w[7] + i * w[13], w[9] + i * w[14]
        gemm(w[0] != 0, w[1] != 0, w[2], w[3], w[4], alpha, a, w[6], b, w[8], beta, c, w[10])
        if w[15] != 0 or w[17] != 0:
            _finish(c, w[10] * itemsize, w[2], w[3], w[15], w[16], w[17] != 0, zero)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def run32(record: int) -> None:
    """Do the float32 products of the RECORD at this address."""
    numbers = carray(pointer(record, np.float64(0)), (20,))
    words = carray(pointer(record, np.int64(0)), (20,))
    _run(words, np.float32(numbers[18]), np.float32(numbers[19]), np.float32(0), 4)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def run64(record: int) -> None:
    """Do the float64 products of the RECORD at this address."""
    numbers = carray(pointer(record, np.float64(0)), (20,))
    words = carray(pointer(record, np.int64(0)), (20,))
    _run(words, numbers[18], numbers[19], 0.0, 8)
