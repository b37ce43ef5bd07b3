"""The microkernels of direct convolution: register blocks whose operand rows are given by tables of
addresses, in LLVM IR.

A row of the left operand is a pixel under a filter element. Its address is in a table, so padding,
strides and dilation cost one load of an address for all channels of a pixel, and no matrix of
patches exists (Dukhan, arXiv:1907.02129).
"""

from __future__ import annotations

from abc import ABC
from typing import Any, Final, final

from magmath.codegen.vectors import VECTOR_BYTES, WORD, IrFunction, VectorFunction, words
from magmath.kernels.gemm.microkernel import AHEAD, ROWS, UNROLL, VECTORS, OneOf, RegisterBlock

_WORD_BYTES = 8


class _Indirect(RegisterBlock, ABC):
    """A register block with operands in tables of addresses."""

    def word_at(self, address: Any) -> Any:
        """Emit a load of a 64-bit word."""
        return self.builder.load(self.builder.inttoptr(address, WORD.as_pointer()))

    def words_at(self, table: Any) -> list[Any]:
        """Emit loads of a word for each row."""
        offsets = [self.word(_WORD_BYTES * i) for i in range(self.rows)]
        return [self.word_at(self.builder.add(table, offset)) for offset in offsets]


@final
class _Pixels(_Indirect):
    """The code for a block of pixels: the sum over filter elements and channels."""

    def write(
        self, taps: Any, depth: Any, table: Any, pitch: Any, shift: Any, b: Any, following: Any,
        adds: Any, added: Any, targets: Any, to: Any, last: Any, bias: Any, relu: Any,
    ) -> None:  # fmt: skip
        at, mask = self.builder, self.first_lanes(last)
        starts = self.words_at(targets)
        for start in starts:
            self.fetch(at.add(start, to))
        state = [table, following, b, *[self.zero] * (self.rows * self.vectors)]
        with self.loop(taps, state) as outer:
            rows = [self.opaque(at.add(row, shift)) for row in self.words_at(outer[0])]
            inner = [*rows, *outer[1:]]
            for count, steps in self.unrolled(depth, UNROLL):
                with self.loop(count, inner) as current:
                    self._add(current, steps)
                inner = current
            outer[:] = [at.add(outer[0], pitch), *inner[self.rows :]]
        sums = outer[3:]

        def with_former() -> list[Any]:
            former = [x for start in starts for x in self.row(at.add(start, added), mask)]
            return [at.fadd(x, y) for x, y in zip(former, sums, strict=True)]

        total = self.when(at.icmp_signed("!=", adds, self.word(0)), sums, with_former)
        addresses = [at.add(start, to) for start in starts]
        self.store_rows(self.finished(total, mask, bias, relu), addresses, mask)

    def _add(self, state: list[Any], steps: int) -> None:
        """Add `steps` products. `state`: the addresses of the rows, that of the filters that are
        needed later, that in B, the sums."""
        starts, (following, b, *sums) = state[: self.rows], state[self.rows :]
        width = self.vectors * self.width
        for v in range(self.vectors):
            self.prefetch(self.plus(following, v * self.width), 2)
        for step in range(steps):
            self.fetch(self.plus(b, AHEAD * width))
            row = self.row(b, None)
            self.add_products([self.plus(start, step) for start in starts], row, sums)
            b = self.plus(b, width)
        following = self.plus(following, width)
        state[:] = [*(self.plus(start, steps) for start in starts), following, b, *sums]


@final
class _Filters(_Indirect):
    """The code for a block of filter elements: the sum over pixels."""

    def write(self, pixels: Any, table: Any, shift: Any, b: Any, adds: Any, c: Any) -> None:
        at, width = self.builder, self.vectors * self.width
        addresses = [self.plus(c, i * width) for i in range(self.rows)]
        for address in addresses:
            self.fetch(address)
        state = [table, b, *[self.zero] * (self.rows * self.vectors)]
        for count, steps in self.unrolled(pixels, UNROLL):
            with self.loop(count, state) as current:
                entry, line, sums = current[0], current[1], current[2:]
                for step in range(steps):
                    word = self.word_at(at.add(entry, self.word(_WORD_BYTES * step)))
                    start = at.add(word, shift)
                    row = self.row(self.plus(line, step * width), None)
                    self.add_products([self.plus(start, i) for i in range(self.rows)], row, sums)
                entry = at.add(entry, self.word(_WORD_BYTES * steps))
                current[:] = [entry, self.plus(line, steps * width), *sums]
            state = current
        sums = state[2:]

        def with_former() -> list[Any]:
            former = [x for address in addresses for x in self.row(address, None)]
            return [at.fadd(x, y) for x, y in zip(former, sums, strict=True)]

        total = self.when(at.icmp_signed("!=", adds, self.word(0)), sums, with_former)
        self.store_rows(total, addresses, None)


@final
class _Copy(VectorFunction):
    """The code that copies one vector of each of a number of rows."""

    def write(self, count: Any, source: Any, lds: Any, target: Any, ldt: Any, lanes: Any) -> None:
        mask = self.first_lanes(lanes)
        with self.loop(count, [source, target]) as state:
            self.store(self.load(state[0], mask), state[1])
            state[:] = [self.plus(state[0], lds), self.plus(state[1], ldt)]


@final
class _Sum(VectorFunction):
    """The code that adds vectors at equal distances."""

    def write(self, count: Any, source: Any, lds: Any, target: Any) -> None:
        with self.loop(count, [source, self.zero]) as state:
            total = self.builder.fadd(state[1], self.load(state[0]))
            state[:] = [self.plus(state[0], lds), total]
        self.store(state[1], target)


def _sizes(name: str, block: type[_Pixels] | type[_Filters]) -> OneOf:
    """Return the code for all sizes of register blocks."""
    return OneOf(
        "float32",
        name,
        {
            rows * (VECTORS + 1) + vectors: block("float32", name, rows, vectors)
            for rows in range(1, ROWS + 1)
            for vectors in range(1, VECTORS + 1)
        },
    )


IR_FUNCTIONS: Final = {
    "pixels_tile": IrFunction(_sizes("pixels_tile", _Pixels), words(15)),
    "filters_tile": IrFunction(_sizes("filters_tile", _Filters), words(7)),
    "copy_vectors": IrFunction(_Copy("float32", "copy_vectors"), words(6)),
    "sum_vectors": IrFunction(_Sum("float32", "sum_vectors"), words(4)),
}
"""The functions that the outer loops call. `form` is rows · (VECTORS + 1) + vectors.

`pixels_tile(form, taps, depth, table, pitch, shift, b, following, adds, added, targets, to, last,
bias, relu)` computes `vectors` vectors of outputs of `rows` pixels. The table has, for each filter
element, the addresses of the pixels under it; elements are `pitch` bytes apart. `depth` numbers are
read `shift` bytes behind each address, and multiplied with the rows of b, which are contiguous. For
UNROLL rows of b, one of `following` is prefetched to the second-level cache. The results are stored
`to` bytes behind the addresses `targets`; if `adds` is not 0, what is `added` bytes behind them is
added. Then follow the row `bias`, unless it is 0, and ReLU, unless `relu` is 0. Only `last` lanes
of the last vector are accessed.

`filters_tile(form, pixels, table, shift, b, adds, c)` computes `rows` rows of c: sums over pixels
of the numbers `shift` bytes behind the addresses of the table and the rows of b; c and b are
contiguous. If `adds` is not 0, the content of c is added.

`copy_vectors(count, source, lds, target, ldt, lanes)` copies vectors at distances in elements; the
lanes behind `lanes` become 0. `sum_vectors(count, source, lds, target)` adds `count` vectors.
"""

CONSTANTS: Final = {
    "VECTOR_BYTES": VECTOR_BYTES, "ROWS": ROWS, "VECTORS": VECTORS, "UNROLL": UNROLL,
}  # fmt: skip
"""Constants for the outer loops."""
