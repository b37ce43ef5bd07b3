"""Copies of memory at the machine's speed, by compiled code and without Python in between.

A copy that does not fit into the caches writes past them: an ordinary store first reads the line
that it is about to overwrite, which is a third of the traffic.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from magmath.machine.vectors import VECTOR_BYTES, WORD, Vectors

STREAMED = 1 << 22  # bytes from which on a copy writes past the caches
_UNROLL = 4


class _Stream(Vectors):
    """The code that copies whole vectors to an aligned place, past the caches."""

    def __init__(self) -> None:
        super().__init__("float32", "stream")

    def write(self, count: Any, source: Any, target: Any) -> None:
        """Copy `count` times _UNROLL vectors."""
        past = self.builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        with self.loop(count, [source, target]) as places:
            for v in range(_UNROLL):
                have, want = (self.plus(place, v * self.width) for place in places)
                pointer = self.builder.inttoptr(want, self.kind.as_pointer())
                store = self.builder.store(self.load(have), pointer, align=VECTOR_BYTES)
                store.set_metadata("nontemporal", past)
            places[:] = [self.plus(place, _UNROLL * self.width) for place in places]
        if llvm.get_process_triple().startswith("x86_64"):  # such stores are in no order there
            kind = ir.FunctionType(ir.VoidType(), [])
            fence = self.builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), kind)
            self.builder.call(fence, [])


@intrinsic  # type: ignore[untyped-decorator]
def _stream(typing_context: Any, count: Any, source: Any, target: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.call(_Stream().function(builder.module, [WORD] * 3), arguments)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _move(typing_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """The C library's memcpy."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, at = (builder.inttoptr(value, byte) for value in arguments[:2])
        kind = ir.FunctionType(ir.VoidType(), [byte, byte, WORD, ir.IntType(1)])
        name = "llvm.memcpy.p0.p0.i64"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [to, at, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def stream(target: int, source: int, nbytes: int) -> None:
    """Copy bytes past the caches, between two places that do not overlap."""
    head = min(-target % VECTOR_BYTES, nbytes)
    _move(target, source, head)
    count = (nbytes - head) // (_UNROLL * VECTOR_BYTES)
    _stream(count, source + head, target + head)
    done = head + count * _UNROLL * VECTOR_BYTES
    _move(target + done, source + done, nbytes - done)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def copy(target: int, source: int, nbytes: int) -> None:
    """Copy bytes between two places that do not overlap, given by their addresses."""
    if nbytes < STREAMED:
        _move(target, source, nbytes)
    else:
        stream(target, source, nbytes)
