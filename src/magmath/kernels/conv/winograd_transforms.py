"""Winograd's algorithms for 3×3 and 5×5 filters, and their two-dimensional transforms in LLVM IR.

`kernels/conv/winograd_forms.py` has the one-dimensional transforms; `_Transform` applies one to the
columns and then to the rows of a block, for as many channels at once as a vector has lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from llvmlite import ir

from magmath.codegen.vectors import IrFunction, VectorFunction, words
from magmath.kernels.conv.winograd_forms import (
    F_2_3,
    F_2_5,
    F_3_2,
    F_4_2,
    F_4_3,
    Form,
    Forms,
    strided,
    transposed,
)

TAPS: Final = 3  # extent of most filters


@final
@dataclass(frozen=True)
class WinogradAlgorithm:
    """The transforms of an algorithm, and its sizes along one side.

    tile        pixels of the target, which is computed tile by tile
    covered     pixels of the source from which a tile is computed
    step        pixels of the source from one tile to the next
    positions   elements of a transformed filter. Each has an element of the transformed inputs, of
                which there are `inputs`, and one of the `products`; where there are fewer of these,
                the positions from this number on have the elements from 0 on again
    taps        elements of a filter
    """

    forms: Forms
    tile: int
    covered: int
    step: int
    positions: int
    inputs: int
    products: int
    taps: int = TAPS


def _with_stride_1(forms: Forms, tile: int, taps: int = TAPS) -> WinogradAlgorithm:
    extent = tile + taps - 1
    return WinogradAlgorithm(forms, tile, extent, tile, extent, extent, extent, taps)


_OF_TWO_TAPS: Final = {3: F_3_2, 4: F_4_2}

ALGORITHMS: Final = {
    "2": _with_stride_1(F_2_3, 2),
    "4": _with_stride_1(F_4_3, 4),
    "2_5": _with_stride_1(F_2_5, 2, 5),
    **{
        f"{m}_strided": WinogradAlgorithm(
            strided(forms, m), m, 2 * m + 1, 2 * m, 2 * m + 1, 2 * m + 1, m + 1
        )
        for m, forms in _OF_TWO_TAPS.items()
    },
    **{
        f"{m}_transposed": WinogradAlgorithm(
            transposed(forms, m), 2 * m, m + 1, m, 2 * m + 1, m + 1, 2 * m + 1
        )
        for m, forms in _OF_TWO_TAPS.items()
    },
}
"""The algorithms: of stride 1 by the extent of a tile, and of a filter unless it is 3; of stride 2,
and the gradient of its inputs, by the outputs of a tile along a side."""


# code -------------------------------------------------------------------------------------------


@final
class _VectorArithmetic:
    """Emits the operations of a transform, on vectors."""

    def __init__(self, code: VectorFunction) -> None:
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


@final
class _Transform(VectorFunction):
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
            pitch, target_pitch = (row, stride)[:: 1 if self.from_grid else -1]
            block = [list(map(self.load, line)) for line in reader(source, pitch, self.extent)]
            result = self._transformed(block)
            lines = writer(target, target_pitch, len(result))
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


def _transforms(name: str, algorithm: WinogradAlgorithm) -> Iterator[tuple[str, _Transform]]:
    """Yield the names and the code of an algorithm's transforms."""
    for kind, from_grid in _NAMES.items():
        form = getattr(algorithm.forms, kind)
        if form is not None:
            extent = {
                "inputs": algorithm.covered, "filters": algorithm.taps,
                "cotangents": algorithm.tile, "outputs": algorithm.products,
                "weights": algorithm.positions,
            }[kind]  # fmt: skip
            full = f"{kind}_{name}"
            yield full, _Transform(f"winograd_{full}", form, extent, from_grid=from_grid)


IR_FUNCTIONS: Final = {
    name: IrFunction(transform, words(7))
    for key, algorithm in ALGORITHMS.items()
    for name, transform in _transforms(key, algorithm)
}
"""The functions that the outer loops call: `transform(count, grid, row, advance, positions, stride,
step)`, with addresses of the grid and of the positions, and distances in elements: `row` between
rows of the grid, `stride` between positions, `advance` and `step` from one block to the next on
either side. The vectors of a row of the grid are contiguous; the positions are numbered by rows.
"""

CONSTANTS: Final[dict[str, int]] = {}
"""Constants for the outer loops: none, since those of an algorithm are its own."""
