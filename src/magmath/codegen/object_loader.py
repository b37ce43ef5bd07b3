"""Loading of object code: code that is on disk needs no other part of LLVM."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Final, final

import llvmlite.binding as llvm

LAST_SYMBOL, ENTRY_SYMBOL = "magmath_last", "magmath_enter"
"""Symbols of the last function of a source, and of its entry point."""
EXPORT_PREFIX, BUILTIN_PREFIX = "magmath_export_", "magmath_builtin_"
"""Prefixes of exported symbols: of a function, and of its wrapper for Python."""


@final
class LoadedObject:
    """Loaded object code; calls release the GIL."""

    def __init__(self, code: bytes) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._functions: dict[str, Callable[..., Any]] = {}

    @cached_property
    def enter(self) -> Callable[[int], int]:
        """The entry point: calls the last function of a source with a table of one 64-bit word per
        argument, given by address; returns its int64 result, or 0."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        return kind(self._engine.get_function_address(ENTRY_SYMBOL))

    @property
    def address(self) -> int:
        """The address of the last function of the source."""
        return int(self._engine.get_function_address(LAST_SYMBOL))

    def address_of(self, name: str) -> int:
        """Return the address of an exported function."""
        return int(self._engine.get_function_address(EXPORT_PREFIX + name))

    def function(self, name: str) -> Callable[..., Any]:
        """Return an exported function as a Python builtin: see `codegen/cpython_builtin.py`."""
        if name not in self._functions:
            address = int(self._engine.get_function_address(BUILTIN_PREFIX + name))
            self._functions[name] = _make_builtin(name, address)
        return self._functions[name]


_FASTCALL: Final = 0x80  # METH_FASTCALL in the C API


@final
class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_methods: list[_Method] = []  # Python stores only their addresses


def _make_builtin(name: str, address: int) -> Callable[..., Any]:
    """Return the builtin of a wrapper from `codegen/cpython_builtin.py` at an address."""
    method = _Method(name.encode(), address, _FASTCALL, None)
    _methods.append(method)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    builtin: Callable[..., Any] = new(ctypes.addressof(method), None, None)
    return builtin


@cache
def _initialize_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def target_machine() -> Any:
    """Return a description of the host processor. Each execution engine takes ownership of one."""
    _initialize_llvm()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        llvm.get_host_cpu_name(), features, opt=3, reloc="static", codemodel="jitdefault", jit=True
    )
