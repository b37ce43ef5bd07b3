"""The patches of images as columns of a matrix, and images from such columns."""

from __future__ import annotations

from itertools import product
from math import prod

from magmath.api.creation import zeros
from magmath.api.manipulation import permute_dims, reshape
from magmath.api.padding import pad
from magmath.api.sliding_windows import sliding_window_view
from magmath.arrays.array import Array, as_array
from magmath.errors import ShapeError
from magmath.graph import Shape
from magmath.nn.window_settings import Size, check_covered, check_images, sizes


def unfold(
    x: Array, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Array:
    """Return the patches of images (N, channels, H, W) as columns (N, channels · kernel, patches).

    A patch has the elements under a sliding window, which `conv` multiplies with the filter;
    padding adds zeros on all sides. As PyTorch's `unfold`.
    """
    x = as_array("unfold", x)
    check_images("unfold", x.shape, 2)
    kernel, dilations, padded, strides = _settings("unfold", kernel_size, dilation, padding, stride)
    pairs = tuple([(n, n) for n in padded])
    check_covered("unfold", x.shape[2:], pairs, kernel, dilations)
    images = pad(x, [(0, 0), (0, 0), *pairs]) if any(padded) else x
    reach = tuple([d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)])
    windows = sliding_window_view(images, reach, axis=(2, 3))
    (a, b), (c, d) = strides, dilations
    patches = windows[:, :, ::a, ::b, ::c, ::d]
    n, channels, rows, columns = patches.shape[:4]
    moved = permute_dims(patches, (0, 1, 4, 5, 2, 3))
    return reshape(moved, (n, channels * prod(kernel), rows * columns))


def fold(
    x: Array,
    output_size: Size,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
) -> Array:
    """Return images (N, channels, *output_size) with the sums of the patches that cover each
    element: the gradient of `unfold`.

    x   columns (N, channels · kernel, patches). As PyTorch's `fold`
    """
    x = as_array("fold", x)
    space = sizes("fold: output_size", output_size, 2)
    kernel, dilations, padded, strides = _settings("fold", kernel_size, dilation, padding, stride)
    counts = tuple(
        [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(space, kernel, dilations, padded, strides, strict=True)
        ]
    )
    _check_columns(x, kernel, counts)
    n, channels = x.shape[0], x.shape[1] // prod(kernel)
    parts = reshape(x, (n, channels, *kernel, *counts))
    whole = tuple([n + 2 * p for n, p in zip(space, padded, strict=True)])
    result = zeros((n, channels, *whole), dtype=x.dtype)
    for i, j in product(range(kernel[0]), range(kernel[1])):
        rows, columns = (
            slice(d * at, d * at + s * (count - 1) + 1, s)
            for at, d, s, count in zip((i, j), dilations, strides, counts, strict=True)
        )
        result[:, :, rows, columns] += parts[:, :, i, j]
    (top, left), (height, width) = padded, space
    return result[:, :, top : top + height, left : left + width]


def _settings(name: str, *values: Size) -> tuple[Shape, Shape, Shape, Shape]:
    """Return kernel, dilation, padding and stride as pairs."""
    kernel, dilation, padding, stride = values
    return (
        sizes(f"{name}: kernel_size", kernel, 2),
        sizes(f"{name}: dilation", dilation, 2),
        sizes(f"{name}: padding", padding, 2, 0),
        sizes(f"{name}: stride", stride, 2),
    )


def _check_columns(x: Array, kernel: Shape, counts: Shape) -> None:
    fits = x.ndim == 3 and min(counts) > 0
    if not (fits and x.shape[1] % prod(kernel) == 0 and x.shape[2] == prod(counts)):
        raise ShapeError(
            f"fold: needs columns (N, channels · {prod(kernel)}, {max(0, prod(counts))}) for these "
            f"sizes, was given {x.shape}; give the sizes with which the images were unfolded"
        )
