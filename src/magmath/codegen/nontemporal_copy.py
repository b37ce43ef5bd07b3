"""The copy with nontemporal stores, in LLVM IR; `codegen/memory_copy.py` decides when to use it.

It interleaves several pages, since accesses to neighbouring cache lines wait for each other.
"""

from __future__ import annotations

from typing import Any, Final, final

import llvmlite.binding as llvm
from llvmlite import ir

from magmath.codegen.vectors import VECTOR_BYTES, WORD, IrFunction, VectorFunction, words
from magmath.core.cpu import PAGE

_PAGES = 4  # that are copied interleaved
_RUN_BYTES = 128  # bytes of a page at a time: two lines, which the processor prefetches as a pair
_BYTE = ir.IntType(8).as_pointer()


@final
class _NontemporalCopy(VectorFunction):
    """Copies bytes between two addresses without overlap, in aligned pages except at the ends."""

    def __init__(self) -> None:
        super().__init__("float32", "stream")

    def write(self, target: Any, source: Any, nbytes: Any) -> None:
        at = self.builder
        to_alignment = at.and_(at.neg(target), self.word(VECTOR_BYTES - 1))
        head = at.select(at.icmp_signed("<", to_alignment, nbytes), to_alignment, nbytes)
        self._move(target, source, head)
        step = self.word(_PAGES * PAGE)
        count = at.sdiv(at.sub(nbytes, head), step)
        self._pages(count, at.add(source, head), at.add(target, head))
        copied = at.add(head, at.mul(count, step))
        self._move(at.add(target, copied), at.add(source, copied), at.sub(nbytes, copied))

    def _pages(self, count: Any, source: Any, target: Any) -> None:
        """Copy `count` groups of _PAGES pages to an aligned address."""
        hint = self.builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        vectors = [
            (first + v) // self.itemsize
            for first in range(0, _PAGES * PAGE, PAGE)
            for v in range(0, _RUN_BYTES, VECTOR_BYTES)
        ]
        with self.loop(count, [source, target]) as groups:
            with self.loop(self.word(PAGE // _RUN_BYTES), list(groups)) as addresses:
                for v in vectors:
                    read, written = (self.plus(address, v) for address in addresses)
                    pointer = self.builder.inttoptr(written, self.kind.as_pointer())
                    store = self.builder.store(self.load(read), pointer, align=VECTOR_BYTES)
                    store.set_metadata("nontemporal", hint)
                addresses[:] = [
                    self.plus(address, _RUN_BYTES // self.itemsize) for address in addresses
                ]
            groups[:] = [self.plus(group, _PAGES * PAGE // self.itemsize) for group in groups]
        if llvm.get_process_triple().startswith("x86_64"):  # nontemporal stores are unordered there
            kind = ir.FunctionType(ir.VoidType(), [])
            fence = self.builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), kind)
            self.builder.call(fence, [])

    def _move(self, target: Any, source: Any, nbytes: Any) -> None:
        """Emit a memcpy."""
        at = self.builder
        kind = ir.FunctionType(ir.VoidType(), [_BYTE, _BYTE, WORD, ir.IntType(1)])
        name = "llvm.memcpy.p0.p0.i64"
        function = at.module.globals.get(name) or ir.Function(at.module, kind, name)
        pointers = [at.inttoptr(address, _BYTE) for address in (target, source)]
        at.call(function, [*pointers, nbytes, ir.Constant(ir.IntType(1), 0)])


IR_FUNCTIONS: Final = {"stream": IrFunction(_NontemporalCopy(), words(3))}
CONSTANTS: Final[dict[str, int]] = {}
