"""What the compiler computes with: typed numbers, literals, memory, and conversions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

WORD = ir.IntType(64)
_BYTE = ir.IntType(8)
_FLOATS = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
FAST = ("contract", "reassoc", "nsz", "arcp")
"""Floating-point arithmetic of programs: it may be reordered, as sums over several workers are."""
EXACT = ("contract",)
"""That of functions which rely on the order."""


@dataclass(frozen=True)
class Value:
    """A number in a register, of one of NumPy's types."""

    ir: Any
    dtype: str

    def holding(self, content: Any) -> Value:
        return replace(self, ir=content)


@dataclass(frozen=True)
class Number:
    """A literal: it takes the type of what it meets."""

    value: float

    @property
    def dtype(self) -> str:
        """The type that it has by itself."""
        if isinstance(self.value, bool):
            return "bool"
        return "int64" if isinstance(self.value, int) else "float64"


@dataclass(frozen=True)
class Memory:
    """The address of an array's first element, and the elements between neighbours."""

    ir: Any
    dtype: str
    strides: tuple[int, ...]

    def holding(self, content: Any) -> Memory:
        return replace(self, ir=content)


class Builder(ir.IRBuilder):  # type: ignore[misc]
    """LLVM's builder, with the flags that floating-point arithmetic gets."""

    def __init__(self, block: Any, flags: Sequence[str]) -> None:
        super().__init__(block)
        self.flags = flags

    def floating(self, name: str, *operands: Any) -> Any:
        return getattr(self, name)(*operands, flags=self.flags)

    def alloca_in_entry(self, kind: Any) -> Any:
        with self.goto_entry_block():
            return self.alloca(kind)

    def intrinsic(self, name: str, *operands: Any) -> Any:
        """A call of one of LLVM's functions that are named after their operands' type."""
        kind = operands[0].type
        function = self.module.declare_intrinsic(f"llvm.{name}", [kind], self._kind(operands))
        return self.call(function, operands, fastmath=self.flags)

    def outside(self, name: str, *operands: Any) -> Any:
        """A call of a function of the C library without side effects."""
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, self._kind(operands), name)
            found.attributes.add("nounwind")
            found.attributes.add("readnone")
        return self.call(found, operands, fastmath=self.flags)

    @staticmethod
    def _kind(operands: Sequence[Any]) -> Any:
        return ir.FunctionType(operands[0].type, [x.type for x in operands])


def llvm_type(dtype: str) -> Any:
    """The type of a number in a register."""
    if dtype == "bool":
        return ir.IntType(1)
    return _FLOATS.get(dtype) or ir.IntType(int(dtype.removeprefix("u").removeprefix("int")))


def stored_type(dtype: str) -> Any:
    """The type of a number in memory."""
    return _BYTE if dtype == "bool" else llvm_type(dtype)


def memory_type(memory: Memory) -> Any:
    return stored_type(memory.dtype).as_pointer()


def is_float(dtype: str) -> bool:
    return dtype in _FLOATS


def is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


def convert(at: Builder, value: Value | Number, dtype: str) -> Value:
    """The number in another type, as C converts."""
    if isinstance(value, Number):
        return Value(llvm_type(dtype)(_literal(value.value, dtype)), dtype)
    if value.dtype == dtype:
        return value
    return Value(_cast(at, value.ir, value.dtype, dtype), dtype)


def _literal(value: float, dtype: str) -> float:
    if is_float(dtype):
        return float(value)
    return int(bool(value)) if dtype == "bool" else int(value)


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
        return _whole(at, x, new)
    if is_float(new):
        return at.sitofp(x, kind) if is_signed(old) else at.uitofp(x, kind)
    if kind.width <= x.type.width:
        return x if kind == x.type else at.trunc(x, kind)
    return at.sext(x, kind) if is_signed(old) else at.zext(x, kind)


def _whole(at: Builder, x: Any, new: str) -> Any:
    """The integer part, cut to the type's bits as processors do by way of 64 bits."""
    if new == "int32":
        return at.fptosi(x, llvm_type(new))
    wide = at.fptosi(x, WORD)
    if new == "uint64":
        wide = at.select(at.fcmp_ordered("<", x, x.type(0.0)), wide, at.fptoui(x, WORD))
    return wide if llvm_type(new) == WORD else at.trunc(wide, llvm_type(new))
