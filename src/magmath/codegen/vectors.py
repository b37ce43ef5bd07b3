"""Vector code in LLVM IR, for innermost loops such as those of matrix products.

The code is independent of the processor: a vector is as wide as the host's registers, and LLVM
emits AVX-512, AVX2 or NEON. Addresses are integers, offsets are in elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, final

import llvmlite.binding as llvm
from llvmlite import ir

from magmath.core.debugging import debugging

WORD = ir.IntType(64)
_INDEX = ir.IntType(32)
_ELEMENTS = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
ITEMSIZE = {"float32": 4, "float64": 8}


def _vector_bytes() -> int:
    """Return the bytes of a vector register of this processor, unless MAGMATH_DEBUG has another
    number."""
    features = llvm.get_host_cpu_features()
    width = 64 if features.get("avx512f") else 32 if features.get("avx") else 16
    return debugging().vectors or width


VECTOR_BYTES: Final = _vector_bytes()
REGISTERS: Final = 16 if VECTOR_BYTES == 32 else 32
"""The vector registers of AVX-512, AVX or NEON; SSE has half as many as NEON, and spills."""


class VectorFunction(ABC):
    """A function in LLVM IR on vectors of one element type; `write` emits its code at `builder`."""

    builder: ir.IRBuilder

    def __init__(self, dtype: str, name: str) -> None:
        self.name = f"magmath_{name}_{dtype}"
        self.element = _ELEMENTS[dtype]
        self.itemsize = ITEMSIZE[dtype]
        self.width = VECTOR_BYTES // self.itemsize
        self.kind = ir.VectorType(self.element, self.width)
        self.zero = ir.Constant(self.kind, [0.0] * self.width)

    @abstractmethod
    def write(self, *arguments: Any) -> None:
        """Emit the code of the function."""

    def function(self, module: ir.Module, arguments: Sequence[ir.Type]) -> Any:
        """Return the function in a module; emit it first if it is missing."""
        kind = ir.FunctionType(ir.VoidType(), arguments)
        function = module.globals.get(self.name) or ir.Function(module, kind, self.name)
        if function.is_declaration:
            function.linkage = "internal"
            function.attributes.add("noinline")
            self.builder = ir.IRBuilder(function.append_basic_block())
            self.write(*function.args)
            self.builder.ret_void()
        return function

    # numbers and addresses ------------------------------------------------------------------

    def word(self, value: int) -> Any:
        """Return an integer constant."""
        return ir.Constant(WORD, value)

    def plus(self, address: Any, elements: Any) -> Any:
        """Emit an address plus a number of elements, given as a Python integer or a value."""
        if isinstance(elements, int):
            return self.builder.add(address, self.word(elements * self.itemsize))
        return self.builder.add(address, self.builder.mul(elements, self.word(self.itemsize)))

    def splat(self, value: Any) -> Any:
        """Emit a vector with a number in every lane."""
        undefined = ir.Constant(ir.VectorType(value.type, self.width), ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(_INDEX, 0))
        return self.shuffle(first, undefined, [0] * self.width)

    def shuffle(self, x: Any, y: Any, lanes: Sequence[int]) -> Any:
        """Emit a shuffle of the lanes of x and y, by number."""
        mask = ir.Constant(ir.VectorType(_INDEX, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(x, y, mask)

    def transposed(self, block: Sequence[Any]) -> list[Any]:
        """Emit the transpose of a square block, given and returned by rows: perfect shuffles of
        the rows."""
        rows, half = list(block), self.width // 2
        lanes = [lane for i in range(self.width) for lane in (i, self.width + i)]
        for _ in range(self.width.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:], strict=True)
            halves = (lanes[: self.width], lanes[self.width :])
            rows = [self.shuffle(x, y, chosen) for x, y in pairs for chosen in halves]
        return rows

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """Emit x · y + z, rounded once."""
        return self._call("fma", self.kind, [x, y, z])

    def opaque(self, value: Any) -> Any:
        """Emit a copy of an integer whose origin LLVM cannot see.

        So it stays in a register. For equidistant addresses, LLVM would keep one in a register and
        recompute the others each time, in units that the multiplications need.
        """
        return self.builder.asm(ir.FunctionType(WORD, [WORD]), "", "=r,0", [value], False)

    # memory ---------------------------------------------------------------------------------

    def number_at(self, address: Any) -> Any:
        """Emit a vector with the number at an address in every lane."""
        pointer = self.builder.inttoptr(address, self.element.as_pointer())
        return self.splat(self.builder.load(pointer))

    def load(self, address: Any, mask: Any = None) -> Any:
        """Emit a load of a vector; lanes outside a mask are 0, and their memory is not read."""
        pointer = self.builder.inttoptr(address, self.kind.as_pointer())
        if mask is None:
            return self.builder.load(pointer, align=self.itemsize)
        align = ir.Constant(_INDEX, self.itemsize)
        return self._call("masked.load", self.kind, [pointer, align, mask, self.zero], ".p0")

    def store(self, value: Any, address: Any, mask: Any = None) -> None:
        """Emit a store of a vector, restricted to the lanes of a mask if one is given."""
        pointer = self.builder.inttoptr(address, self.kind.as_pointer())
        if mask is None:
            self.builder.store(value, pointer, align=self.itemsize)
        else:
            align = ir.Constant(_INDEX, self.itemsize)
            self._call("masked.store", ir.VoidType(), [value, pointer, align, mask], ".p0")

    def prefetch(self, address: Any, locality: int = 3) -> None:
        """Emit a prefetch of the cache line at an address, to the first-level cache (`locality` 3)
        or the second (2)."""
        byte, flag = ir.IntType(8).as_pointer(), _INDEX
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        name, module = "llvm.prefetch.p0", self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        pointer = self.builder.inttoptr(address, byte)
        self.builder.call(function, [pointer, flag(0), flag(locality), flag(1)])  # to read, data

    def first_lanes(self, count: Any) -> Any:
        """Emit the mask of the first `count` lanes."""
        counts = self.splat(self.builder.trunc(count, _INDEX))
        return self.builder.icmp_signed(
            "<", ir.Constant(counts.type, list(range(self.width))), counts
        )

    def _call(self, routine: str, result: ir.Type, arguments: list[Any], suffix: str = "") -> Any:
        name = f"llvm.{routine}.v{self.width}f{8 * self.itemsize}{suffix}"
        kind = ir.FunctionType(result, [x.type for x in arguments])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, arguments)

    # control --------------------------------------------------------------------------------

    def when(self, condition: Any, values: list[Any], change: Callable[[], list[Any]]) -> list[Any]:
        """Emit a conditional: the result of `change` if the condition holds, otherwise the
        values."""
        b, before = self.builder, self.builder.block
        then, after = b.append_basic_block("then"), b.append_basic_block("after")
        b.cbranch(condition, then, after)
        b.position_at_end(then)
        changed = change()
        end = b.block
        b.branch(after)
        b.position_at_end(after)
        return [self._either(x, before, y, end) for x, y in zip(values, changed, strict=True)]

    @contextmanager
    def loop(self, count: Any, state: list[Any]) -> Iterator[list[Any]]:
        """Emit a loop of `count` iterations. Yields the state, a list that the body changes in
        place.

        Afterwards the list contains the state after the last iteration.
        """
        b, before = self.builder, self.builder.block
        body, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.cbranch(b.icmp_signed(">", count, self.word(0)), body, after)
        b.position_at_end(body)
        begun = [(b.phi(value.type), value) for value in (count, *state)]
        remaining, *current = [phi for phi, _ in begun]
        yield current
        less, end = b.sub(remaining, self.word(1)), b.block
        for (phi, start), value in zip(begun, (less, *current), strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, end)
        b.cbranch(b.icmp_signed(">", less, self.word(0)), body, after)
        b.position_at_end(after)
        current[:] = [self._either(x, before, y, end) for x, y in zip(state, current, strict=True)]

    def unrolled(self, count: Any, steps: int) -> list[tuple[Any, int]]:
        """Emit the numbers of iterations of `steps` steps, and of one step for the others."""
        at, size = self.builder, self.word(steps)
        return [(at.sdiv(count, size), steps), (at.srem(count, size), 1)]

    def _either(self, x: Any, before: Any, y: Any, end: Any) -> Any:
        """Emit the value x if control comes from the block `before`, and y if from `end`."""
        phi = self.builder.phi(x.type)
        phi.add_incoming(x, before)
        phi.add_incoming(y, end)
        return phi


@final
class IrFunction(NamedTuple):
    """A function that is written in LLVM IR and returns nothing: its code, and the types of its
    arguments."""

    code: VectorFunction
    arguments: Sequence[str]


def words(count: int) -> tuple[str, ...]:
    """Return the types of `count` arguments that are integers or addresses."""
    return ("int64",) * count
