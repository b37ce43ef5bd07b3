"""The single-threaded matrix product: compiled loops around the microkernel of
`kernels/gemm/microkernel.py`.

A BLAS packs blocks of both operands, which pays off for large products only: a layer of a few
hundred units spends a fifth of its time on it. Here A is read in place and B is packed panel by
panel; if B is transposed, the smaller operand is transposed instead. The bias row and the ReLU are
applied while a result is in registers. Calls share no state, so any thread may call.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from magmath.codegen.aot_cache import AotModule
from magmath.core.cpu import second_level_cache
from magmath.kernels.gemm.blas import CONSTANTS, RUN

_CONSTANTS: Final = {
    # Summands, and bytes of A, of one pass: the data that it reads repeatedly then stays in the
    # second-level cache. The number of summands determines the bits, so no cache changes it.
    "DEPTH": 768,
    "BLOCK_BYTES": second_level_cache() * 3 // 4,
    # Minimum number of row tiles for which packing a panel of B pays off: COPIED_CLOSE if the row
    # stride of B is a multiple of CLOSE bytes, with which rows evict one another from the caches.
    "COPIED": 24,
    "COPIED_CLOSE": 4,
    "CLOSE": 1024,
}

_PIECES: Final = '''
def transpose_panel(rows: int64, k: int64, source: int64, lds: int64, panel: int64, pitch: int64):
    """panel (k, pitch) = sourceᵀ, where source is (rows, k), and 0 up to whole vectors: tiles read
    these, and among what others have left are numbers so small that processors take long over them.
    """
    width = VECTOR_BYTES // {itemsize}
    for i in range(0, rows, width):
        high = min(width, rows - i)
        for j in range(0, k, width):
            at = source + (i * lds + j) * {itemsize}
            to = panel + (j * pitch + i) * {itemsize}
            transpose_block_{T}(high, min(width, k - j), at, lds, 0, to, pitch, width)

def block(
    transpose_a: int64, transpose_b: int64, m: int64, n: int64, k: int64, alpha: {T}, a: int64,
    lda: int64, b: int64, ldb: int64, beta: {T}, c: int64, ldc: int64, bias: int64, relu: int64
):
    """The product of a block of A, panel by panel of B."""
    width = VECTOR_BYTES // {itemsize}
    panel = stack(DEPTH * VECTORS * VECTOR_BYTES)
    tiles = quotient(m + ROWS - 1, ROWS)
    vectors = quotient(n + width - 1, width)
    panels = quotient(vectors + VECTORS - 1, VECTORS)
    close = ldb * {itemsize} == quotient(ldb * {itemsize}, CLOSE) * CLOSE
    copied = tiles >= (COPIED_CLOSE if close else COPIED)
    for p in range(panels):
        begin = quotient(p * vectors, panels)
        end = quotient((p + 1) * vectors, panels)
        first = begin * width
        wide = end - begin
        columns = min(n - first, wide * width)
        pitch = wide * width
        last = columns - (wide - 1) * width
        place = panel
        if transpose_b != 0:
            transpose_panel(columns, k, b + first * ldb * {itemsize}, ldb, panel, pitch)
        elif copied or last < width:
            copy_rows_{T}(wide, k, b + first * {itemsize}, ldb, panel, pitch, last)
        else:
            place = b + first * {itemsize}
            pitch = ldb
        row = bias + first * {itemsize} if bias != 0 else 0
        for t in range(tiles):
            i = quotient(t * m, tiles)
            rows = quotient((t + 1) * m, tiles) - i
            at = a + (i if transpose_a != 0 else i * lda) * {itemsize}
            to = c + (i * ldc + first) * {itemsize}
            form = (transpose_a * (ROWS + 1) + rows) * (VECTORS + 1) + wide
            tile_{T}(form, k, alpha, at, lda, place, pitch, beta, to, ldc, last, row, relu)

def turned(
    m: int64, n: int64, k: int64, alpha: {T}, a: int64, lda: int64, b: int64, ldb: int64,
    beta: {T}, c: int64, ldc: int64
):
    """C = alpha · A·Bᵀ + beta · C by way of Cᵀ = alpha · B·Aᵀ, where A is the smaller operand."""
    width = VECTOR_BYTES // {itemsize}
    panel = stack(DEPTH * VECTORS * VECTOR_BYTES)
    corner = stack(VECTORS * VECTOR_BYTES * VECTOR_BYTES)
    vectors = quotient(m + width - 1, width)
    panels = quotient(vectors + VECTORS - 1, VECTORS)
    for p in range(panels):
        begin = quotient(p * vectors, panels)
        end = quotient((p + 1) * vectors, panels)
        first = begin * width
        pitch = (end - begin) * width
        columns = min(m - first, pitch)
        transpose_panel(columns, k, a + first * lda * {itemsize}, lda, panel, pitch)
        for j in range(0, n, width):
            rows = min(width, n - j)
            tiles = quotient(rows + ROWS - 1, ROWS)
            for t in range(tiles):
                i = quotient(t * rows, tiles)
                form = (quotient((t + 1) * rows, tiles) - i) * (VECTORS + 1) + end - begin
                tile_{T}(
                    form, k, alpha, b + (j + i) * ldb * {itemsize}, ldb, panel, pitch, 0,
                    corner + i * pitch * {itemsize}, pitch, width, 0, 0
                )
            for v in range(0, columns, width):
                lines = min(width, columns - v)
                to = c + ((first + v) * ldc + j) * {itemsize}
                place = corner + v * {itemsize}
                transpose_block_{T}(rows, lines, place, pitch, beta, to, ldc, rows)
'''

_GEMM: Final = '''
def gemm(
    transpose_a: int64, transpose_b: int64, m: int64, n: int64, k: int64, alpha: {T}, a: int64,
    lda: int64, b: int64, ldb: int64, beta: {T}, c: int64, ldc: int64, bias: int64, relu: int64
):
    """C = alpha · op(A) · op(B) + beta · C (+ bias), all row-major; op transposes A or B, not both.

    C is (m, n), op(A) (m, k), op(B) (k, n). a, b, c, bias are addresses; lda, ldb, ldc are the
    distances between rows in elements. bias = 0 adds no row; with relu = 1 negative results become
    0. With beta = 0 the previous content of C is not read.
    """
    passes = max(1, quotient(k + DEPTH - 1, DEPTH))
    deepest = max(1, min(k, DEPTH)) * {itemsize}
    height = max(ROWS, quotient(quotient(BLOCK_BYTES, deepest), ROWS) * ROWS)
    for q in range(passes):
        first = quotient(q * k, passes)
        deep = quotient((q + 1) * k, passes) - first
        keep = beta if q == 0 else {T}(1)
        row = bias if q == passes - 1 else 0
        clamp = relu if q == passes - 1 else 0
        from_b = b + (first if transpose_b != 0 else first * ldb) * {itemsize}
        for i in range(0, m, height):
            rows = min(height, m - i)
            to = c + i * ldc * {itemsize}
            from_a = a + (first * lda + i if transpose_a != 0 else i * lda + first) * {itemsize}
            if transpose_b != 0 and 2 * rows <= n and row == 0 and clamp == 0:
                turned(rows, n, deep, alpha, from_a, lda, from_b, ldb, keep, to, ldc)
            else:
                block(
                    transpose_a, transpose_b, rows, n, deep, alpha, from_a, lda, from_b, ldb,
                    keep, to, ldc, row, clamp
                )

def tile(
    form: int64, k: int64, alpha: {T}, a: int64, lda: int64, b: int64, ldb: int64, beta: {T},
    c: int64, ldc: int64, last: int64, bias: int64, relu: int64
):
    """A tile of a product (`kernels/gemm/microkernel.py`), for the outer loops of other modules."""
    tile_{T}(form, k, alpha, a, lda, b, ldb, beta, c, ldc, last, bias, relu)

def multiply(job: int64[1], alpha: {T}, a: int64, b: int64, beta: {T}, c: int64):
    gemm(
        job[TRANSPOSE_A], job[TRANSPOSE_B], job[M], job[N], job[K], alpha, a, job[LDA], b, job[LDB],
        beta, c, job[LDC], job[BIAS], job[RELU]
    )
'''


@cache
def code(dtype: str) -> AotModule:
    """Return the compiled functions `gemm`, `run` and `tile` for float32 or float64; `run` computes
    the products of the `blas.RECORD` at an address, whose bias must be contiguous."""
    source = (_PIECES + _GEMM + RUN).format(T=dtype, itemsize=np.dtype(dtype).itemsize)
    return AotModule(
        source,
        ("gemm", "run", "tile"),
        constants={**CONSTANTS, **_CONSTANTS},
        ir_modules=("magmath.kernels.gemm.microkernel",),
    )
