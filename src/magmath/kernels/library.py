"""Functions that generated code calls by their address: compiled once, then kept on disk.

Numba takes seconds for them, and would take these again for every program that they are part of.
So each is a library of its own, and those who call it name it by a symbol, as they do with BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from magmath.machine.build import is_compiled, load, written

SOURCE = """\
from numba import cfunc
from magmath.kernels.library import use
{uses}
from {module} import {function}

@cfunc("{result}({kinds})", cache=True)
def run({names}):
    return {function}({names})
"""
_NUMBA = {"int64": "i8", "float32": "f4", "float64": "f8", "": "void"}


@dataclass(frozen=True)
class Export:
    """A function of the library: where it is, its types, and which others it calls."""

    module: str
    function: str
    arguments: tuple[str, ...]
    result: str = ""
    needs: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The library's source."""
        names = ", ".join(f"x{i}" for i in range(len(self.arguments)))
        return SOURCE.format(
            uses="\n".join(f'use("{name}")' for name in self.needs),
            module=self.module,
            function=self.function,
            result=_NUMBA[self.result],
            kinds=", ".join(_NUMBA[kind] for kind in self.arguments),
            names=names,
        )


def _of_both(name: str, make: Callable[[str], Export]) -> dict[str, Export]:
    return {f"{name}_{number}": make(number) for number in ("float32", "float64")}


def _words(count: int) -> tuple[str, ...]:
    return ("int64",) * count


EXPORTS: dict[str, Export] = {
    "wait": Export("magmath.comm.barrier", "wait_at", _words(3), "int64"),
    "uniform32": Export("magmath.kernels.philox", "uniform32", _words(3), "float32"),
    **_of_both(
        "tile",
        lambda t: Export(
            "magmath.kernels.tile", "any_tile", (*_words(4), t, *_words(4), t, *_words(5))
        ),
    ),
    **_of_both(
        "tiled_gemm",
        lambda t: Export(
            "magmath.kernels.tiled", "gemm", (*_words(5), t, *_words(4), t, *_words(4)),
            needs=(f"tile_{t}",),
        ),
    ),
    **_of_both(
        "gemm",
        lambda t: Export(
            "magmath.kernels.blas", "gemm", (*_words(5), t, *_words(4), t, *_words(2))
        ),
    ),
}  # fmt: skip
"""What there is, by name; addresses, sizes and truth values are int64."""


def symbol(name: str) -> str:
    """The symbol by which a function of the library is called."""
    return f"magmath_{name}"


def is_ready(name: str) -> bool:
    """True if a function is on disk, so that nobody waits for a compiler."""
    return is_compiled(_path(name))


@cache
def use(name: str) -> None:
    """Load a function, compiled now if it is not on disk.

    Before that nothing that calls it can be compiled by Numba, or loaded.
    """
    import llvmlite.binding as llvm  # a program may be written without it

    llvm.add_symbol(symbol(name), load(_path(name)).address)


@cache
def _path(name: str) -> Path:
    return written(EXPORTS[name].source)
