"""Windows over channels-last images, and the calls of compiled functions that visit them.

The channels of a pixel are adjacent, so each step of a window is a loop over vectors. The threads
take rows of windows, or whole images, from a counter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import ITEMSIZE
from magmath.core.type_aliases import BoundCall
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.parallel_region import bind_job

JOB: Final = (
    "x", "y", "result", "images", "channels", "rows", "columns", "y_rows", "y_columns",
    "high", "wide", "stride_y", "stride_x", "down", "right", "row", "column", "next_item",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words.

x, y, result   addresses: images, numbers of windows, and the cotangent of the images
rows, …        the extents of an image; y_rows, …: those of its windows
high, wide     the extents of a window, whose elements are `down` and `right` pixels apart
row, column    the pixel under the first element of the first window; negative in the padding
next_item      the counter of rows, or of images
"""

CONSTANTS: Final = {name.upper(): i for i, name in enumerate(JOB)}
"""The positions in `JOB`, by the names that the sources use."""


_WINDOW_LOOP: Final = '''
def {name}_{T}(record: int64):
    """Compute one thread's share of the rows of windows."""
    job: int64[1] = record
    channels = job[CHANNELS]
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[IMAGES] * job[Y_ROWS]:
        image = quotient(item, job[Y_ROWS])
        top = (item - image * job[Y_ROWS]) * job[STRIDE_Y] + job[ROW]
        for column in range(job[Y_COLUMNS]):
            left = column * job[STRIDE_X] + job[COLUMN]
            y: {T}[1] = job[Y] + (item * job[Y_COLUMNS] + column) * channels * {size}
            for c in range(channels):
                y[c] = {first}
            for i in range(job[HIGH]):
                for j in range(job[WIDE]):
                    at_y = top + i * job[DOWN]
                    at_x = left + j * job[RIGHT]
                    if at_y >= 0 and at_y < job[ROWS] and at_x >= 0 and at_x < job[COLUMNS]:
                        pixel = (image * job[ROWS] + at_y) * job[COLUMNS] + at_x
                        x: {T}[1] = job[X] + pixel * channels * {size}
                        for c in range(channels):
                            y[c] = {following}
        item = fetch_add(job, NEXT_ITEM, 1)
'''


def window_loop(name: str, dtype: str, first: str, following: str) -> str:
    """Return the source of a function that reduces each window for a type of numbers: its value
    y[c] is at first `first`, and `following` after each element x[c]."""
    return _WINDOW_LOOP.format(
        name=name, T=dtype, size=ITEMSIZE[dtype], first=first, following=following
    )


@final
@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over images: in both dimensions, the extent of a window, the distances between
    windows and between elements of a window, and the pixel under the first element of all."""

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    start: Sequence[int]


def can_compute(*tensors: torch.Tensor) -> bool:
    """Return True for channels-last images (N, channels, rows, columns) on the processor."""
    return all(
        x.ndim == 4
        and x.device.type == "cpu"
        and dtype_name(x.dtype) in ITEMSIZE
        and x.numel() > 0
        and x.movedim(1, -1).is_contiguous()
        for x in tensors
    )


def bind(
    code: AotModule,
    name: str,
    x: torch.Tensor,
    y: torch.Tensor,
    result: torch.Tensor,
    windows: Windows,
) -> BoundCall:
    """Return a bound call of an exported function on images x and windows y (see `JOB`)."""
    images, channels, *extents = x.shape
    words = [
        x.data_ptr(), y.data_ptr(), result.data_ptr(), images, channels, *extents, *y.shape[2:],
        *windows.kernel, *windows.stride, *windows.dilation, *windows.start, 0,
    ]  # fmt: skip
    function = code.address(f"{name}_{dtype_name(x.dtype)}")
    return bind_job(function, words, JOB.index("next_item"), (x, y, result))
