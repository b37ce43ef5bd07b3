"""Moves between images and vectors of channels, in LLVM IR, for convolutions.

A grid has one vector of channels for each pixel. Images have any strides; the pixels of a row of
one channel are contiguous (NCHW) or the channels of one pixel are (channels last).
"""

from __future__ import annotations

from typing import Any, Final, final

from magmath.codegen.vectors import VECTOR_BYTES, IrFunction, VectorFunction, words


@final
class _Pixels(VectorFunction):
    """The code that copies the channels of pixels between an image and a grid."""

    def __init__(self, name: str, *, to_grid: bool) -> None:
        super().__init__("float32", name)
        self.to_grid = to_grid

    def write(self, count: Any, image: Any, pitch: Any, grid: Any, lanes: Any) -> None:
        mask = self.first_lanes(lanes)
        with self.loop(count, [image, grid]) as state:
            pixel, vector = state
            if self.to_grid:
                self.store(self.load(pixel, mask), vector)
            else:
                self.store(self.load(vector), pixel, mask)
            state[:] = [self.plus(pixel, pitch), self.plus(vector, self.width)]


@final
class _Zeros(VectorFunction):
    """The code that stores vectors of zeros."""

    def write(self, count: Any, grid: Any) -> None:
        with self.loop(count, [grid]) as state:
            self.store(self.zero, state[0])
            state[:] = [self.plus(state[0], self.width)]


@final
class _Transpose(VectorFunction):
    """The code that transposes a block of at most `width` rows and columns."""

    def write(
        self, rows: Any, columns: Any, source: Any, lds: Any, target: Any, ldt: Any, lanes: Any
    ) -> None:
        at = self.builder
        extents = at.add(rows, at.add(columns, lanes))
        whole = at.icmp_signed("==", extents, self.word(3 * self.width))
        then, otherwise, after = (at.append_basic_block(n) for n in ("whole", "part", "after"))
        at.cbranch(whole, then, otherwise)
        at.position_at_end(then)
        unmasked = [None] * self.width
        self._move(source, lds, unmasked, target, ldt, unmasked)
        at.branch(after)
        at.position_at_end(otherwise)
        self._move(
            source, lds, self._masks(rows, columns), target, ldt, self._masks(columns, lanes)
        )
        at.branch(after)
        at.position_at_end(after)

    def _move(
        self, source: Any, lds: Any, read: list[Any], target: Any, ldt: Any, written: list[Any]
    ) -> None:
        """Transpose a block; the masks restrict its rows."""
        at = self.builder
        addresses = [self.plus(source, at.mul(lds, self.word(i))) for i in range(self.width)]
        block = [self.load(address, mask) for address, mask in zip(addresses, read, strict=True)]
        block = self.transposed(block)
        addresses = [self.plus(target, at.mul(ldt, self.word(i))) for i in range(self.width)]
        for row, address, mask in zip(block, addresses, written, strict=True):
            self.store(row, address, mask)

    def _masks(self, rows: Any, columns: Any) -> list[Any]:
        """Return the masks of the rows of a block; rows outside it are empty."""
        at, masks = self.builder, []
        for i in range(self.width):
            inside = at.icmp_signed("<", self.word(i), rows)
            masks.append(self.first_lanes(at.select(inside, columns, self.word(0))))
        return masks


IR_FUNCTIONS: Final = {
    "load_pixels": IrFunction(_Pixels("load_pixels", to_grid=True), words(5)),
    "store_pixels": IrFunction(_Pixels("store_pixels", to_grid=False), words(5)),
    "zero_pixels": IrFunction(_Zeros("float32", "zero_pixels"), words(2)),
    "transpose_pixels": IrFunction(_Transpose("float32", "transpose_pixels"), words(7)),
}
"""The functions that the outer loops call; distances are in elements.

`load_pixels(count, image, pitch, grid, lanes)` copies `lanes` channels of pixels at a distance
`pitch` to a grid, and sets its other lanes to 0; `store_pixels` copies them back.
`zero_pixels(count, grid)` stores zeros.
`transpose_pixels(rows, columns, source, lds, target, ldt, lanes)`: target = sourceᵀ for a block of
`rows` by `columns`, each at most the vector width. Nothing outside the block is read; `lanes`
numbers of each row of the target are written, and beyond `rows` the source counts as 0.
"""

CONSTANTS: Final = {"VECTOR_BYTES": VECTOR_BYTES}
"""Constants for the outer loops."""
