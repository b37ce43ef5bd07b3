"""The innermost loops of depthwise convolutions, in LLVM IR.

A few rows of one vector of pixels are computed at a time: a filter element and the mask of the
columns inside the image serve all of them. Pixels outside the image are not read.
"""

from __future__ import annotations

from typing import Any, Final, final

from llvmlite import ir

from magmath.codegen.vectors import VECTOR_BYTES, WORD, IrFunction, VectorFunction, words

ROWS: Final = 4  # computed at a time


class _Rows(VectorFunction):
    """Masks of pixels, which both functions need."""

    def column_mask(self, column: Any, columns: Any) -> Any:
        """Return the mask of the lanes whose pixels, from `column` on, are in a row."""
        at, kind = self.builder, ir.VectorType(ir.IntType(32), self.width)
        first = self.splat(at.trunc(column, ir.IntType(32)))
        lanes = at.add(first, ir.Constant(kind, list(range(self.width))))
        return at.icmp_unsigned("<", lanes, self.splat(at.trunc(columns, ir.IntType(32))))

    def pixels(self, plane: Any, pitch: Any, row: Any, rows: Any, column: Any, mask: Any) -> Any:
        """Load a vector of pixels, with zeros outside the mask and outside the plane."""
        at = self.builder
        inside = at.icmp_unsigned("<", row, rows)
        no_lanes = ir.Constant(mask.type, [0] * self.width)
        address = self.plus(plane, at.add(at.mul(row, pitch), column))
        return self.load(address, at.select(inside, mask, no_lanes))


@final
class _Correlated(_Rows):
    """The code that adds the correlation with a filter to a few rows of a vector."""

    def write(
        self, x: Any, pitch: Any, rows: Any, columns: Any, row: Any, column: Any, w: Any,
        w_rows: Any, w_columns: Any, w_row: Any, w_column: Any, down: Any, right: Any, y: Any,
        y_pitch: Any, lines: Any, lanes: Any,
    ) -> None:  # fmt: skip
        at = self.builder
        nothing = self.word(0)
        addresses, masks = [], []
        for r in range(ROWS):
            addresses.append(self.plus(y, at.mul(y_pitch, self.word(r))))
            inside = at.icmp_signed("<", self.word(r), lines)
            masks.append(self.first_lanes(at.select(inside, lanes, nothing)))
        sums = [self.load(address, mask) for address, mask in zip(addresses, masks, strict=True)]
        with self.loop(w_rows, [row, w, *sums]) as outer:
            with self.loop(w_columns, [column, outer[1], *outer[2:]]) as inner:
                here, tap = inner[:2]
                factor, mask = self.number_at(tap), self.column_mask(here, columns)
                for r in range(ROWS):
                    line = at.add(outer[0], self.word(r))
                    value = self.pixels(x, pitch, line, rows, here, mask)
                    inner[2 + r] = self.fma(factor, value, inner[2 + r])
                inner[:2] = [at.add(here, right), self.plus(tap, w_column)]
            outer[:] = [at.add(outer[0], down), self.plus(outer[1], w_row), *inner[2:]]
        for value, address, mask in zip(outer[2:], addresses, masks, strict=True):
            self.store(value, address, mask)


@final
class _Dot(_Rows):
    """The code that adds the products of two planes, lane by lane, to a vector."""

    def write(
        self, x: Any, pitch: Any, rows: Any, columns: Any, row: Any, column: Any, y: Any,
        y_pitch: Any, y_rows: Any, y_columns: Any, total: Any,
    ) -> None:  # fmt: skip
        at = self.builder
        blocks = at.sdiv(at.add(y_rows, self.word(ROWS - 1)), self.word(ROWS))
        vectors = at.sdiv(at.add(y_columns, self.word(self.width - 1)), self.word(self.width))
        start = [self.load(total), *[self.zero] * (ROWS - 1)]
        zero = ir.Constant(WORD, 0)
        with self.loop(blocks, [zero, *start]) as outer:
            with self.loop(vectors, [zero, *outer[1:]]) as inner:
                here = at.add(column, inner[0])
                x_mask = self.column_mask(here, columns)
                y_mask = self.column_mask(inner[0], y_columns)
                for r in range(ROWS):
                    line = at.add(outer[0], self.word(r))
                    a = self.pixels(x, pitch, at.add(row, line), rows, here, x_mask)
                    b = self.pixels(y, y_pitch, line, y_rows, inner[0], y_mask)
                    inner[1 + r] = self.fma(a, b, inner[1 + r])
                inner[0] = at.add(inner[0], self.word(self.width))
            outer[:] = [at.add(outer[0], self.word(ROWS)), *inner[1:]]
        first, *others = outer[1:]
        for other in others:
            first = at.fadd(first, other)
        self.store(first, total)


IR_FUNCTIONS: Final = {
    "add_correlated": IrFunction(_Correlated("float32", "add_correlated"), words(17)),
    "add_products": IrFunction(_Dot("float32", "add_products"), words(11)),
}
"""The functions that the outer loops call; a plane is given by its address, the distance of its
rows in elements, and its extents.

`add_correlated(x, pitch, rows, columns, row, column, w, w_rows, w_columns, w_row, w_column, down,
right, y, y_pitch, lines, lanes)`: add to `lines` rows of `lanes` numbers of y, of at most ROWS and
the vector width, the correlation of x with the filter w. Its first element is on the pixel (row,
column) for the first number of y; the next ones `down` and `right` of it. `add_products(x, pitch,
rows, columns, row, column, y, y_pitch, y_rows, y_columns, total)`: add the products of y and of x,
shifted by (row, column), to the vector `total`, whose elements the caller adds.
"""

CONSTANTS: Final = {"LINES": ROWS, "WIDTH": VECTOR_BYTES // 4, "VECTOR_BYTES": VECTOR_BYTES}
"""Constants for the outer loops."""
