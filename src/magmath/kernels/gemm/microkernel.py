"""The microkernel of a matrix product: a block of C in registers, and a transposed block.

The scheme is that of GotoBLAS and BLIS (Goto and van de Geijn, ACM TOMS 34(3), 2008; Van Zee and
van de Geijn, ACM TOMS 41(3), 2015): a few rows and a few vectors of columns of C stay in registers
from the first summand to the last. Each size of register block ("tile" in this file) is a separate
function, so that no function spills registers. The outer loops are in
`kernels/gemm/packed_gemm.py`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from llvmlite import ir

from magmath.codegen.vectors import REGISTERS, VECTOR_BYTES, WORD, IrFunction, VectorFunction, words

VECTORS = 3  # maximum width of a tile
ROWS = 8 if REGISTERS == 32 else 4  # maximum height: its sums, a row of B and an element of A fit
UNROLL = 4  # summands per iteration
AHEAD = 8  # rows of B between the prefetched row and the current one


class RegisterBlock(VectorFunction, ABC):
    """A block of rows and of vectors of columns of a result, whose sums stay in registers."""

    def __init__(self, dtype: str, name: str, rows: int, vectors: int) -> None:
        super().__init__(dtype, f"{name}_{rows}_{vectors}")
        self.rows, self.vectors = rows, vectors

    def row(self, address: Any, mask: Any) -> list[Any]:
        """Load a row of the block's width; the mask applies to its last vector."""
        *others, last = [self.plus(address, v * self.width) for v in range(self.vectors)]
        return [*map(self.load, others), self.load(last, mask)]

    def fetch(self, address: Any) -> None:
        """Prefetch a row of the block's width."""
        for v in range(self.vectors):
            self.prefetch(self.plus(address, v * self.width))

    def add_products(self, column: Sequence[Any], row: Sequence[Any], sums: list[Any]) -> None:
        """Add the products of the numbers at the addresses `column` and the vectors `row`."""
        for i, address in enumerate(column):
            value = self.number_at(address)
            for v, vector in enumerate(row):
                j = i * self.vectors + v
                sums[j] = self.fma(value, vector, sums[j])

    def finished(self, sums: list[Any], mask: Any, bias: Any, relu: Any) -> list[Any]:
        """Return the sums after the epilogue: add the row `bias` unless it is 0, and replace
        negative results by 0 unless `relu` is 0."""
        at = self.builder

        def with_bias() -> list[Any]:
            row = self.row(bias, mask) * self.rows
            return [at.fadd(x, y) for x, y in zip(sums, row, strict=True)]

        biased = self.when(at.icmp_signed("!=", bias, self.word(0)), sums, with_bias)

        def with_relu() -> list[Any]:  # keeps NaN, which is not below 0
            below = [at.fcmp_ordered("<=", x, self.zero) for x in biased]
            return [at.select(low, self.zero, x) for low, x in zip(below, biased, strict=True)]

        return self.when(at.icmp_signed("!=", relu, self.word(0)), biased, with_relu)

    def store_rows(self, sums: Sequence[Any], addresses: Sequence[Any], mask: Any) -> None:
        """Store the block; the mask applies to the last vector of each row."""
        for i, address in enumerate(addresses):
            for v in range(self.vectors):
                target = self.plus(address, v * self.width)
                masked = mask if v == self.vectors - 1 else None
                self.store(sums[i * self.vectors + v], target, masked)


@final
class _Tile(RegisterBlock):
    """The code for one size of tile."""

    def __init__(self, dtype: str, rows: int, vectors: int, down: bool) -> None:
        super().__init__(dtype, f"tile_{'down' if down else 'along'}", rows, vectors)
        self.down = down

    def write(
        self, k: Any, alpha: Any, a: Any, lda: Any, b: Any, ldb: Any, beta: Any, c: Any, ldc: Any,
        last: Any, bias: Any, relu: Any,
    ) -> None:  # fmt: skip
        """Emit C = alpha · A·B + beta · C, then the epilogue."""
        at = self.builder
        scale, mask = self.splat(alpha), self.first_lanes(last)
        addresses = [self.plus(c, at.mul(ldc, self.word(i))) for i in range(self.rows)]
        for address in addresses:
            self.fetch(address)
        sums = [at.fmul(x, scale) for x in self._products(k, a, lda, b, ldb)]

        def with_former() -> list[Any]:
            former = [x for address in addresses for x in self.row(address, mask)]
            factor = self.splat(beta)
            return [self.fma(x, factor, y) for x, y in zip(former, sums, strict=True)]

        sums = self.when(
            at.fcmp_unordered("!=", beta, ir.Constant(self.element, 0.0)), sums, with_former
        )
        self.store_rows(self.finished(sums, mask, bias, relu), addresses, mask)

    def _products(self, k: Any, a: Any, lda: Any, b: Any, ldb: Any) -> list[Any]:
        """Return the sums over k, row by row."""
        at = self.builder
        starts = [a]
        if not self.down:
            rows = [self.plus(a, at.mul(lda, self.word(i))) for i in range(self.rows)]
            starts = [self.opaque(row) for row in rows]
        ahead = self.opaque(at.mul(ldb, self.word(AHEAD * self.itemsize)))
        state = [*starts, b, *[self.zero] * (self.rows * self.vectors)]
        for count, steps in self.unrolled(k, UNROLL):
            with self.loop(count, state) as current:
                self._add(current, lda, ldb, ahead, steps)
            state = current
        return state[len(starts) + 1 :]

    def _add(self, state: list[Any], lda: Any, ldb: Any, ahead: Any, steps: int) -> None:
        """Add `steps` products to the sums. `state`: the addresses in A, the address in B, the
        sums."""
        count = 1 if self.down else self.rows
        starts, b, sums = state[:count], state[count], state[count + 1 :]
        for step in range(steps):
            self.fetch(self.builder.add(b, ahead))
            row = self.row(b, None)
            column = [
                self.plus(starts[0], i) if self.down else self.plus(starts[i], step)
                for i in range(self.rows)
            ]
            self.add_products(column, row, sums)
            b = self.plus(b, ldb)
            if self.down:
                starts = [self.plus(starts[0], lda)]
        if not self.down:
            starts = [self.plus(start, steps) for start in starts]
        state[:] = [*starts, b, *sums]


@final
class _Copy(VectorFunction):
    """The code that copies rows of a number of vectors."""

    def __init__(self, dtype: str, vectors: int) -> None:
        super().__init__(dtype, f"copy_{vectors}")
        self.vectors = vectors

    def write(self, k: Any, source: Any, lds: Any, target: Any, ldt: Any, last: Any) -> None:
        mask = self.first_lanes(last)
        with self.loop(k, [source, target]) as addresses:
            for v in range(self.vectors):
                read, written = (self.plus(address, v * self.width) for address in addresses)
                masked = mask if v == self.vectors - 1 else None
                self.store(self.load(read, masked), written)
            addresses[:] = [self.plus(addresses[0], lds), self.plus(addresses[1], ldt)]


@final
class OneOf(VectorFunction):
    """The code that calls one of several functions, selected by number at run time."""

    def __init__(self, dtype: str, name: str, forms: Mapping[int, VectorFunction]) -> None:
        super().__init__(dtype, f"any_{name}")
        self.forms = forms

    def write(self, form_number: Any, *arguments: Any) -> None:
        builder = self.builder
        end = builder.append_basic_block("done")
        switch = builder.switch(form_number, end)
        for form, code in self.forms.items():
            block = builder.append_basic_block("form")
            switch.add_case(ir.Constant(WORD, form), block)
            builder.position_at_end(block)
            builder.call(code.function(builder.module, [x.type for x in arguments]), arguments)
            builder.branch(end)
        builder.position_at_end(end)


@final
class _Transpose(VectorFunction):
    """The code that transposes a block in registers."""

    def write(
        self, rows: Any, columns: Any, source: Any, lds: Any, beta: Any, target: Any, ldt: Any,
        lanes: Any,
    ) -> None:  # fmt: skip
        at = self.builder
        lines = self._lines(source, lds, rows, columns)
        block = [self.load(address, mask) for address, mask in lines]
        block = self.transposed(block)
        lines = self._lines(target, ldt, columns, lanes)

        def with_former() -> list[Any]:
            former = [self.load(address, mask) for address, mask in lines]
            factor = self.splat(beta)
            return [self.fma(x, factor, y) for x, y in zip(former, block, strict=True)]

        zero = ir.Constant(self.element, 0.0)
        block = self.when(at.fcmp_unordered("!=", beta, zero), block, with_former)
        for row, (address, mask) in zip(block, lines, strict=True):
            self.store(row, address, mask)

    def _lines(self, start: Any, pitch: Any, rows: Any, columns: Any) -> list[tuple[Any, Any]]:
        """Return the address and the mask of each row of a block."""
        at, lines = self.builder, []
        for i in range(self.width):
            inside = at.icmp_signed("<", self.word(i), rows)
            mask = self.first_lanes(at.select(inside, columns, self.word(0)))
            lines.append((self.plus(start, at.mul(pitch, self.word(i))), mask))
        return lines


def _tiles(dtype: str) -> OneOf:
    """Return the code for all sizes and forms of tiles."""
    return OneOf(
        dtype,
        "tile",
        {
            (down * (ROWS + 1) + rows) * (VECTORS + 1) + vectors: _Tile(
                dtype, rows, vectors, bool(down)
            )
            for down in (0, 1)
            for rows in range(1, ROWS + 1)
            for vectors in range(1, VECTORS + 1)
        },
    )


def _copies(dtype: str) -> OneOf:
    return OneOf(dtype, "copy", {v: _Copy(dtype, v) for v in range(1, VECTORS + 1)})


IR_FUNCTIONS: Final = {
    name: functions
    for dtype in ("float32", "float64")
    for name, functions in {
        f"tile_{dtype}": IrFunction(_tiles(dtype), (*words(2), dtype, *words(4), dtype, *words(5))),
        f"copy_rows_{dtype}": IrFunction(_copies(dtype), words(7)),
        f"transpose_block_{dtype}": IrFunction(
            _Transpose(dtype, "transpose"), (*words(4), dtype, *words(3))
        ),
    }.items()
}
"""The functions that the outer loops call. Matrices are given by address and by row stride in
elements.

`tile(form, k, alpha, a, lda, b, ldb, beta, c, ldc, last, bias, relu)`: a tile of a product, of 1 to
ROWS rows and 1 to VECTORS vectors; `form` is (down · (ROWS + 1) + rows) · (VECTORS + 1) + vectors.
Element (i, k) of A is read at i · lda + k, or with `down` = 1 (A transposed) at k · lda + i. Whole
vectors of B are read; only the first `last` lanes of the last vector of C and of bias are accessed.
bias = 0 adds no row; relu = 0 applies no ReLU.

`copy_rows(vectors, k, source, lds, target, ldt, last)`: copies k rows of 1 to VECTORS vectors, with
`last` lanes of the last vector; its other lanes become 0.

`transpose_block(rows, columns, source, lds, beta, target, ldt, lanes)`: target = sourceᵀ + beta ·
target, for a block of `rows` by `columns` numbers of the source, each at most the vector width.
Nothing outside the block is read. `lanes` numbers of each row of the target are written; beyond
`rows`, the source counts as 0.
"""

CONSTANTS: Final = {"ROWS": ROWS, "VECTORS": VECTORS, "VECTOR_BYTES": VECTOR_BYTES}
"""Constants for the outer loops."""
