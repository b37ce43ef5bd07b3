"""Windows over channels-last images, and the calls of compiled functions that visit them.

The channels of a pixel are adjacent, so each step of a window is a loop over vectors. The threads
take rows of windows, or whole images, from a counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import ITEMSIZE
from magmath.kernels.parallel_region import run_on_threads

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
        and number_name(x) in ITEMSIZE
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
) -> Callable[[], object]:
    """Return a ready call of an exported function on images x and windows y (see `JOB`)."""
    images, channels, *extents = x.shape
    job = np.array([
        x.data_ptr(), y.data_ptr(), result.data_ptr(), images, channels, *extents, *y.shape[2:],
        *windows.kernel, *windows.stride, *windows.dilation, *windows.start, 0,
    ], np.int64)  # fmt: skip
    function = code.address(f"{name}_{number_name(x)}")
    address = int(job.ctypes.data)
    operands = (x, y, result)  # the addresses hold no reference

    def run(memory: object = operands) -> None:
        job[-1] = 0
        run_on_threads(function, address, torch.get_num_threads())

    return run


def number_name(x: torch.Tensor) -> str:
    """Return the name of the element type."""
    return str(x.dtype).removeprefix("torch.")
