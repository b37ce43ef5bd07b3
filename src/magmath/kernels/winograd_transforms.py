"""The transforms of Winograd's algorithms F(2×2, 3×3) and F(4×4, 3×3), in LLVM IR.

A tile of m×m outputs is y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A for a filter g and the (m+2)×(m+2) inputs d
that it covers (Lavin and Gray, CVPR 2016, eq. 8). The polynomials are evaluated at 0, ±1, ∞, and
for m = 4 also at ½ and -2. These two points have about half the error of ±2, and their product is
-1, so that a transform of the inputs needs 14 additions where ±2 needs more. The normalisation is
in G.

The forms below are one-dimensional; `_Transform` applies one to the columns and then to the rows of
a block, for as many channels at once as a vector has lanes. They are written for any arithmetic, so
that tests compare them with matrices of exact fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from llvmlite import ir

from magmath.codegen.vectors import Vectors

TAPS: Final = 3  # extent of a filter
TILES: Final = (2, 4)  # extents of an output tile


class Arithmetic(Protocol):
    """The operations of the transforms."""

    def plus(self, x: Any, y: Any) -> Any:
        """Return x + y."""

    def minus(self, x: Any, y: Any) -> Any:
        """Return x - y."""

    def scaled(self, factor: float, x: Any) -> Any:
        """Return factor · x."""

    def multiply_add(self, factor: float, x: Any, y: Any) -> Any:
        """Return factor · x + y."""


Form = Callable[[Arithmetic, Sequence[Any]], list[Any]]


# F(2, 3) at 0, 1, -1, ∞ -------------------------------------------------------------------------


def _inputs_2(a: Arithmetic, d: Sequence[Any]) -> list[Any]:
    return [a.minus(d[2], d[0]), a.plus(d[2], d[1]), a.minus(d[2], d[1]), a.minus(d[3], d[1])]


def _filters_2(a: Arithmetic, g: Sequence[Any]) -> list[Any]:
    outer, middle = a.scaled(0.5, a.plus(g[0], g[2])), a.scaled(0.5, g[1])
    return [a.scaled(-1.0, g[0]), a.plus(outer, middle), a.minus(outer, middle), g[2]]


def _outputs_2(a: Arithmetic, m: Sequence[Any]) -> list[Any]:
    return [a.plus(m[0], a.plus(m[1], m[2])), a.plus(a.minus(m[1], m[2]), m[3])]


def _cotangents_2(a: Arithmetic, y: Sequence[Any]) -> list[Any]:
    return [y[0], a.plus(y[0], y[1]), a.minus(y[0], y[1]), y[1]]


def _weights_2(a: Arithmetic, u: Sequence[Any]) -> list[Any]:
    both = a.scaled(0.5, a.plus(u[1], u[2]))
    return [a.minus(both, u[0]), a.scaled(0.5, a.minus(u[1], u[2])), a.plus(both, u[3])]


# F(4, 3) at 0, 1, -1, ½, -2, ∞ ------------------------------------------------------------------


def _inputs_4(a: Arithmetic, d: Sequence[Any]) -> list[Any]:
    s0, s1, s2, s3 = (a.minus(d[i + 2], d[i]) for i in range(4))
    low, high = a.multiply_add(1.5, d[2], s1), a.multiply_add(1.5, d[3], s2)
    return [
        a.minus(a.multiply_add(1.5, s1, s2), s0),
        a.plus(high, low),
        a.minus(high, low),
        a.multiply_add(2.0, s1, s2),
        a.multiply_add(-0.5, s1, s2),
        a.minus(a.multiply_add(1.5, s2, s3), s1),
    ]


def _filters_4(a: Arithmetic, g: Sequence[Any]) -> list[Any]:
    outer, middle = a.scaled(1 / 3, a.plus(g[0], g[2])), a.scaled(1 / 3, g[1])
    at_half = a.multiply_add(0.25, g[2], a.multiply_add(0.5, g[1], g[0]))
    at_minus_2 = a.multiply_add(4.0, g[2], a.multiply_add(-2.0, g[1], g[0]))
    return [
        g[0],
        a.plus(outer, middle),
        a.minus(middle, outer),
        a.scaled(-16 / 15, at_half),
        a.scaled(1 / 15, at_minus_2),
        g[2],
    ]


def _outputs_4(a: Arithmetic, m: Sequence[Any]) -> list[Any]:
    even, odd = a.plus(m[1], m[2]), a.minus(m[1], m[2])
    return [
        a.plus(a.plus(m[0], even), a.plus(m[3], m[4])),
        a.multiply_add(-2.0, m[4], a.multiply_add(0.5, m[3], odd)),
        a.multiply_add(4.0, m[4], a.multiply_add(0.25, m[3], even)),
        a.plus(a.multiply_add(-8.0, m[4], a.multiply_add(0.125, m[3], odd)), m[5]),
    ]


def _cotangents_4(a: Arithmetic, y: Sequence[Any]) -> list[Any]:
    even, odd = a.plus(y[0], y[2]), a.plus(y[1], y[3])
    at_half = a.multiply_add(0.125, y[3], a.multiply_add(0.25, y[2], y[0]))
    at_minus_2 = a.multiply_add(-8.0, y[3], a.multiply_add(4.0, y[2], y[0]))
    return [
        y[0],
        a.plus(even, odd),
        a.minus(even, odd),
        a.multiply_add(0.5, y[1], at_half),
        a.multiply_add(-2.0, y[1], at_minus_2),
        y[3],
    ]


def _weights_4(a: Arithmetic, u: Sequence[Any]) -> list[Any]:
    outer = a.scaled(1 / 3, a.minus(u[1], u[2]))
    middle = a.scaled(1 / 3, a.plus(u[1], u[2]))
    first = a.multiply_add(1 / 15, u[4], a.multiply_add(-16 / 15, u[3], a.plus(u[0], outer)))
    second = a.multiply_add(-2 / 15, u[4], a.multiply_add(-8 / 15, u[3], middle))
    third = a.multiply_add(4 / 15, u[4], a.multiply_add(-4 / 15, u[3], a.plus(outer, u[5])))
    return [first, second, third]


@dataclass(frozen=True)
class Forms:
    """The one-dimensional transforms of one algorithm, with the field's names of their matrices.

    inputs Bᵀ, filters G, outputs Aᵀ; for the gradient of the filter, cotangents A and weights Gᵀ.
    """

    inputs: Form
    filters: Form
    outputs: Form
    cotangents: Form
    weights: Form


FORMS: Final = {
    2: Forms(_inputs_2, _filters_2, _outputs_2, _cotangents_2, _weights_2),
    4: Forms(_inputs_4, _filters_4, _outputs_4, _cotangents_4, _weights_4),
}
"""The transforms by the extent of an output tile."""


# code -------------------------------------------------------------------------------------------


class _VectorArithmetic:
    """Emits the operations of a transform, on vectors."""

    def __init__(self, code: Vectors) -> None:
        self._code, self._at = code, code.builder

    def plus(self, x: Any, y: Any) -> Any:
        return self._at.fadd(x, y)

    def minus(self, x: Any, y: Any) -> Any:
        return self._at.fsub(x, y)

    def scaled(self, factor: float, x: Any) -> Any:
        return self._at.fneg(x) if factor == -1.0 else self._at.fmul(self._constant(factor), x)

    def multiply_add(self, factor: float, x: Any, y: Any) -> Any:
        return self._code.fma(self._constant(factor), x, y)

    def _constant(self, factor: float) -> Any:
        return ir.Constant(self._code.kind, [factor] * self._code.width)


class _Transform(Vectors):
    """The code of a two-dimensional transform for a number of blocks in sequence.

    One side is a grid, in which the vectors of a row are contiguous. The other side has one vector
    for each position of the transformed block, at equal distances.
    """

    def __init__(self, name: str, form: Form, extent: int, *, from_grid: bool) -> None:
        super().__init__("float32", name)
        self.form, self.extent, self.from_grid = form, extent, from_grid

    def write(
        self, count: Any, grid: Any, row: Any, advance: Any, positions: Any, stride: Any, step: Any
    ) -> None:
        with self.loop(count, [grid, positions]) as state:
            reader, writer = (self._grid, self._positions)[:: 1 if self.from_grid else -1]
            source, target = state if self.from_grid else reversed(state)
            pitch, other = (row, stride)[:: 1 if self.from_grid else -1]
            block = [list(map(self.load, line)) for line in reader(source, pitch, self.extent)]
            result = self._transformed(block)
            lines = writer(target, other, len(result))
            for line, values in zip(lines, result, strict=True):
                for address, value in zip(line, values, strict=True):
                    self.store(value, address)
            state[:] = [self.plus(state[0], advance), self.plus(state[1], step)]

    def _transformed(self, block: list[list[Any]]) -> list[list[Any]]:
        """Return the form of the columns, then of the rows, of a square block."""
        arithmetic = _VectorArithmetic(self)
        columns = [self.form(arithmetic, column) for column in zip(*block, strict=True)]
        return [self.form(arithmetic, line) for line in zip(*columns, strict=True)]

    def _grid(self, start: Any, row: Any, extent: int) -> list[list[Any]]:
        """Return the addresses of a block of a grid."""
        lines = [self.plus(start, self.builder.mul(row, self.word(i))) for i in range(extent)]
        return [[self.plus(line, j * self.width) for j in range(extent)] for line in lines]

    def _positions(self, start: Any, stride: Any, extent: int) -> list[list[Any]]:
        """Return the addresses of the positions of a transformed block."""
        nbytes = self.builder.mul(stride, self.word(self.itemsize))
        addresses = [start]
        while len(addresses) < extent**2:
            addresses.append(self.builder.add(addresses[-1], nbytes))
        return [addresses[i * extent : (i + 1) * extent] for i in range(extent)]


_NAMES: Final = {
    "inputs": True, "filters": True, "cotangents": True, "outputs": False, "weights": False,
}  # fmt: skip
"""The transforms, and whether they read a grid (otherwise they write one)."""


def _extent(name: str, tile: int) -> int:
    """Return the extent of the block that a transform reads."""
    return {"filters": TAPS, "cotangents": tile}.get(name, tile + TAPS - 1)


def _transform(name: str, tile: int) -> _Transform:
    form = getattr(FORMS[tile], name)
    return _Transform(f"winograd_{name}_{tile}", form, _extent(name, tile), from_grid=_NAMES[name])


INSIDE: Final = {
    f"{name}_{tile}": (_transform(name, tile), ("int64",) * 7) for tile in TILES for name in _NAMES
}
"""The functions that the outer loops call: `transform(count, grid, row, advance, positions, stride,
step)`, with addresses of the grid and of the positions, and distances in elements: `row` between
rows of the grid, `stride` between positions, `advance` and `step` from one block to the next on
either side. The vectors of a row of the grid are contiguous; the positions are numbered by rows.
"""

CONSTANTS: Final = {"TAPS": TAPS}
"""Constants for the outer loops."""
