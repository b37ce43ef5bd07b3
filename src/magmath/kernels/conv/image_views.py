"""Descriptions of images for compiled loops: addresses, distances and extents."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

VIEW: Final = (
    "address", "of_image", "of_channel", "of_row", "of_pixel", "images", "channels", "extent_y",
    "extent_x",
)  # fmt: skip
"""The description of an image batch: its address, the distances in elements between images,
channels, rows and pixels, and its sizes."""

CONSTANTS: Final = {name.upper(): i for i, name in enumerate(VIEW)}
"""The positions in `VIEW`, by the names that the sources use."""


def view_of(
    tensor: torch.Tensor, *, turned: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the VIEW of images, or of filters; `turned`: by 180°, inputs and outputs exchanged."""
    images, channels, rows, columns = tensor.shape
    strides, address = list(tensor.stride()), tensor.data_ptr()
    if turned:
        address += 4 * ((rows - 1) * strides[2] + (columns - 1) * strides[3])
        strides = [strides[1], strides[0], -strides[2], -strides[3]]
        images, channels = channels, images
    return np.array([address, *strides, images, channels, rows, columns], np.int64)


def has_adjacent_numbers(tensor: torch.Tensor) -> bool:
    """Return True if the pixels of a row or the channels of a pixel are contiguous."""
    return tensor.stride(3) == 1 or tensor.stride(1) == 1
