"""Functions that generated code calls by their address: compiled once, then kept on disk.

A program would take longer to compile with each of them as a part of it. So each is code of its
own, and those who call it name it by a symbol, as they do with BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magmath.codegen.aot_cache import AotModule
    from magmath.codegen.compiler import ExternalSignatures


@dataclass(frozen=True)
class Export:
    """A function of the library: the module of whose code it is part, its name there, its types.

    The code is the module's `CODE`, or `code(number)` where there is one for each type of number.
    """

    module: str
    function: str
    arguments: tuple[str, ...]
    result: str = ""
    number: str = ""

    @property
    def code(self) -> AotModule:
        """The code, whose module loads when it is first asked for: who compiles needs none."""
        module = import_module(self.module)
        code: AotModule = module.code(self.number) if self.number else module.CODE
        return code


def _of_both(name: str, make: Callable[[str], Export]) -> dict[str, Export]:
    return {f"{name}_{number}": make(number) for number in ("float32", "float64")}


def _words(count: int) -> tuple[str, ...]:
    return ("int64",) * count


EXPORTS: dict[str, Export] = {
    "wait": Export("magmath.comm.barrier", "wait", _words(3), "int64"),
    "uniform32": Export("magmath.kernels.philox", "uniform32", _words(3), "float32"),
    **_of_both(
        "tiled_gemm",
        lambda t: Export(
            "magmath.kernels.packed_gemm",
            "gemm",
            (*_words(5), t, *_words(4), t, *_words(4)),
            number=t,
        ),
    ),
    **_of_both(
        "gemm",
        lambda t: Export(
            "magmath.kernels.blas", "gemm", (*_words(5), t, *_words(4), t, *_words(2)), number=t
        ),
    ),
}
"""What there is, by name; addresses, sizes and truth values are int64."""


def signatures(names: Sequence[str]) -> ExternalSignatures:
    """What a program that calls these functions must know of them."""
    return {n: (symbol(n), EXPORTS[n].arguments, EXPORTS[n].result) for n in names}


def symbol(name: str) -> str:
    """The symbol by which a function of the library is called."""
    return f"magmath_{name}"


def is_ready(name: str) -> bool:
    """True if a function is on disk, so that nobody waits for a compiler."""
    return EXPORTS[name].code.is_cached()


@cache
def load(name: str) -> None:
    """Load a function, compiled now if it is not on disk.

    Before that nothing that calls it can be loaded.
    """
    import llvmlite.binding as llvm  # a program may be written without it

    export = EXPORTS[name]
    llvm.add_symbol(symbol(name), export.code.address(export.function))
