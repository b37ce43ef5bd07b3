"""Layers that change the size of images: interpolation, padding, patches, pixels as channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from magmath.arrays.array import Array
from magmath.core.integers import require_integer
from magmath.nn.module import Module
from magmath.nn.patches import fold, unfold
from magmath.nn.resampling import (
    channel_shuffle,
    interpolate,
    pad,
    pixel_shuffle,
    pixel_unshuffle,
)
from magmath.nn.window_settings import Size, check_images, sizes


@final
class Upsample(Module):
    """Images of another size, by interpolation.

    size           the new extents of space; or
    scale_factor   their ratio to the present ones
    mode           as in `functional.interpolate`
    align_corners  for "linear" and "bicubic": True if the first and last elements keep their values
    """

    def __init__(
        self,
        size: Size | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        self.size = size
        self.scale_factor = scale_factor
        self.interpolation = mode  # `mode` is a method of all modules
        self.align_corners = align_corners

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → (N, channels, *new space)."""
        return interpolate(x, self.size, self.scale_factor, self.interpolation, self.align_corners)


@final
class Unfold(Module):
    """The patches of images as columns; see `functional.unfold`."""

    def __init__(
        self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        """(N, channels, H, W) → (N, channels · kernel, patches)."""
        return unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


@final
class Fold(Module):
    """The sums of patches, which are columns, as images; see `functional.fold`."""

    def __init__(
        self,
        output_size: Size,
        kernel_size: Size,
        dilation: Size = 1,
        padding: Size = 0,
        stride: Size = 1,
    ) -> None:
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        """(N, channels · kernel, patches) → (N, channels, *output_size)."""
        return fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


@final
class PixelShuffle(Module):
    """Images of `factor` times the size, whose pixels were channels; see
    `functional.pixel_shuffle`."""

    def __init__(self, factor: int) -> None:
        self.factor = require_integer("PixelShuffle: factor", factor, 1)

    def __call__(self, x: Array) -> Array:
        """(N, channels · factor², H, W) → (N, channels, factor · H, factor · W)."""
        return pixel_shuffle(x, self.factor)


@final
class PixelUnshuffle(Module):
    """Images of a `factor`-th of the size, whose channels were pixels; see
    `functional.pixel_unshuffle`."""

    def __init__(self, factor: int) -> None:
        self.factor = require_integer("PixelUnshuffle: factor", factor, 1)

    def __call__(self, x: Array) -> Array:
        """(N, channels, H, W) → (N, channels · factor², H / factor, W / factor)."""
        return pixel_unshuffle(x, self.factor)


@final
class ChannelShuffle(Module):
    """Images whose channels are in another order: the first ones of all groups, then the second
    ones, and so on; see `functional.channel_shuffle`."""

    def __init__(self, groups: int) -> None:
        self.groups = require_integer("ChannelShuffle: groups", groups, 1)

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → the same shape."""
        return channel_shuffle(x, self.groups)


class _Pad(Module):
    """Images with more elements around them.

    padding  a number for all ends, or the numbers before and after the last dimension, then those
             of the one in front of it: (left, right, top, bottom)
    """

    space: ClassVar[int]
    filled: ClassVar[str]

    def __init__(self, padding: Size) -> None:
        self.padding = sizes(f"{type(self).__name__}: padding", padding, 2 * self.space, 0)

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → (N, channels, *larger space)."""
        check_images(type(self).__name__, x.shape, self.space)
        return pad(x, self.padding, self.filled)


@final
class ZeroPad1d(_Pad):
    """Sequences with zeros around them. A number for both ends, or (left, right)."""

    space, filled = 1, "constant"


@final
class ZeroPad2d(_Pad):
    """Images with zeros around them. A number for all ends, or (left, right, top, bottom)."""

    space, filled = 2, "constant"


@final
class ZeroPad3d(_Pad):
    """Volumes with zeros around them. A number for all ends, or (left, right, top, bottom, front,
    back)."""

    space, filled = 3, "constant"


@final
class ReflectionPad1d(_Pad):
    """Sequences mirrored at their first and last elements; see `ZeroPad1d`."""

    space, filled = 1, "reflect"


@final
class ReflectionPad2d(_Pad):
    """Images mirrored at their first and last elements; see `ZeroPad2d`."""

    space, filled = 2, "reflect"


@final
class ReflectionPad3d(_Pad):
    """Volumes mirrored at their first and last elements; see `ZeroPad3d`."""

    space, filled = 3, "reflect"


@final
class ReplicationPad1d(_Pad):
    """Sequences with copies of their first and last elements around them; see `ZeroPad1d`."""

    space, filled = 1, "replicate"


@final
class ReplicationPad2d(_Pad):
    """Images with copies of their first and last elements around them; see `ZeroPad2d`."""

    space, filled = 2, "replicate"


@final
class ReplicationPad3d(_Pad):
    """Volumes with copies of their first and last elements around them; see `ZeroPad3d`."""

    space, filled = 3, "replicate"


@final
class CircularPad1d(_Pad):
    """Sequences that continue with the elements of the other end; see `ZeroPad1d`."""

    space, filled = 1, "circular"


@final
class CircularPad2d(_Pad):
    """Images that continue with the elements of the other end; see `ZeroPad2d`."""

    space, filled = 2, "circular"


@final
class CircularPad3d(_Pad):
    """Volumes that continue with the elements of the other end; see `ZeroPad3d`."""

    space, filled = 3, "circular"
