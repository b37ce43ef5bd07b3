"""Maxima of windows of channels-last images, and the sum of cotangents at their positions.

The threads take rows of windows for maxima, and whole images for cotangents
(`kernels/conv/channels_last.py`). The position of a maximum is found again in the backward pass,
the first one in row-major order, or the last NaN.
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

_SOURCE: Final = '''
def scatter_{T}(record: int64):
    """Compute the cotangents of one thread's share of the images."""
    job: int64[1] = record
    channels = job[CHANNELS]
    numbers: {T}[1] = stack({lanes} * {size})
    places: int32[1] = stack({lanes} * 4)
    image = fetch_add(job, NEXT_ITEM, 1)
    while image < job[IMAGES]:
        pixels = job[ROWS] * job[COLUMNS]
        x_start = job[X] + image * pixels * channels * {size}
        start = job[RESULT] + image * pixels * channels * {size}
        zeros: {T}[1] = start
        for c in range(pixels * channels):
            zeros[c] = 0
        for row in range(job[Y_ROWS]):
            top = row * job[STRIDE_Y] + job[ROW]
            for column in range(job[Y_COLUMNS]):
                left = column * job[STRIDE_X] + job[COLUMN]
                window = (image * job[Y_ROWS] + row) * job[Y_COLUMNS] + column
                for channel in range(0, channels, {lanes}):
                    count = min({lanes}, channels - channel)
                    g: {T}[1] = job[Y] + (window * channels + channel) * {size}
                    find_{T}(job, x_start + channel * {size}, top, left, count, numbers, places)
                    add_{T}(job, start + channel * {size}, top, left, count, g, places)
        image = fetch_add(job, NEXT_ITEM, 1)
'''

_STEPS: Final = '''
def find_{T}(
    job: int64[1], image: int64, top: int64, left: int64, count: int64, best: {T}[1],
    places: int32[1]
):
    """Find the number of the first element of a window that is its maximum, or of its last NaN, for
    each channel."""
    for c in range(count):
        places[c] = -1
        best[c] = -np.inf
    for i in range(job[HIGH]):
        for j in range(job[WIDE]):
            at_y = top + i * job[DOWN]
            at_x = left + j * job[RIGHT]
            if at_y >= 0 and at_y < job[ROWS] and at_x >= 0 and at_x < job[COLUMNS]:
                x: {T}[1] = image + (at_y * job[COLUMNS] + at_x) * job[CHANNELS] * {size}
                number = int32(i * job[WIDE] + j)
                for c in range(count):
                    better = x[c] > best[c] or x[c] != x[c] or places[c] < 0
                    places[c] = number if better else places[c]
                    best[c] = x[c] if better else best[c]

def add_{T}(
    job: int64[1], image: int64, top: int64, left: int64, count: int64, g: {T}[1], places: int32[1]
):
    """Add the cotangents of a window to the elements with these numbers."""
    for i in range(job[HIGH]):
        for j in range(job[WIDE]):
            at_y = top + i * job[DOWN]
            at_x = left + j * job[RIGHT]
            if at_y >= 0 and at_y < job[ROWS] and at_x >= 0 and at_x < job[COLUMNS]:
                result: {T}[1] = image + (at_y * job[COLUMNS] + at_x) * job[CHANNELS] * {size}
                number = int32(i * job[WIDE] + j)
                for c in range(count):
                    result[c] = result[c] + (g[c] if places[c] == number else 0)
'''

_LANES: Final = 256  # channels of which the positions are found at a time


@cache
def _code(dtype: str) -> AotModule:
    """Return the code for one float type, since a network seldom uses two."""
    larger = "x[c] if x[c] > y[c] or x[c] != x[c] else y[c]"
    source = (_STEPS + _SOURCE).format(T=dtype, size=ITEMSIZE[dtype], lanes=_LANES)
    return AotModule(
        window_loop("maxima", dtype, "-np.inf", larger) + source,
        (f"maxima_{dtype}", f"scatter_{dtype}"),
        constants=CONSTANTS,
    )


def bind_maxima(x: torch.Tensor, windows: Windows, out: torch.Tensor) -> BoundCall:
    """Return a bound call that stores the maximum of each window of x in `out`."""
    return bind(_code(dtype_name(x.dtype)), "maxima", x, out, out, windows)


def bind_scatter(
    g: torch.Tensor, x: torch.Tensor, windows: Windows, out: torch.Tensor
) -> BoundCall:
    """Return a bound call that adds g, a number for each window, at the position of its maximum in
    x, and stores the sums in `out`, an array like x."""
    return bind(_code(dtype_name(x.dtype)), "scatter", x, g, out, windows)
