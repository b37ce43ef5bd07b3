"""Convolution layers for one, two and three dimensions of space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, final

from magmath.arrays.array import Array
from magmath.core.integers import require_integer
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape
from magmath.nn.activation_functions import activation_function
from magmath.nn.convolution import conv, conv_transpose
from magmath.nn.initializers import initializer
from magmath.nn.module import Module
from magmath.nn.variables import Initial, Parameter, deferred
from magmath.nn.window_settings import Padding, Size, check_images, immutable_padding, sizes


class _Filters(Module, ABC):
    """The base class of convolutions: filters, a bias and an activation."""

    space: ClassVar[int]

    def __init__(
        self,
        channels: int,
        kernel: Size,
        *,
        stride: Size = 1,
        padding: Padding = 0,
        dilation: Size = 1,
        groups: int | Literal["depthwise"] = 1,
        bias: bool = True,
        activation: str | Callable[[Array], Array] = "linear",
        weight_init: Initial | str | float | None = None,
        bias_init: Initial | str = "zeros",
    ) -> None:
        name = type(self).__name__
        self.channels = require_integer(f"{name}: channels", channels, 1)
        self.kernel = sizes(f"{name}: kernel", kernel, self.space)
        self.stride = sizes(f"{name}: stride", stride, self.space)
        self.padding = immutable_padding(name, padding, self.space)
        self.dilation = sizes(f"{name}: dilation", dilation, self.space)
        self.groups = groups
        if groups != "depthwise" and self.channels % require_integer(f"{name}: groups", groups, 1):
            raise OptionError(
                f"{name}: groups must divide the {channels} channels of the result, was given "
                f"{groups}"
            )
        self.activation = activation
        self._function = activation_function(activation)
        first = weight_init
        if first is None:
            first = "he" if activation == "relu" else "glorot"
        self.weight: Parameter = deferred(initializer(first))
        self.bias: Parameter | None = deferred(initializer(bias_init)) if bias else None

    def __call__(self, x: Array) -> Array:
        """(N, inputs, *space) → (N, channels, *space')."""
        check_images(type(self).__name__, x.shape, self.space)
        groups = self._groups(x)
        shape = self._weight_shape(x.shape[1], groups)
        self.materialize(weight=(*shape, *self.kernel), bias=(self.channels,))
        return self._function(self._convolved(x, groups))

    def _groups(self, x: Array) -> int:
        """Return the number of groups. Raises ShapeError where the channels of x do not fit."""
        name, inputs = type(self).__name__, x.shape[1]
        groups = inputs if self.groups == "depthwise" else self.groups
        if inputs % groups or self.channels % groups:
            raise ShapeError(
                f"{name}: {groups} groups must divide the channels of the images and of the "
                f"result; these are {inputs} and {self.channels}"
            )
        weight = self.weight
        shape = self._weight_shape(inputs, groups)
        if isinstance(weight, Parameter) and weight.shape[:2] != shape:
            raise ShapeError(
                f"{name}: {weight.name} {weight.shape} takes images with "
                f"{self._inputs_of(weight.shape, groups)} channels, was given {x.shape}; images "
                f"are (N, channels, *space)"
            )
        return groups

    @abstractmethod
    def _weight_shape(self, inputs: int, groups: int) -> tuple[int, int]:
        """Return the first two extents of the weight, for images with so many channels."""

    @abstractmethod
    def _inputs_of(self, weight: Shape, groups: int) -> int:
        """Return the number of channels of the images that a weight fits."""

    @abstractmethod
    def _convolved(self, x: Array, groups: int) -> Array:
        """Return the convolution with the weight, plus the bias."""


class _Conv(_Filters):
    """y = activation(convolution of x with weight + bias).

    x is (N, inputs, *space), y (N, channels, *space'), weight (channels, inputs / groups, *kernel),
    bias (channels,). The number of inputs follows from the first call. A dimension of n elements
    becomes ⌊(n + before + after - dilation·(kernel - 1) - 1) / stride⌋ + 1, where before and after
    are the padding at its ends.

    channels     the channels of y
    kernel       the extents of the filters: a number, or one for each dimension
    stride       the distance of neighbouring results
    padding      zeros around x: a number, one or a pair for each dimension, "valid" (none), or
                 "same": y has ⌈n / stride⌉ elements where x has n
    dilation     the distance of neighbouring elements of a filter
    groups       inputs and channels form that many groups, which are convolved by themselves;
                 "depthwise" for as many groups as inputs
    activation   a name, see `nn.Activation`, or a function
    weight_init  a name in `nn.initializers.INITIALIZERS`, or a function of shape and element type;
                 by default "glorot", or "he" for relu
    bias_init    the same for the bias

    Raises OptionError for settings out of range, and in a call ShapeError for images that do not
    divide into groups, have other channels than the first ones, or are smaller than a filter.
    """

    def _weight_shape(self, inputs: int, groups: int) -> tuple[int, int]:
        return self.channels, inputs // groups

    def _inputs_of(self, weight: Shape, groups: int) -> int:
        return weight[1] * groups

    def _convolved(self, x: Array, groups: int) -> Array:
        return conv(
            x, self.weight, self.bias, stride=self.stride, padding=self.padding,
            dilation=self.dilation, groups=groups, name=type(self).__name__, space=self.space,
        )  # fmt: skip


class _ConvTranspose(_Filters):
    """y = activation(transposed convolution of x with weight + bias).

    x is (N, inputs, *space), y (N, channels, *space'), weight (inputs, channels / groups, *kernel),
    bias (channels,). A dimension of n elements becomes (n - 1)·stride - before - after +
    dilation·(kernel - 1) + 1 + output_padding, where before and after are the padding at its ends,
    or n·stride with padding="same".

    output_padding  elements added at the end of each dimension: less than stride or dilation

    The other arguments and the errors are those of `Conv2d`.
    """

    def __init__(
        self,
        channels: int,
        kernel: Size,
        *,
        stride: Size = 1,
        padding: Padding = 0,
        output_padding: Size = 0,
        dilation: Size = 1,
        groups: int | Literal["depthwise"] = 1,
        bias: bool = True,
        activation: str | Callable[[Array], Array] = "linear",
        weight_init: Initial | str | float | None = None,
        bias_init: Initial | str = "zeros",
    ) -> None:
        super().__init__(
            channels, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups,
            bias=bias, activation=activation, weight_init=weight_init, bias_init=bias_init,
        )  # fmt: skip
        name = f"{type(self).__name__}: output_padding"
        self.output_padding = sizes(name, output_padding, self.space, 0)

    def _weight_shape(self, inputs: int, groups: int) -> tuple[int, int]:
        return inputs, self.channels // groups

    def _inputs_of(self, weight: Shape, groups: int) -> int:
        return weight[0]

    def _convolved(self, x: Array, groups: int) -> Array:
        return conv_transpose(
            x, self.weight, self.bias, stride=self.stride, padding=self.padding,
            output_padding=self.output_padding, dilation=self.dilation, groups=groups,
            name=type(self).__name__, space=self.space,
        )  # fmt: skip


@final
class Conv1d(_Conv):
    __doc__ = _Conv.__doc__
    space = 1


@final
class Conv2d(_Conv):
    __doc__ = _Conv.__doc__
    space = 2


@final
class Conv3d(_Conv):
    __doc__ = _Conv.__doc__
    space = 3


@final
class ConvTranspose1d(_ConvTranspose):
    __doc__ = _ConvTranspose.__doc__
    space = 1


@final
class ConvTranspose2d(_ConvTranspose):
    __doc__ = _ConvTranspose.__doc__
    space = 2


@final
class ConvTranspose3d(_ConvTranspose):
    __doc__ = _ConvTranspose.__doc__
    space = 3
