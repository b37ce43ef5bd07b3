"""The matrix product of one thread, compiled by Numba around the tiles of `kernels/tile.py`.

A BLAS copies both operands in pieces before it begins, which pays off for large products alone: a
layer of a few hundred units spends a fifth of its time so. Here A is read as it lies, B is copied
by the panel, and of a transposed B the smaller operand is turned instead. The bias row and the
ReLU are applied before a result leaves the registers. Nothing is shared between calls: any thread
may call. The tiles must have been loaded (`library.use`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from magmath.kernels.tile import ROWS, VECTORS, copy_rows, library_tile, transpose_block
from magmath.machine.raw import itemsize, number, pointer, stack_bytes
from magmath.machine.vectors import VECTOR_BYTES

# The summands, and the bytes of A, that one pass goes over: what it reads again and again then
# stays in a second-level cache of 512 KiB.
_DEPTH = 768
_BLOCK_BYTES = 384 * 1024
_PANEL_BYTES = _DEPTH * VECTORS * VECTOR_BYTES
_CORNER_BYTES = VECTORS * VECTOR_BYTES * VECTOR_BYTES  # a vector's width of rows of a panel
_COPIED = 4  # row tiles from which on it pays to copy a panel of B together


@njit(nogil=True, cache=True, inline="never")  # type: ignore[untyped-decorator]
def gemm(
    transpose_a: bool, transpose_b: bool, m: int, n: int, k: int, alpha: Any, a: int, lda: int,
    b: int, ldb: int, beta: Any, c: int, ldc: int, bias: int, relu: int,
) -> None:  # fmt: skip
    """C = alpha · op(A) · op(B) + beta · C (+ bias), all row-major; op transposes A or B, not both.

    C is (m, n), op(A) (m, k), op(B) (k, n). a, b, c, bias are addresses of float32 or float64
    numbers, as alpha and beta are; lda, ldb, ldc are the distances between rows in elements.
    bias = 0 adds no row; with relu = 1 negative results become 0. With beta = 0 what C held is not
    read.
    """
    size = itemsize(alpha)
    one = number(1, alpha)
    passes = max(1, -(-k // _DEPTH))
    height = max(ROWS, _BLOCK_BYTES // (max(1, min(k, _DEPTH)) * size) // ROWS * ROWS)
    for q in range(passes):
        first = q * k // passes
        deep = (q + 1) * k // passes - first
        keep, final = beta if q == 0 else one, q == passes - 1
        row, cut = bias if final else 0, relu if final else 0
        from_b = b + (first if transpose_b else first * ldb) * size
        for i in range(0, m, height):
            rows, to = min(height, m - i), c + i * ldc * size
            from_a = a + (first * lda + i if transpose_a else i * lda + first) * size
            if transpose_b and 2 * rows <= n and row == 0 and cut == 0:
                _turned(rows, n, deep, alpha, from_a, lda, from_b, ldb, keep, to, ldc)
            else:
                _block(
                    transpose_a, transpose_b, rows, n, deep, alpha, from_a, lda, from_b, ldb,
                    keep, to, ldc, row, cut,
                )  # fmt: skip


@njit(nogil=True, cache=True, inline="never")  # type: ignore[untyped-decorator]
def _block(
    transpose_a: bool, transpose_b: bool, m: int, n: int, k: int, alpha: Any, a: int, lda: int,
    b: int, ldb: int, beta: Any, c: int, ldc: int, bias: int, relu: int,
) -> None:  # fmt: skip
    """The product of a block of A, panel by panel of B."""
    size = itemsize(alpha)
    width = VECTOR_BYTES // size
    panel = stack_bytes(_PANEL_BYTES)
    tiles, vectors = -(-m // ROWS), -(-n // width)
    panels = -(-vectors // VECTORS)
    for p in range(panels):
        begin, end = p * vectors // panels, (p + 1) * vectors // panels
        first, wide = begin * width, end - begin
        columns, pitch = min(n - first, wide * width), wide * width
        last = columns - (wide - 1) * width
        if transpose_b:
            place = panel
            _transpose_panel(columns, k, b + first * ldb * size, ldb, panel, pitch, alpha)
        elif tiles >= _COPIED or last < width:  # whole vectors are read of it
            place = panel
            copy_rows(wide, k, b + first * size, ldb, panel, pitch, last, alpha)
        else:
            place, pitch = b + first * size, ldb
        row = bias + first * size if bias != 0 else 0
        for t in range(tiles):
            i, following = t * m // tiles, (t + 1) * m // tiles
            at, to = a + (i if transpose_a else i * lda) * size, c + (i * ldc + first) * size
            library_tile(
                transpose_a, following - i, wide, k, alpha, at, lda, place, pitch, beta, to, ldc,
                last, row, relu,
            )  # fmt: skip


@njit(nogil=True, cache=True, inline="never")  # type: ignore[untyped-decorator]
def _turned(
    m: int, n: int, k: int, alpha: Any, a: int, lda: int, b: int, ldb: int, beta: Any, c: int,
    ldc: int,
) -> None:  # fmt: skip
    """C = alpha · A·Bᵀ + beta · C by way of Cᵀ = alpha · B·Aᵀ, where A is the smaller operand."""
    size = itemsize(alpha)
    width = VECTOR_BYTES // size
    panel, block = stack_bytes(_PANEL_BYTES), stack_bytes(_CORNER_BYTES)
    vectors = -(-m // width)
    panels = -(-vectors // VECTORS)
    for p in range(panels):
        begin, end = p * vectors // panels, (p + 1) * vectors // panels
        first, pitch = begin * width, (end - begin) * width
        columns = min(m - first, pitch)
        _transpose_panel(columns, k, a + first * lda * size, lda, panel, pitch, alpha)
        for j in range(0, n, width):
            rows = min(width, n - j)
            tiles = -(-rows // ROWS)
            for t in range(tiles):
                i, following = t * rows // tiles, (t + 1) * rows // tiles
                library_tile(
                    False, following - i, end - begin, k, alpha, b + (j + i) * ldb * size, ldb,
                    panel, pitch, number(0, alpha), block + i * pitch * size, pitch, width, 0, 0,
                )  # fmt: skip
            for v in range(0, columns, width):
                lines, to = min(width, columns - v), c + ((first + v) * ldc + j) * size
                transpose_block(rows, lines, block + v * size, pitch, beta, to, ldc)


@njit(nogil=True, cache=True, inline="never")  # type: ignore[untyped-decorator]
def _transpose_panel(
    rows: int, k: int, source: int, lds: int, panel: int, pitch: int, like: Any
) -> None:
    """panel (k, pitch) = sourceᵀ, where source is (rows, k) and has numbers of the type of like."""
    size = itemsize(like)
    width = VECTOR_BYTES // size
    for i in range(0, rows, width):
        high = min(width, rows - i)
        for j in range(0, k, width):
            at, to = source + (i * lds + j) * size, panel + (j * pitch + i) * size
            transpose_block(high, min(width, k - j), at, lds, number(0, like), to, pitch)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _run(w: Any, alpha: Any, beta: Any) -> None:
    for i in range(w[11]):
        a, b, c = w[5] + i * w[12], w[7] + i * w[13], w[9] + i * w[14]
        gemm(
            w[0] != 0, w[1] != 0, w[2], w[3], w[4], alpha, a, w[6], b, w[8], beta, c, w[10],
            w[15], w[17],
        )  # fmt: skip


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def run32(record: int) -> None:
    """Do the float32 products of the `blas.RECORD` at this address; the bias is contiguous."""
    numbers = carray(pointer(record, np.float64(0)), (20,))
    _run(
        carray(pointer(record, np.int64(0)), (20,)),
        np.float32(numbers[18]),
        np.float32(numbers[19]),
    )


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def run64(record: int) -> None:
    """Do the float64 products of the `blas.RECORD` at this address; the bias is contiguous."""
    numbers = carray(pointer(record, np.float64(0)), (20,))
    _run(carray(pointer(record, np.int64(0)), (20,)), numbers[18], numbers[19])
