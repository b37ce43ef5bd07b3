"""Object code, made callable: all that LLVM is needed for once code is on disk."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Final

import llvmlite.binding as llvm

LAST, ENTER, EXPORTED = "magmath_last", "magmath_enter", "magmath_export_"
"""Symbols: of a source's last function, of the one that calls it, and before each exported name."""

_TYPES: Final[dict[str, Any]] = {
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "": None,
}


class Loaded:
    """Object code, ready to be called without Python's lock."""

    def __init__(self, code: bytes) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._functions: dict[tuple[str, ...], Callable[..., Any]] = {}

    @cached_property
    def enter(self) -> Callable[[int], int]:
        """Calls the last function of a source, if it returns an int64, given the address of one
        64-bit word for each of its arguments."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        return kind(self._engine.get_function_address(ENTER))

    @property
    def address(self) -> int:
        """Where the source's last function is."""
        return int(self._engine.get_function_address(LAST))

    def place(self, name: str) -> int:
        """Where an exported function is."""
        return int(self._engine.get_function_address(EXPORTED + name))

    def function(
        self, name: str, arguments: Sequence[str], result: str = "int64"
    ) -> Callable[..., Any]:
        """An exported function, given the types of its arguments and result; "" is none."""
        key = name, result, *arguments
        if key not in self._functions:
            kind = ctypes.CFUNCTYPE(_TYPES[result], *[_TYPES[argument] for argument in arguments])
            self._functions[key] = kind(self.place(name))
        return self._functions[key]


@cache
def _initialised() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def target_machine() -> Any:
    """The processor at hand. Each engine wants a description of its own."""
    _initialised()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        llvm.get_host_cpu_name(), features, opt=3, reloc="static", codemodel="jitdefault", jit=True
    )
