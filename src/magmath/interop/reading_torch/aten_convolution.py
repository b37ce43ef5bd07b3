"""PyTorch's convolutions, pooling and interpolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, first_of_several
from magmath.nn import functional as f
from magmath.nn.grid_sampling import MODES, PADDING_MODES


def _convolution(
    x: mm.Array,
    weight: mm.Array,
    bias: mm.Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> mm.Array:
    is_single = x.ndim == weight.ndim - 1  # an image without a batch
    result = f.conv(
        x[None] if is_single else x,
        weight,
        bias,
        stride=_sizes(stride, weight.ndim - 2),
        padding=padding if isinstance(padding, str) else _sizes(padding, weight.ndim - 2),
        dilation=_sizes(dilation, weight.ndim - 2),
        groups=groups,
    )
    return result[0] if is_single else result


def _convolution_transpose(
    x: mm.Array,
    weight: mm.Array,
    bias: mm.Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> mm.Array:
    is_single = x.ndim == weight.ndim - 1
    result = f.conv_transpose(
        x[None] if is_single else x,
        weight,
        bias,
        stride=_sizes(stride, weight.ndim - 2),
        padding=_sizes(padding, weight.ndim - 2),
        output_padding=_sizes(output_padding, weight.ndim - 2),
        dilation=_sizes(dilation, weight.ndim - 2),
        groups=groups,
    )
    return result[0] if is_single else result


def _general_convolution(
    x: mm.Array,
    weight: mm.Array,
    bias: mm.Array | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> mm.Array:
    if transposed:
        return _convolution_transpose(
            x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _convolution(x, weight, bias, stride, padding, dilation, groups)


def _sizes(size: Any, space: int) -> tuple[int, ...]:
    """Return a size for each of `space` dimensions; PyTorch writes one for all of them as [n]."""
    values = [size] if isinstance(size, int) else list(size)
    return tuple(values * space if len(values) == 1 else values)


def _pool(function: Callable[..., Any], space: int) -> Callable[..., Any]:
    """Return a pooling of `space` dimensions, with or without a batch."""

    def pooled(x: mm.Array, *sizes: Any, **options: Any) -> Any:
        is_single = x.ndim == space + 1
        result = function(x[None] if is_single else x, space, *sizes, **options)
        return result[0] if is_single else result

    return pooled


def _max_pool(
    x: mm.Array,
    space: int,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> mm.Array:
    sizes = [_sizes(size, space) for size in (kernel, stride or kernel, padding)]
    return f.max_pool(x, *sizes, dilation=_sizes(dilation, space), ceil_mode=ceil_mode)


def _avg_pool(
    x: mm.Array,
    space: int,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> mm.Array:
    sizes = [_sizes(size, space) for size in (kernel, stride or kernel, padding)]
    return f.avg_pool(
        x, *sizes, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )  # fmt: skip


def _adaptive(function: Callable[..., Any]) -> Callable[..., Any]:
    def pooled(x: mm.Array, space: int, size: Any) -> Any:
        return function(x, tuple(_sizes(size, space)))

    return pooled


def _upsample(mode: str, *, antialias: bool = False) -> Callable[..., Any]:
    """Return an interpolation to a size, or by factors."""
    takes_corners = not mode.startswith("nearest")

    def resized(x: mm.Array, size: Any, *settings: Any) -> mm.Array:
        corners = bool(settings and settings[0]) if takes_corners else None
        factors = next((r for r in settings if isinstance(r, (list, tuple))), None)
        if factors is None:  # or the factors one by one, which are None without a scale_factor
            factors = [r for r in settings[takes_corners:] if r is not None] or None
        extents, scale = (tuple(size), None) if factors is None else (None, tuple(factors))
        return f.interpolate(x, extents, scale, mode, corners, antialias=antialias)

    return resized


def _grid_sampled(
    x: mm.Array, grid: mm.Array, mode: int, padding_mode: int, align_corners: bool
) -> mm.Array:
    names = MODES[mode], PADDING_MODES[padding_mode]  # PyTorch's numbers count them in this order
    return f.grid_sample(x, grid, *names, align_corners)


CONVOLUTION: dict[str, Operator] = {
    "grid_sampler_2d": _grid_sampled,
    "grid_sampler_3d": _grid_sampled,
    "grid_sampler": _grid_sampled,
    "im2col": f.unfold,
    "col2im": f.fold,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "convolution": _general_convolution,
    "conv_transpose1d": _convolution_transpose,
    "conv_transpose2d": _convolution_transpose,
    "conv_transpose3d": _convolution_transpose,
    **{f"max_pool{n}d": _pool(_max_pool, n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": first_of_several(_pool(_max_pool, n)) for n in (2, 3)},
    **{f"avg_pool{n}d": _pool(_avg_pool, n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _pool(_adaptive(f.adaptive_avg_pool), n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _pool(_adaptive(f.adaptive_avg_pool), n) for n in (2, 3)},
    **{
        f"adaptive_max_pool{n}d": first_of_several(_pool(_adaptive(f.adaptive_max_pool), n))
        for n in (1, 2, 3)
    },
    **{f"upsample_nearest{n}d": _upsample("nearest") for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _upsample("nearest-exact") for n in (1, 2, 3)},
    "upsample_linear1d": _upsample("linear"),
    "upsample_bilinear2d": _upsample("linear"),
    "upsample_trilinear3d": _upsample("linear"),
    "upsample_bicubic2d": _upsample("bicubic"),
    "_upsample_bilinear2d_aa": _upsample("linear", antialias=True),
    "_upsample_bicubic2d_aa": _upsample("bicubic", antialias=True),
}
