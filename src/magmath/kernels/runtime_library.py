"""The runtime library: functions that generated code calls by address, compiled once and stored on
disk.

A program that contained their code would take longer to compile. Each function is therefore
compiled separately, and callers refer to it by a symbol, as they do with BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from magmath.codegen.aot_cache import AotModule
    from magmath.codegen.compiler import ExternalSignatures


@final
@dataclass(frozen=True)
class Export:
    """A function of the library: its code, its name in the code, and its types.

    `code` imports a module on first use, since compilation of a program does not need it.
    """

    code: Callable[[], AotModule]
    function: str
    arguments: tuple[str, ...]
    result: str = ""


def _barrier() -> AotModule:
    from magmath.comm.barrier import CODE

    return CODE


def _philox() -> AotModule:
    from magmath.kernels.random.philox import CODE

    return CODE


def _packed_gemm(dtype: str) -> AotModule:
    from magmath.kernels.gemm.packed_gemm import code

    return code(dtype)


def _blas(dtype: str) -> AotModule:
    from magmath.kernels.gemm.blas import code

    return code(dtype)


def _of_both(name: str, make: Callable[[str], Export]) -> dict[str, Export]:
    return {f"{name}_{dtype}": make(dtype) for dtype in ("float32", "float64")}


def _words(count: int) -> tuple[str, ...]:
    return ("int64",) * count


EXPORTS: dict[str, Export] = {
    "wait": Export(_barrier, "wait", _words(3), "int64"),
    "uniform32": Export(_philox, "uniform32", _words(3), "float32"),
    **_of_both(
        "tiled_gemm",
        lambda t: Export(
            partial(_packed_gemm, t), "gemm", (*_words(5), t, *_words(4), t, *_words(4))
        ),
    ),
    **_of_both(
        "gemm_tile",
        lambda t: Export(
            partial(_packed_gemm, t), "tile", ("int64", "int64", t, *_words(4), t, *_words(5))
        ),
    ),
    **_of_both(
        "gemm",
        lambda t: Export(partial(_blas, t), "gemm", (*_words(5), t, *_words(4), t, *_words(2))),
    ),
}
"""The functions by name; addresses, sizes and truth values are int64."""


def signatures(names: Sequence[str]) -> ExternalSignatures:
    """Return the symbols and types that a program needs to call these functions."""
    return {n: (symbol(n), EXPORTS[n].arguments, EXPORTS[n].result) for n in names}


def symbol(name: str) -> str:
    """Return the symbol by which a function of the library is called."""
    return f"magmath_{name}"


def is_ready(name: str) -> bool:
    """Return True if a function is on disk, so that its use does not wait for a compiler."""
    return EXPORTS[name].code().is_cached()


@cache
def load(name: str) -> None:
    """Load a function, and compile it first if it is not on disk.

    Code that calls it can only be loaded afterwards.
    """
    import llvmlite.binding as llvm  # programs can be written without llvmlite

    export = EXPORTS[name]
    llvm.add_symbol(symbol(name), export.code().address(export.function))
