"""Flushing of denormal numbers to zero, in the threads that compute.

Processors of some makers take a hundred times longer for arithmetic on numbers below the smallest
normal one (1.2e-38 in float32), which gradients and weights near zero become. The mode is a
property of a thread: `flushed` sets it in the calling thread and in the OpenMP threads that compute
for it, and restores it; lanes of a team copy it from their caller. OpenBLAS's own threads keep
theirs.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from platform import machine
from typing import Any, Final, final

import numpy as np
import torch
from llvmlite import ir

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import IrFunction, VectorFunction, words
from magmath.kernels.parallel_region import run_on_threads

_IS_X86: Final = machine() in ("x86_64", "AMD64")
_FLUSH: Final = 0x8040  # of the control register MXCSR: results (bit 15) and operands (bit 6)
_BITS = ir.IntType(32)


@final
class _SetMode(VectorFunction):
    """The code that stores the bits of the mode at an address, and sets them to `bits`."""

    def write(self, bits: Any, previous: Any) -> None:
        at = self.builder
        control_address = at.alloca(_BITS)
        byte = at.bitcast(control_address, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [byte.type])
        read, write = (
            ir.Function(at.module, kind, f"llvm.x86.sse.{name}") for name in ("stmxcsr", "ldmxcsr")
        )
        at.call(read, [byte])
        control = at.load(control_address)
        target = at.inttoptr(previous, ir.IntType(64).as_pointer())
        at.store(at.zext(at.and_(control, _BITS(_FLUSH)), ir.IntType(64)), target)
        other_bits = at.and_(control, _BITS(~_FLUSH & 0xFFFFFFFF))
        at.store(at.or_(other_bits, at.trunc(bits, _BITS)), control_address)
        at.call(write, [byte])


IR_FUNCTIONS: Final = {"set_mode": IrFunction(_SetMode("float32", "set_mode"), words(2))}
CONSTANTS: Final[dict[str, int]] = {}

CODE = AotModule(
    '''
def exchange(bits: int64) -> int64:
    """Set the mode of the calling thread, and return the previous one."""
    previous: int64[1] = stack(8)
    set_mode(bits, address(previous))
    return previous[0]

def set_of_record(record: int64):
    """Set the mode of the calling thread to the number at an address."""
    bits: int64[1] = record
    previous = exchange(bits[0])
''',
    ("set_of_record",),
    ir_modules=("magmath.kernels.denormals",),
)


@contextmanager
def flushed(flush: bool = True) -> Iterator[None]:
    """Set whether denormal numbers count as zero, on the calling thread and those that compute for
    it, within the block; restore the previous mode at the end."""
    previous = is_flushing()
    if previous == flush:
        yield
        return
    _set_mode(flush)
    try:
        yield
    finally:
        _set_mode(previous)


@contextmanager
def flushed_here(flush: bool) -> Iterator[None]:
    """Set whether denormal numbers count as zero on the calling thread alone, within the block;
    restore the previous mode at the end."""
    previous = is_flushing()
    torch.set_flush_denormal(flush)
    try:
        yield
    finally:
        torch.set_flush_denormal(previous)


def is_flushing() -> bool:
    """Return True if denormal numbers count as zero on the calling thread."""
    return sys.float_info.min * 0.5 == 0.0


def _set_mode(flush: bool) -> None:
    """Set the mode of the calling thread and of its OpenMP threads."""
    if _IS_X86:
        record = np.array([_FLUSH if flush else 0], np.int64)
        function, argument = CODE.address("set_of_record"), int(record.ctypes.data)
    else:
        function, argument = ctypes.cast(_setter(flush), ctypes.c_void_p).value or 0, 0
    run_on_threads(function, argument, torch.get_num_threads())


@cache
def _setter(flush: bool) -> Any:
    """Return torch's setter of the mode as a function of C, for other processors than x86."""

    def set_mode(record: int) -> None:
        torch.set_flush_denormal(flush)

    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(set_mode)
