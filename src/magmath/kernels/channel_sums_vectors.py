"""The innermost loops of sums over channels, in LLVM IR: two float64 sums of each element.

The terms of x are x and x², those of g and x are g and g·(x - m). The sums stay in registers.
"""

from __future__ import annotations

from typing import Any, Final, final

from llvmlite import ir

from magmath.codegen.vectors import ITEMSIZE, VECTOR_BYTES, IrFunction, VectorFunction, words

BLOCK: Final = 4  # vectors of channels that are added at a time


class _Sums(VectorFunction):
    """The addition of the terms of a vector to two vectors of float64 sums."""

    def __init__(self, dtype: str, name: str, *, dot: bool) -> None:
        super().__init__(dtype, f"{name}_{'dot' if dot else 'squares'}")
        self.dot = dot
        self.wide = ir.VectorType(ir.DoubleType(), self.width)
        self.no_sums = ir.Constant(self.wide, [0.0] * self.width)

    def widened(self, x: Any) -> Any:
        """Emit the conversion of a vector to float64."""
        return x if x.type == self.wide else self.builder.fpext(x, self.wide)

    def added(self, sums: list[Any], x: Any, g: Any, mean: Any, mask: Any) -> list[Any]:
        """Emit the sums plus the terms of the vectors at the addresses x and g."""
        value = factor = self.widened(self.load(x, mask))
        if self.dot:
            value, factor = self.widened(self.load(g, mask)), self.builder.fsub(factor, mean)
        name, module = f"llvm.fma.v{self.width}f64", self.builder.module
        kind = ir.FunctionType(self.wide, [self.wide] * 3)
        fma = module.globals.get(name) or ir.Function(module, kind, name)
        return [self.builder.fadd(sums[0], value), self.builder.call(fma, [value, factor, sums[1]])]

    def pointer(self, address: Any) -> Any:
        """Emit a pointer to a vector of sums."""
        return self.builder.inttoptr(address, self.wide.as_pointer())


@final
class _Pixels(_Sums):
    """The code that adds rows of channels to their sums in memory: `vectors` full vectors, or one
    of `lanes` channels."""

    def __init__(self, dtype: str, name: str, *, dot: bool, vectors: int) -> None:
        super().__init__(dtype, name, dot=dot)
        self.vectors = vectors

    def write(
        self, rows: Any, x: Any, g: Any, pitch: Any, means: Any, first: Any, second: Any, lanes: Any
    ) -> None:
        at, nbytes = self.builder, 8 * self.width
        mask = None if self.vectors > 1 else self.first_lanes(lanes)
        steps = [v * self.width for v in range(self.vectors)]
        mean = [
            self.widened(self.load(self.plus(means, step), mask)) if self.dot else None
            for step in steps
        ]
        with self.loop(rows, [x, g, *[self.no_sums] * (2 * self.vectors)]) as state:
            for v, step in enumerate(steps):
                sums = slice(2 + 2 * v, 4 + 2 * v)
                at_x, at_g = (self.plus(address, step) for address in state[:2])
                state[sums] = self.added(state[sums], at_x, at_g, mean[v], mask)
            state[:2] = [self.plus(address, pitch) for address in state[:2]]
        for v in range(self.vectors):
            for address, total in zip((first, second), state[2 + 2 * v :], strict=False):
                pointer = self.pointer(at.add(address, self.word(v * nbytes)))
                at.store(at.fadd(at.load(pointer, align=8), total), pointer, align=8)


@final
class _Plane(_Sums):
    """The code that stores the sums of each lane of a contiguous range of numbers."""

    def write(self, count: Any, x: Any, g: Any, mean: Any, sums: Any) -> None:
        at, width = self.builder, self.word(self.width)
        wide = self.widened(self.number_at(mean)) if self.dot else None
        vectors = at.sdiv(at.add(count, self.word(self.width - 1)), width)
        with self.loop(vectors, [x, g, count, self.no_sums, self.no_sums]) as state:
            state[3:] = self.added(state[3:], state[0], state[1], wide, self.first_lanes(state[2]))
            state[:3] = [
                *[self.plus(address, self.width) for address in state[:2]],
                at.sub(state[2], width),
            ]
        for i, total in enumerate(state[3:]):
            at.store(total, self.pointer(at.add(sums, self.word(8 * self.width * i))), align=8)


def _functions(dtype: str, *, dot: bool) -> dict[str, IrFunction]:
    ending = f"{'dot' if dot else 'squares'}_{dtype}"
    return {
        f"add_pixels_{ending}": IrFunction(
            _Pixels(dtype, "add_pixels", dot=dot, vectors=1), words(8)
        ),
        f"add_block_{ending}": IrFunction(
            _Pixels(dtype, "add_block", dot=dot, vectors=BLOCK), words(8)
        ),
        f"add_plane_{ending}": IrFunction(_Plane(dtype, "add_plane", dot=dot), words(5)),
    }


IR_FUNCTIONS: Final = {
    name: function
    for dtype in ITEMSIZE
    for dot in (False, True)
    for name, function in _functions(dtype, dot=dot).items()
}
"""The functions that the outer loops call, for the terms "squares" and "dot" of each type.

`add_pixels_…(rows, x, g, pitch, means, first, second, lanes)` adds the terms of `lanes` channels,
of at most the vector width, of rows at a distance `pitch` in elements, to the float64 sums at
`first` and `second`, of which it writes a whole vector; `add_block_…` those of BLOCK vectors.
`add_plane_…(count, x, g, mean, sums)` stores the two sums of each lane of `count` numbers.
"""

CONSTANTS: Final = {
    **{f"WIDTH_{dtype}": VECTOR_BYTES // size for dtype, size in ITEMSIZE.items()},
    "BLOCK": BLOCK,
}
"""Constants for the outer loops."""
