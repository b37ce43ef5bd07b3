"""What Numba lacks for work on raw memory: pointers, sizes of numbers, memory on the stack."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, address: Any, like: Any) -> Any:
    """The address as a pointer to numbers of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.inttoptr(arguments[0], kind)

    return types.CPointer(like)(types.uintp, like), generate


@intrinsic  # type: ignore[untyped-decorator]
def address(typing_context: Any, array: Any) -> Any:
    """The address of an array's first element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.intp(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def itemsize(typing_context: Any, like: Any) -> Any:
    """The bytes of a number of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(types.intp, like.bitwidth // 8)

    return types.intp(like), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def number(typing_context: Any, value: Any, like: Any) -> Any:
    """A literal whole number in the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(like, value.literal_value)

    return like(value, like), generate


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def stack_bytes(typing_context: Any, count: Any) -> Any:
    """The address of some bytes (a literal number) on the stack, until the function returns."""
    size = ir.Constant(ir.IntType(64), count.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        with builder.goto_entry_block():
            memory = builder.alloca(ir.IntType(8), size)
        memory.align = 64
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.intp(count), generate
