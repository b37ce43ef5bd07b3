"""The copy that writes past the caches, in LLVM's language: `machine/copy.py` says when."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir

from magmath.machine.vectors import VECTOR_BYTES, WORD, Vectors

_UNROLL = 4
_BYTE = ir.IntType(8).as_pointer()


class _Stream(Vectors):
    """Copies bytes between two places that do not overlap, whole aligned vectors but for ends."""

    def __init__(self) -> None:
        super().__init__("float32", "stream")

    def write(self, target: Any, source: Any, nbytes: Any) -> None:
        at = self.builder
        lacking = at.and_(at.neg(target), self.word(VECTOR_BYTES - 1))
        head = at.select(at.icmp_signed("<", lacking, nbytes), lacking, nbytes)
        self._move(target, source, head)
        step = self.word(_UNROLL * VECTOR_BYTES)
        count = at.sdiv(at.sub(nbytes, head), step)
        self._vectors(count, at.add(source, head), at.add(target, head))
        done = at.add(head, at.mul(count, step))
        self._move(at.add(target, done), at.add(source, done), at.sub(nbytes, done))

    def _vectors(self, count: Any, source: Any, target: Any) -> None:
        """Copy `count` times _UNROLL vectors to an aligned place."""
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

    def _move(self, target: Any, source: Any, nbytes: Any) -> None:
        """The C library's memcpy."""
        at = self.builder
        kind = ir.FunctionType(ir.VoidType(), [_BYTE, _BYTE, WORD, ir.IntType(1)])
        name = "llvm.memcpy.p0.p0.i64"
        function = at.module.globals.get(name) or ir.Function(at.module, kind, name)
        places = [at.inttoptr(place, _BYTE) for place in (target, source)]
        at.call(function, [*places, nbytes, ir.Constant(ir.IntType(1), 0)])


INSIDE: Final = {"stream": (_Stream(), ("int64",) * 3)}
CONSTANTS: Final[dict[str, int]] = {}
