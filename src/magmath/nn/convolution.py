"""Convolutions of images (N, channels, *space) and their transposes, as functions.

A convolution of networks is a correlation: filters are not reversed. Weights are PyTorch's:
(outputs, channels / groups, *kernel), and for the transposed convolution (channels, outputs /
groups, *kernel).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magmath.api.data_types import astype, result_type
from magmath.api.manipulation import reshape
from magmath.arrays.array import Array, as_array
from magmath.core.keyword_hints import keyword_hints
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape
from magmath.nn.layer_input import check_shape, layer_input
from magmath.nn.numbered_functions import general
from magmath.nn.window_settings import Padding, Pads, Size, check_covered, check_images, pads, sizes
from magmath.ops.conv.convolution import correlation, correlation_input


@general
@keyword_hints
def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int = 1,
    name: str = "conv",
    space: int | None = None,
) -> Array:
    """Return y[n,k,o] = bias[k] + Σ_c,j x[n,c, stride·o - padding + dilation·j] · weight[k,c,j].

    x        (N, channels, *space), zero out of bounds; of one or more dimensions of space
    weight   (outputs, channels / groups, *kernel)
    bias     (outputs,)
    stride   the distance of neighbouring results, for all dimensions or each
    padding  a number for all dimensions or each, a pair for each, "valid" (0), or "same": the
             result has ⌈n / stride⌉ elements for n elements of x
    dilation the distance of neighbouring elements of the filter
    groups   the channels and outputs form that many groups; outputs read the channels of their
             group only. With as many groups as channels the convolution is depthwise

    Returns (N, outputs, *space'); with padding before and after it, a dimension of n elements
    becomes ⌊(n + before + after - dilation·(kernel - 1) - 1) / stride⌋ + 1. Integers are converted
    to the weight's type. Raises ShapeError where channels do not divide into groups, a filter
    exceeds the padded image, or the bias has another shape.
    """
    x, weight = _operands(name, x, weight, space)
    kernel, image = weight.shape[2:], x.shape[2:]
    _check_groups(name, x.shape, weight.shape, groups)
    strides, dilations = _steps(name, stride, dilation, len(image))
    padded = pads(name, padding, image, kernel, strides, dilations)
    check_covered(name, image, padded, kernel, dilations)
    node = correlation(
        x.node, weight.node, stride=strides, padding=padded, dilation=dilations, groups=groups,
        line=user_line(),
    )  # fmt: skip
    return _with_bias(name, Array(node), bias)


@general
@keyword_hints
def conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Size = 1,
    padding: Padding = 0,
    output_padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
    name: str = "conv_transpose",
    space: int | None = None,
) -> Array:
    """Return the transposed convolution: the gradient of `conv` with respect to its images.

    x               (N, channels, *space)
    weight          (channels, outputs / groups, *kernel)
    bias            (outputs,)
    stride          the distance of the results of neighbouring elements
    padding         given as for `conv`: elements that are removed at the ends of the result
    output_padding  elements added at the end of each dimension, which select among the sizes that
                    `conv` maps to the same shape: less than stride or dilation
    dilation        the distance of neighbouring elements of the filter
    groups          the channels and outputs form that many groups, as in `conv`

    Each dimension of n elements becomes (n - 1)·stride - before - after + dilation·(kernel - 1) + 1
    + output_padding, where before and after are the padding at its ends; with padding="same",
    which takes no output_padding, n·stride. Raises ShapeError where channels do not fit the weight
    and the groups, padding leaves nothing, or the bias has another shape, OptionError for settings
    out of range. Source: Zeiler et al. (2010).
    """
    x, weight = _operands(name, x, weight, space)
    kernel, image = weight.shape[2:], x.shape[2:]
    if groups < 1 or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise ShapeError(
            f"{name}: a weight of {weight.shape} takes {weight.shape[0]} channels, in {groups} "
            f"groups, was given {x.shape}"
            "; give images with this number of channels, or another weight"
        )
    strides, dilations = _steps(name, stride, dilation, len(image))
    added = sizes(f"{name}: output_padding", output_padding, len(image), 0)
    if any(a >= max(s, d) for a, s, d in zip(added, strides, dilations, strict=True)):
        raise OptionError(
            f"{name}: output_padding must be smaller than stride or dilation, was given {added} "
            f"with stride {strides} and dilation {dilations}"
            "; use a smaller output_padding"
        )
    parts = list(zip(image, kernel, strides, dilations, strict=True))
    if isinstance(padding, str) and padding == "same":  # an array compares its elements
        if any(added):
            raise OptionError(
                f'{name}: with padding="same" the result has n · stride elements, was given '
                f"output_padding {added}; leave it out, or give padding as numbers"
            )
        extents = tuple([n * s for n, _, s, _ in parts])
        padded = pads(name, padding, extents, kernel, strides, dilations)
    else:
        padded = pads(name, padding, image, kernel, strides, dilations)
        extents = _transposed_space(name, parts, padded, added)
    node = correlation_input(
        x.node, weight.node, space=extents, stride=strides, padding=padded, dilation=dilations,
        groups=groups, line=user_line(),
    )  # fmt: skip
    return _with_bias(name, Array(node), bias)


def _transposed_space(
    name: str, parts: Sequence[tuple[int, int, int, int]], padded: Pads, added: Shape
) -> Shape:
    """Return the extents of a transposed convolution; `parts` has the extent, kernel, stride and
    dilation of each dimension. Raises ShapeError if nothing remains."""
    extents = []
    for (n, k, s, d), (low, high), more in zip(parts, padded, added, strict=True):
        extents.append((n - 1) * s + d * (k - 1) + 1 - low - high + more)
        if extents[-1] < 1:
            raise ShapeError(
                f"{name}: {n} elements with kernel {k}, stride {s} and padding {low} and {high} "
                f"make {extents[-1]} elements; use less padding"
            )
    return tuple(extents)


def _operands(name: str, x: Any, weight: Any, space: int | None) -> tuple[Array, Array]:
    """Return images and weight in one type. Raises ShapeError if their dimensions do not fit."""
    weight = as_array(name, weight)
    x = layer_input(name, x, weight)
    check_images(name, x.shape, space)
    if weight.ndim != x.ndim:
        raise ShapeError(
            f"{name}: images {x.shape} need a weight of {x.ndim} dimensions, was given "
            f"{weight.shape}"
            "; give images (N, channels, *space) and a weight with as many dimensions"
        )
    common = result_type(x, weight)
    return astype(x, common, copy=False), astype(weight, common, copy=False)


def _check_groups(name: str, x: Shape, weight: Shape, groups: int) -> None:
    """Raise ShapeError unless the channels of images and weight form this many groups."""
    if groups < 1 or x[1] % groups or weight[0] % groups:
        raise ShapeError(
            f"{name}: groups must divide {x[1]} channels and {weight[0]} outputs, was given "
            f"{groups}"
            "; choose groups that divide both"
        )
    if x[1] != weight[1] * groups:
        raise ShapeError(
            f"{name}: a weight of {weight} in {groups} group{'s' * (groups > 1)} takes images with "
            f"{weight[1] * groups} channels, was given {x}; images are (N, channels, *space)"
        )


def _steps(name: str, stride: Size, dilation: Size, count: int) -> tuple[Shape, Shape]:
    return sizes(f"{name}: stride", stride, count), sizes(f"{name}: dilation", dilation, count)


def _with_bias(name: str, y: Array, bias: Array | None) -> Array:
    if bias is None:
        return y
    if not hasattr(bias, "shape"):
        raise TypeError(
            f"{name}: the bias is an array (outputs,), was given {bias!r}; stride and padding are "
            f"given by name, as in stride=2"
        )
    outputs = y.shape[1]
    check_shape(name, "bias", bias, (outputs,), "a number for each of the outputs of the weight")
    return y + reshape(bias, (1, outputs, *(1,) * (y.ndim - 2)))
