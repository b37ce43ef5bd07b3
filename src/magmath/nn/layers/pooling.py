"""Pooling layers: over sliding windows, over adaptive windows, and over whole images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, final

from magmath.arrays.array import Array
from magmath.nn import pooling
from magmath.nn.module import Module
from magmath.nn.window_settings import (
    AdaptiveSize,
    Padding,
    Size,
    adaptive_sizes,
    check_images,
    immutable_padding,
    sizes,
)


class _Pooling(Module, ABC):
    """The base class of pooling."""

    space: ClassVar[int]

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → (N, channels, *windows)."""
        check_images(type(self).__name__, x.shape, self.space)
        return self._pooled(x)

    @abstractmethod
    def _pooled(self, x: Array) -> Array:
        """Return a number for each window, or each part of the image."""


class _Pool(_Pooling, ABC):
    """The base class of pooling by windows."""

    def __init__(
        self,
        kernel: Size,
        stride: Size | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
    ) -> None:
        name = type(self).__name__
        self.kernel = sizes(f"{name}: kernel", kernel, self.space)
        self.stride = (
            self.kernel if stride is None else sizes(f"{name}: stride", stride, self.space)
        )
        self.padding = immutable_padding(name, padding, self.space)
        self.ceil_mode = ceil_mode


class _MaxPool(_Pool):
    """The maximum of each window of each channel.

    kernel     the extents of a window
    stride     the distance of neighbouring windows, by default the kernel
    padding    elements around the image that count as smaller than all others; a number, one or a
               pair for each dimension, "valid" or "same"
    dilation   the distance of neighbouring elements of a window
    ceil_mode  if True, a last window that begins within the image or the padding before it counts
               too if it exceeds both

    With padding before and after it, a dimension of n elements becomes
    ⌊(n + before + after - dilation·(kernel - 1) - 1) / stride⌋ + 1; with `ceil_mode` ⌈…⌉, without a
    last window that begins behind the image. The gradient goes to the first maximum of each window.

    Raises OptionError for padding of more than half a window, and in a call ShapeError where a
    window exceeds the padded image.
    """

    def __init__(
        self,
        kernel: Size,
        stride: Size | None = None,
        padding: Padding = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel, stride, padding, ceil_mode)
        self.dilation = sizes(f"{type(self).__name__}: dilation", dilation, self.space)

    def _pooled(self, x: Array) -> Array:
        return pooling.max_pool(
            x, self.kernel, self.stride, self.padding, dilation=self.dilation,
            ceil_mode=self.ceil_mode, name=type(self).__name__,
        )  # fmt: skip


class _AvgPool(_Pool):
    """The mean of each window of each channel; arguments, extents and errors as in `MaxPool2d`.

    count_include_pad  if True, padded elements count as zeros; otherwise they do not count
    """

    def __init__(
        self,
        kernel: Size,
        stride: Size | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def _pooled(self, x: Array) -> Array:
        return pooling.avg_pool(
            x, self.kernel, self.stride, self.padding, ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad, name=type(self).__name__,
        )  # fmt: skip


class _AdaptivePool(_Pooling, ABC):
    """The base class of pooling by windows that divide the image."""

    def __init__(self, size: AdaptiveSize) -> None:
        self.size = adaptive_sizes(f"{type(self).__name__}: size", size, self.space)


class _AdaptiveAvgPool(_AdaptivePool):
    """Means of the parts into which the image is divided: `size` parts in each dimension; None
    stands for one part for each element."""

    def _pooled(self, x: Array) -> Array:
        return pooling.adaptive_avg_pool(x, self.size, name=type(self).__name__)


class _AdaptiveMaxPool(_AdaptivePool):
    """Maxima of the parts into which the image is divided: `size` parts in each dimension; None
    stands for one part for each element."""

    def _pooled(self, x: Array) -> Array:
        return pooling.adaptive_max_pool(x, self.size, name=type(self).__name__)


@final
class GlobalAvgPool(Module):
    """The mean of each channel: (N, channels, *space) → (N, channels)."""

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → (N, channels)."""
        return pooling.global_avg_pool(x)


@final
class GlobalMaxPool(Module):
    """The maximum of each channel: (N, channels, *space) → (N, channels)."""

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → (N, channels)."""
        return pooling.global_max_pool(x)


@final
class MaxPool1d(_MaxPool):
    __doc__ = _MaxPool.__doc__
    space = 1


@final
class MaxPool2d(_MaxPool):
    __doc__ = _MaxPool.__doc__
    space = 2


@final
class MaxPool3d(_MaxPool):
    __doc__ = _MaxPool.__doc__
    space = 3


@final
class AvgPool1d(_AvgPool):
    __doc__ = _AvgPool.__doc__
    space = 1


@final
class AvgPool2d(_AvgPool):
    __doc__ = _AvgPool.__doc__
    space = 2


@final
class AvgPool3d(_AvgPool):
    __doc__ = _AvgPool.__doc__
    space = 3


@final
class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    __doc__ = _AdaptiveAvgPool.__doc__
    space = 1


@final
class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    __doc__ = _AdaptiveAvgPool.__doc__
    space = 2


@final
class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    __doc__ = _AdaptiveAvgPool.__doc__
    space = 3


@final
class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    __doc__ = _AdaptiveMaxPool.__doc__
    space = 1


@final
class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    __doc__ = _AdaptiveMaxPool.__doc__
    space = 2


@final
class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    __doc__ = _AdaptiveMaxPool.__doc__
    space = 3
