"""Sums of windows of channels-last images, the transpose of these sums, and sums of neighbouring
channels.

Each pixel of a result adds the pixels of the other array that share a window with it, so the
threads take rows of the result from a counter (`kernels/conv/channels_last.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import ITEMSIZE
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.channels_last import CONSTANTS, Windows, bind, window_loop
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.parallel_region import bind_job

_SOURCE: Final = '''
def spread_{T}(record: int64):
    """Compute one thread's share of the rows of images: each pixel adds the windows around it."""
    job: int64[1] = record
    channels = job[CHANNELS]
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[IMAGES] * job[ROWS]:
        image = quotient(item, job[ROWS])
        row = item - image * job[ROWS]
        for column in range(job[COLUMNS]):
            total: {T}[1] = job[RESULT] + (item * job[COLUMNS] + column) * channels * {size}
            for c in range(channels):
                total[c] = 0
            for i in range(job[HIGH]):
                down = row - job[ROW] - i * job[DOWN]
                at_y = quotient(down, job[STRIDE_Y])
                if down >= 0 and at_y * job[STRIDE_Y] == down and at_y < job[Y_ROWS]:
                    for j in range(job[WIDE]):
                        right = column - job[COLUMN] - j * job[RIGHT]
                        at_x = quotient(right, job[STRIDE_X])
                        if right >= 0 and at_x * job[STRIDE_X] == right and at_x < job[Y_COLUMNS]:
                            window = (image * job[Y_ROWS] + at_y) * job[Y_COLUMNS] + at_x
                            g: {T}[1] = job[Y] + window * channels * {size}
                            for c in range(channels):
                                total[c] = total[c] + g[c]
        item = fetch_add(job, NEXT_ITEM, 1)

def lines_{T}(record: int64):
    """Compute one thread's share of the pixels, in blocks: sums of neighbouring channels."""
    job: int64[1] = record
    extent = job[EXTENT]
    block = fetch_add(job, NEXT_BLOCK, 1)
    while block * BLOCK < job[LINES]:
        for line in range(block * BLOCK, min(job[LINES], (block + 1) * BLOCK)):
            x: {T}[1] = job[LINE_X] + line * extent * {size}
            total: {T}[1] = job[LINE_Y] + line * extent * {size}
            for c in range(extent):
                total[c] = 0
            for j in range(job[WINDOW]):
                offset = job[FIRST] + j
                low = max(0, -offset)
                high = min(extent, extent - offset)
                moved: {T}[1] = job[LINE_X] + (line * extent + offset) * {size}
                for c in range(low, high):
                    total[c] = total[c] + moved[c]
        block = fetch_add(job, NEXT_BLOCK, 1)
'''

LINE_JOB: Final = ("line_x", "line_y", "lines", "extent", "window", "first", "next_block")
"""The argument of `lines`: addresses, pixels, their channels, the channels of a window, the first
of them relative to the channel of the result, and the counter of blocks."""
_BLOCK: Final = 64  # pixels that a thread takes at a time


@cache
def _code(dtype: str) -> AotModule:
    """Return the code for one float type, since a network seldom uses two."""
    source = _SOURCE.format(T=dtype, size=ITEMSIZE[dtype])
    return AotModule(
        window_loop("sums", dtype, "0", "y[c] + x[c]") + source,
        (f"sums_{dtype}", f"spread_{dtype}", f"lines_{dtype}"),
        constants={
            **CONSTANTS,
            **{name.upper(): i for i, name in enumerate(LINE_JOB)},
            "BLOCK": _BLOCK,
        },
    )


def bind_sums(x: torch.Tensor, windows: Windows, out: torch.Tensor) -> BoundCall:
    """Return a bound call that stores the sum of each window of x in `out`."""
    return bind(_code(dtype_name(x.dtype)), "sums", x, out, out, windows)


def bind_spread(g: torch.Tensor, windows: Windows, out: torch.Tensor) -> BoundCall:
    """Return a bound call that stores in each element of `out` the sum of g, a number for each
    window, over the windows that contain the element."""
    return bind(_code(dtype_name(g.dtype)), "spread", out, g, out, windows)


def bind_lines(x: torch.Tensor, window: int, first: int, out: torch.Tensor) -> BoundCall:
    """Return a bound call that stores the sums of neighbours along the second axis of x, the
    channels of channels-last images: element c of `out` is the sum of the elements c + first …
    c + first + window - 1 of x that exist."""
    channels = x.shape[1]
    lines = x.numel() // channels
    words = [x.data_ptr(), out.data_ptr(), lines, channels, window, first, 0]
    function = _code(dtype_name(x.dtype)).address(f"lines_{dtype_name(x.dtype)}")
    return bind_job(function, words, LINE_JOB.index("next_block"), (x, out))
