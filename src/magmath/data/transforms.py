"""Augmentation and normalization of batches of images.

Each function here returns a transform: a function of a float32 batch (N, C, H, W) and a NumPy
generator that returns a batch. A user's own transform is a function with these two arguments. The
loader gives each batch its own generator, so results depend on seed, epoch and batch only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from magmath.data.dataset import Images
from magmath.errors import DataError, OptionError, ShapeError

Transform = Callable[[Images, np.random.Generator], Images]


def random_flip(probability: float = 0.5) -> Transform:
    """Return a transform that mirrors each image left to right with this probability."""
    if not 0 <= probability <= 1:
        raise OptionError(f"random_flip: probability must be in [0, 1], was given {probability}")

    def flip(images: Images, generator: np.random.Generator) -> Images:
        chosen = generator.random(len(images)) < probability
        flipped = images.copy()
        flipped[chosen] = images[chosen, ..., ::-1]
        return flipped

    return flip


def random_crop(padding: int) -> Transform:
    """Return a transform that crops padded images to their former size, at random positions.

    Each image is padded with zeros by `padding` pixels on every side (He et al. 2016, section 4.2).
    """
    if padding < 0:
        raise OptionError(
            f"random_crop: padding must not be negative, was given {padding}"
            "; crop with a slice instead"
        )

    def crop(images: Images, generator: np.random.Generator) -> Images:
        count, channels, height, width = images.shape
        border = (padding, padding)
        padded = np.pad(images, ((0, 0), (0, 0), border, border))
        tops, lefts = generator.integers(0, 2 * padding + 1, (2, count))
        result = np.empty((count, channels, height, width), images.dtype)
        for i, (top, left) in enumerate(zip(tops, lefts, strict=True)):
            result[i] = padded[i, :, top : top + height, left : left + width]
        return result

    return crop


def normalize(mean: float | Sequence[float], std: float | Sequence[float]) -> Transform:
    """Return a transform that subtracts the mean and divides by the standard deviation.

    `mean`, `std`: one number, or one for each channel; see `pixel_statistics`.
    """
    means, stds = (np.asarray(values, np.float32).reshape(-1, 1, 1) for values in (mean, std))
    if not (stds > 0).all():
        raise OptionError(f"normalize: std must be positive, was given {std}")

    def normalized(images: Images, generator: np.random.Generator) -> Images:
        for values in (means, stds):
            if len(values) not in (1, images.shape[1]):
                raise ShapeError(
                    f"normalize: images of {images.shape[1]} channels need one number, or "
                    f"{images.shape[1]}; was given {len(values)}"
                    "; give one for all channels, or one for each"
                )
        return (images - means) / stds

    return normalized


def resize(size: int | tuple[int, int]) -> Transform:
    """Return a transform that resizes images to this size: (height, width), or one number for both.

    Bilinear interpolation between pixel centres, as PyTorch's `interpolate` with
    `align_corners=False` and without anti-aliasing.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise OptionError(f"resize: a size must be positive, was given {size}")

    def resized(images: Images, generator: np.random.Generator) -> Images:
        if images.shape[2:] == (height, width):
            return images
        return _interpolated(_interpolated(images, 2, height), 3, width)

    return resized


def _interpolated(images: Images, axis: int, size: int) -> Images:
    """Return the images with `size` interpolated values along an axis."""
    extent = images.shape[axis]
    centres = np.clip((np.arange(size) + 0.5) * (extent / size) - 0.5, 0, extent - 1)
    low = centres.astype(np.int64)
    high = np.minimum(low + 1, extent - 1)
    shape = [-1 if i == axis else 1 for i in range(images.ndim)]
    weight = (centres - low).astype(np.float32).reshape(shape)
    below, above = np.take(images, low, axis), np.take(images, high, axis)
    mixed: Images = below * (1 - weight) + above * weight
    return mixed


def pixel_statistics(images: Images) -> tuple[list[float], list[float]]:
    """Return the mean and the standard deviation of each channel of images (N, C, H, W)."""
    count = images.size // max(images.shape[1], 1)
    if not count:
        raise ShapeError(
            f"pixel_statistics: needs at least one pixel, was given {images.shape}"
            "; leave empty batches out"
        )
    mean = images.mean(axis=(0, 2, 3), dtype=np.float64)
    squares = np.einsum("nchw,nchw->c", images, images, dtype=np.float64)
    variance = np.maximum(squares / count - mean**2, 0)
    return mean.tolist(), np.sqrt(variance).tolist()


def apply_transforms(
    transforms: Sequence[Transform], images: Images, generator: np.random.Generator
) -> Images:
    """Return the batch after all transforms. Raises ShapeError if one returns another number of
    samples."""
    for transform in transforms:
        changed = transform(images, generator)
        name = getattr(transform, "__name__", repr(transform))
        if changed is None:
            raise DataError(
                f"Loader: the transform {name} returned None; return the samples, also where they "
                f"are changed in place"
            )
        if len(changed) != len(images):
            raise ShapeError(
                f"Loader: the transform {name} must return {len(images)} samples, it returned "
                f"{np.shape(changed)}"
                "; transform each sample, and drop none"
            )
        images = changed
    return images
