"""Values of the compiler: typed numbers, literals, memory, and conversions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from platform import machine
from typing import Any, final

from llvmlite import ir

WORD = ir.IntType(64)
_BYTE, _HALF, _BITS = ir.IntType(8), ir.IntType(16), ir.IntType(32)
_FLOATS = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
ARITHMETIC = {
    "fast": ("contract", "nsz"),
    "contracted": ("contract",),
    "rounded": (),
}
"""Floating-point modes: a product and a sum may be `contracted`, which rounds once, unless
operations are `rounded` each by itself, so that every processor gives the same bits; zeros of
`fast` operations, which are contracted too, may have either sign. No mode changes the order of
operations, which compensated sums depend on, or multiplies by reciprocals, which may be infinite:
see `add_in_any_order`."""


@final
@dataclass(frozen=True)
class Value:
    """A number in a register, of one of NumPy's types."""

    ir: Any
    dtype: str

    def with_value(self, content: Any) -> Value:
        """Return a number of the same type in another register."""
        return replace(self, ir=content)


@final
@dataclass(frozen=True)
class Literal:
    """A literal: it adapts to the type of the other operand."""

    value: float

    @property
    def dtype(self) -> str:
        """The type of the literal without other operands."""
        if isinstance(self.value, bool):
            return "bool"
        return "int64" if isinstance(self.value, int) else "float64"


@final
@dataclass(frozen=True)
class StridedMemory:
    """The address of an array's first element, and the strides in elements."""

    ir: Any
    dtype: str
    strides: tuple[int, ...]

    def with_value(self, content: Any) -> StridedMemory:
        """Return memory of the same type and strides at another address."""
        return replace(self, ir=content)


@final
class Builder(ir.IRBuilder):  # type: ignore[misc]
    """LLVM's builder, with the flags of floating-point arithmetic."""

    def __init__(self, block: Any, flags: Sequence[str]) -> None:
        super().__init__(block)
        self.flags = flags

    def floating(self, name: str, *operands: Any, flags: Sequence[str] = ()) -> Any:
        """Emit a floating-point instruction with the builder's flags, and these."""
        return getattr(self, name)(*operands, flags=[*self.flags, *flags])

    def alloca_in_entry(self, kind: Any) -> Any:
        """Return memory on the stack, which is allocated once per call of the function."""
        with self.goto_entry_block():
            return self.alloca(kind)

    def intrinsic(self, name: str, *operands: Any) -> Any:
        """Emit a call of an LLVM intrinsic that is overloaded by the type of its operands."""
        kind = operands[0].type
        function = self.module.declare_intrinsic(f"llvm.{name}", [kind], self._kind(operands))
        return self.call(function, operands, fastmath=self.flags)

    def c_function(self, name: str, *operands: Any) -> Any:
        """Emit a call of a C library function without side effects."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, self._kind(operands), name)
            function.attributes.add("nounwind")
            function.attributes.add("readnone")
        return self.call(function, operands, fastmath=self.flags)

    def stack(self, nbytes: int) -> Any:
        """Allocate stack memory, aligned to cache lines; return its address."""
        with self.goto_entry_block():
            memory = self.alloca(_BYTE, WORD(nbytes))
        memory.align = 64
        return self.ptrtoint(memory, WORD)

    def pause(self) -> None:
        """Emit the processor's spin-loop hint, if it has one."""
        if machine() in ("x86_64", "AMD64", "i686"):
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            self.call(self.module.globals.get(name) or ir.Function(self.module, kind, name), [])

    def call_at(self, address: Any, words: Sequence[Any]) -> None:
        """Emit a call of a function at an address; the function returns nothing."""
        kind = ir.FunctionType(ir.VoidType(), [WORD] * len(words))
        self.call(self.inttoptr(address, kind.as_pointer()), words)

    def loaded(self, x: Any, dtype: str) -> Any:
        """Convert a number from its memory representation to its register representation."""
        if dtype == "bool":
            return self.trunc(x, llvm_type("bool"))
        if dtype == "float16":
            return self.fpext(self.bitcast(x, ir.HalfType()), _FLOATS["float32"])
        if dtype == "bfloat16":
            return self.bitcast(self.shl(self.zext(x, _BITS), _BITS(16)), _FLOATS["float32"])
        return x

    def stored(self, x: Any, dtype: str) -> Any:
        """Convert a number from a register to its memory representation, half types rounded to
        even."""
        if dtype == "bool":
            return self.zext(x, _BYTE)
        if dtype == "float16":
            return self.bitcast(self.fptrunc(x, ir.HalfType()), _HALF)
        if dtype == "bfloat16":
            bits = self.bitcast(x, _BITS)
            odd = self.and_(self.lshr(bits, _BITS(16)), _BITS(1))
            nearest = self.add(self.add(bits, _BITS(0x7FFF)), odd)
            nan = self.fcmp_unordered("uno", x, x)
            rounded = self.select(nan, _BITS(0x7FC00000), nearest)
            return self.trunc(self.lshr(rounded, _BITS(16)), _HALF)
        return x

    @staticmethod
    def _kind(operands: Sequence[Any]) -> Any:
        return ir.FunctionType(operands[0].type, [x.type for x in operands])


def llvm_type(dtype: str) -> Any:
    """Return the LLVM type of a number in a register."""
    if dtype == "bool":
        return ir.IntType(1)
    return _FLOATS.get(dtype) or ir.IntType(int(dtype.removeprefix("u").removeprefix("int")))


def register_type(dtype: str) -> str:
    """Return the type in registers of numbers with this type in memory."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def memory_type(memory: Value | StridedMemory) -> Any:
    """Return the LLVM pointer type of an array."""
    kinds = {"bool": _BYTE, "float16": _HALF, "bfloat16": _HALF}
    kind = kinds.get(memory.dtype) or llvm_type(memory.dtype)
    return kind.as_pointer()


def is_float(dtype: str) -> bool:
    """Return True for floating point types."""
    return dtype in _FLOATS


def is_signed(dtype: str) -> bool:
    """Return True for integers with a sign."""
    return dtype.startswith("int")


def convert(at: Builder, value: Value | Literal, dtype: str) -> Value:
    """Convert a number to another type, as C does."""
    if isinstance(value, Literal):
        return Value(llvm_type(dtype)(_literal(value.value, dtype)), dtype)
    if value.dtype == dtype:
        return value
    return Value(_cast(at, value.ir, value.dtype, dtype), dtype)


def _literal(value: float, dtype: str) -> float:
    if is_float(dtype):
        return float(value)
    if dtype == "bool":
        return int(bool(value))
    width = llvm_type(dtype).width
    if not -(1 << width - 1) <= value < 1 << width:  # LLVM would drop the first bits
        raise SyntaxError(f"not in the language: the literal {value} as {dtype}")
    return int(value)


def _cast(at: Builder, x: Any, old: str, new: str) -> Any:
    kind = llvm_type(new)
    if new == "bool":
        return (
            at.fcmp_unordered("!=", x, x.type(0.0))
            if is_float(old)
            else at.icmp_signed("!=", x, x.type(0))
        )
    if is_float(old) and is_float(new):
        return at.fpext(x, kind) if new == "float64" else at.fptrunc(x, kind)
    if is_float(old):
        return _to_integer(at, x, new)
    if is_float(new):
        return at.sitofp(x, kind) if is_signed(old) else at.uitofp(x, kind)
    if kind.width <= x.type.width:
        return x if kind == x.type else at.trunc(x, kind)
    return at.sext(x, kind) if is_signed(old) else at.zext(x, kind)


def _to_integer(at: Builder, x: Any, new: str) -> Any:
    """Emit the conversion of a float to an integer, truncated to the type's bits via 64 bits."""
    if new == "int32":
        return at.fptosi(x, llvm_type(new))
    wide = at.fptosi(x, WORD)
    if new == "uint64":
        wide = at.select(at.fcmp_ordered("<", x, x.type(0.0)), wide, at.fptoui(x, WORD))
    return wide if llvm_type(new) == WORD else at.trunc(wide, llvm_type(new))
