"""The tiles of all sizes as a library: compiled once for each type, then called by its address.

LLVM takes some seconds for them, and would take these again for every program that they are part
of. So they are kept on disk like native programs (`magmath.machine.build`), and those who call
them name them by a symbol, as they do with BLAS.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from magmath.machine.build import is_compiled, load, written

SOURCE = """\
from numba import cfunc
from magmath.kernels.tile import tile

@cfunc("void(i8, i8, i8, i8, {f}, i8, i8, i8, i8, {f}, i8, i8, i8, i8, i8)", cache=True)
def run(down, rows, vectors, k, alpha, a, lda, b, ldb, beta, c, ldc, last, bias, relu):
    if down:
        tile(1, rows, vectors, k, alpha, a, lda, b, ldb, beta, c, ldc, last, bias, relu)
    else:
        tile(0, rows, vectors, k, alpha, a, lda, b, ldb, beta, c, ldc, last, bias, relu)
"""
_LETTERS = {"float32": "f4", "float64": "f8"}


def is_ready(number: str) -> bool:
    """True if the tiles of float32 or float64 are on disk, so that nobody waits for a compiler."""
    return is_compiled(_path(number))


@cache
def use(number: str) -> None:
    """Load the tiles of float32 or float64, compiled now if they are not on disk.

    Before that nothing that calls `library_tile` can be compiled or loaded.
    """
    llvm.add_symbol(_symbol(number), load(_path(number)).address)


@intrinsic  # type: ignore[untyped-decorator]
def library_tile(
    typing_context: Any, down: Any, rows: Any, vectors: Any, k: Any, alpha: Any, a: Any, lda: Any,
    b: Any, ldb: Any, beta: Any, c: Any, ldc: Any, last: Any, bias: Any, relu: Any,
) -> Any:  # fmt: skip
    """`tile.tile` out of the library; `down` need not be a literal."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in arguments])
        function = cgutils.get_or_insert_function(builder.module, kind, _symbol(str(alpha)))
        builder.call(function, arguments)
        return context.get_dummy_value()

    i, f = types.int64, alpha
    return types.void(i, i, i, i, f, i, i, i, i, f, i, i, i, i, i), generate


@cache
def _path(number: str) -> Path:
    return written(SOURCE.format(f=_LETTERS[number]))


def _symbol(number: str) -> str:
    return f"magmath_tile_{number}"
