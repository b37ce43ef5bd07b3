"""`mm.fft`: the `fft` extension of the array API standard 2025.12, on arrays in any layout.

Transforms accept float32, float64, complex64, complex128, half types, which become float32, and
integers, which become floating point (`promotion.floating_dtype`). `norm` determines which
transform has the factor 1/n: "backward" the inverse transform, "forward" the other, "ortho" both,
as 1/√n. An axis is truncated or padded with zeros at its end to the requested length. The axes of a
transform may be split over the workers: unsplit axes are transformed in place, split axes after a
redistribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from magmath.api.creation import DTypeLike
from magmath.api.manipulation import roll
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import as_dtype, bfloat16, float16, float32, int64
from magmath.core.foreign_names import missing_in_module
from magmath.core.missing_numpy_names import numpy_hint
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import normalize_axes, normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops import slicing
from magmath.ops.creation import iota
from magmath.ops.fft import fourier
from magmath.ops.leaves import constant, scalar

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Raise AttributeError; for a NumPy name the message has the name used here."""
        raise missing_in_module("magmath.fft", __all__, name, numpy_hint(name))


__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    return __all__


FftAxes = Sequence[int] | None
Extents = Sequence[int] | None


# complex transforms -----------------------------------------------------------------------------


@dispatch_cached
def fft(a: Array, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the discrete Fourier transform along one axis, complex, of length n if n is given.

    Raises ShapeError for an axis out of range or n < 1.
    """
    return _transform("fft", a, None if n is None else (n,), (axis,), norm, inverse=False)


@dispatch_cached
def ifft(a: Array, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the inverse of `fft`. Raises as `fft`."""
    return _transform("ifft", a, None if n is None else (n,), (axis,), norm, inverse=True)


@dispatch_cached
def fftn(a: Array, s: Extents = None, axes: FftAxes = None, norm: str | None = None) -> Array:
    """Return the transform over several axes (all, or the last len(s)) of lengths s. Raises as
    `fft`."""
    return _transform("fftn", a, s, axes, norm, inverse=False)


@dispatch_cached
def ifftn(a: Array, s: Extents = None, axes: FftAxes = None, norm: str | None = None) -> Array:
    """Return the inverse of `fftn`. Raises as `fft`."""
    return _transform("ifftn", a, s, axes, norm, inverse=True)


def _transform(
    name: str, x: Array, s: Extents, axes: FftAxes, norm: str | None, *, inverse: bool
) -> Array:
    x = _operand(name, x)
    positions, extents = _axes_and_lengths(name, x, s, axes)
    return _result(_over(_as_complex(x), positions, extents, norm, inverse=inverse))


def _over(
    node: Node,
    axes: tuple[int, ...],
    extents: tuple[int, ...],
    norm: str | None,
    *,
    inverse: bool,
) -> Node:
    """Return the transform over axes, the last one first. An axis that is named again is
    transformed again, and truncated or padded before each time, as in NumPy."""
    first = len(axes)
    while first and axes[first - 1] not in axes[first:]:
        first -= 1
    node = _resized(node, axes[first:], extents[first:])
    node = fourier.fft(node, tuple(sorted(axes[first:])), inverse=inverse, norm=norm or "backward")
    return _over(node, axes[:first], extents[:first], norm, inverse=inverse) if first else node


# real signals -----------------------------------------------------------------------------------


@dispatch_cached
def rfft(a: Array, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the n // 2 + 1 coefficients from frequency 0 up of the transform of a real array.

    Raises as `fft`, and DTypeError for complex arrays.
    """
    return _of_real("rfft", a, None if n is None else (n,), (axis,), norm)


@dispatch_cached
def irfft(a: Array, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the inverse of `rfft`: a real array of length n (2·(m - 1) for m coefficients)."""
    return _to_real("irfft", a, None if n is None else (n,), (axis,), norm)


@dispatch_cached
def rfftn(a: Array, s: Extents = None, axes: FftAxes = None, norm: str | None = None) -> Array:
    """Return `rfft` over the last of the axes and `fftn` over the others. Raises as `rfft`."""
    return _of_real("rfftn", a, s, axes, norm)


@dispatch_cached
def irfftn(a: Array, s: Extents = None, axes: FftAxes = None, norm: str | None = None) -> Array:
    """Return the inverse of `rfftn`. Raises as `fft`."""
    return _to_real("irfftn", a, s, axes, norm)


@dispatch_cached
def hfft(a: Array, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the transform of a Hermitian signal given by its first half; real, of length n."""
    return _to_real("hfft", a, None if n is None else (n,), (axis,), norm, inverse=False)


@dispatch_cached
def ihfft(a: Array, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Return the inverse of `hfft`: the first n // 2 + 1 elements. Raises as `rfft`."""
    return _of_real("ihfft", a, None if n is None else (n,), (axis,), norm, inverse=True)


def _of_real(
    name: str, x: Array, s: Extents, axes: FftAxes, norm: str | None, *, inverse: bool = False
) -> Array:
    x = _operand(name, x)
    if not x.dtype.is_floating:
        raise DTypeError(
            f"{name}: takes real floating point, was given {x.dtype}"
            "; use the transform of complex input, or take mm.real(x)"
        )
    positions, extents = _axes_and_lengths(name, x, s, axes)
    if not positions:
        raise ShapeError(f"{name}: needs at least one axis; name one, or leave `axes` out")
    node = _resized(x.node, positions[-1:], extents[-1:])
    node = fourier.fft_of_real(node, positions[-1], inverse=inverse, norm=norm or "backward")
    return _result(_over(node, positions[:-1], extents[:-1], norm, inverse=inverse))


def _to_real(
    name: str, x: Array, s: Extents, axes: FftAxes, norm: str | None, *, inverse: bool = True
) -> Array:
    x = _operand(name, x)
    positions, extents = _axes_and_lengths(name, x, s, axes)
    if not positions:
        raise ShapeError(f"{name}: needs at least one axis; name one, or leave `axes` out")
    n = extents[-1] if s is not None else 2 * (extents[-1] - 1)
    if n < 1:
        raise ShapeError(f"{name}: the result would have {n} elements; give the length, 1 or more")
    other_axes, lengths = positions[-2::-1], extents[-2::-1]  # NumPy begins with the first axis
    node = _over(_as_complex(x), other_axes, lengths, norm, inverse=inverse)
    node = _resized(node, positions[-1:], (n // 2 + 1,))
    node = fourier.fft_to_real(node, positions[-1], n, inverse=inverse, norm=norm or "backward")
    return _result(node)


# two axes, by NumPy's names ---------------------------------------------------------------------


@dispatch_cached
def fft2(a: Array, s: Extents = None, axes: FftAxes = (-2, -1), norm: str | None = None) -> Array:
    """Return `fftn` over two axes."""
    return fftn(a, s=s, axes=axes, norm=norm)


@dispatch_cached
def ifft2(a: Array, s: Extents = None, axes: FftAxes = (-2, -1), norm: str | None = None) -> Array:
    """Return `ifftn` over two axes."""
    return ifftn(a, s=s, axes=axes, norm=norm)


@dispatch_cached
def rfft2(a: Array, s: Extents = None, axes: FftAxes = (-2, -1), norm: str | None = None) -> Array:
    """Return `rfftn` over two axes."""
    return rfftn(a, s=s, axes=axes, norm=norm)


@dispatch_cached
def irfft2(a: Array, s: Extents = None, axes: FftAxes = (-2, -1), norm: str | None = None) -> Array:
    """Return `irfftn` over two axes."""
    return irfftn(a, s=s, axes=axes, norm=norm)


# what they share --------------------------------------------------------------------------------


def _result(node: Node) -> Array:
    return Array(node.at_line(user_line()))


def _operand(name: str, value: Any) -> Array:
    """Return an array of a type that has transforms: those of half types are of float32."""
    x = floating(name, value)
    return Array(e.astype(x.node, float32)) if x.dtype in (float16, bfloat16) else x


def _as_complex(x: Array) -> Node:
    return x.node if x.dtype.kind == "complex" else e.astype(x.node, fourier.COMPLEX_OF[x.dtype])


def _axes_and_lengths(
    name: str, x: Array, s: Extents, axes: FftAxes
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes as positions, in the given order, and the length of each."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(s), 0)
    positions = tuple(normalize_axis(name, axis, x.ndim) for axis in axes)
    if s is not None and not all(hasattr(n, "__index__") for n in s):
        raise TypeError(
            f"{name}: lengths must be integers, was given {tuple(s)}; round them to Python integers"
        )
    extents = tuple(x.shape[d] for d in positions) if s is None else tuple(s)
    if name.endswith("n"):  # in transforms of several axes -1 stands for the whole axis
        pairs = zip(positions, extents, strict=False)
        whole = [x.shape[d] if n == -1 else n for d, n in pairs]
        extents = (*whole, *extents[len(whole) :])
    if len(extents) != len(positions):
        raise ShapeError(
            f"{name}: needs a length for each axis, was given {extents} for {axes}"
            "; give both, or leave one out"
        )
    if min(extents, default=1) < 1:
        raise ShapeError(f"{name}: lengths must be at least 1, were {extents} for axes {positions}")
    return positions, extents


def _resized(x: Node, axes: Sequence[int], extents: Sequence[int]) -> Node:
    """Return x truncated, or padded with zeros, to these lengths of its axes."""
    truncated, padded = list(x.shape), list(x.shape)
    for axis, extent in zip(axes, extents, strict=True):
        truncated[axis], padded[axis] = min(x.shape[axis], extent), extent
    for axis in axes:
        x = slicing.slice_along(x, axis, 0, truncated[axis])
    return slicing.padded(x, tuple(padded), (0,) * x.ndim)


# frequencies ------------------------------------------------------------------------------------


@dispatch_cached
def fftfreq(n: int, d: float = 1.0, dtype: DTypeLike = None, device: object = None) -> Array:
    """Return the frequencies of the coefficients of an `fft` of length n for samples `d` apart.

    They are 0, 1, …, -2, -1, each over n·d, of the default floating point type unless `dtype` is
    given.
    """
    _check_length("fftfreq", n)
    index = iota((n,), 0)
    negative = e.call("greater_equal", index, constant((n + 1) // 2, int64))
    wrapped = e.subtract(index, constant(n, int64))
    return _scaled("fftfreq", e.where(negative, wrapped, index), n * d, dtype)


@dispatch_cached
def rfftfreq(n: int, d: float = 1.0, dtype: DTypeLike = None, device: object = None) -> Array:
    """Return the frequencies of the n // 2 + 1 coefficients of an `rfft`: 0, 1, … over n·d."""
    _check_length("rfftfreq", n)
    return _scaled("rfftfreq", iota((n // 2 + 1,), 0), n * d, dtype)


def _check_length(name: str, n: int) -> None:
    if not hasattr(n, "__index__"):
        raise TypeError(
            f"{name}: the length must be an integer, was given {n!r}; pass a Python integer"
        )
    if n < 1:
        raise ShapeError(f"{name}: the length must be at least 1, was {n}")


def _scaled(name: str, index: Node, over: float, dtype: DTypeLike) -> Array:
    element = get_default_dtype() if dtype is None else as_dtype(dtype)
    if not element.is_floating:
        raise DTypeError(
            f"{name}: frequencies are real floating point, not {element}"
            "; pass dtype=mm.float32 or mm.float64"
        )
    scale = scalar(1.0 / over, element)
    return _result(e.multiply(e.astype(index, element), scale))


@dispatch_cached
def fftshift(x: Array, axes: Any = None) -> Array:
    """Return x with the coefficient of frequency 0 moved to the middle of each axis (of `axes`, or
    all)."""
    x = as_array("fftshift", x)
    dims = normalize_axes("fftshift", axes, x.ndim)
    return roll(x, tuple(x.shape[d] // 2 for d in dims), axis=dims)


@dispatch_cached
def ifftshift(x: Array, axes: Any = None) -> Array:
    """Return the inverse of `fftshift`."""
    x = as_array("ifftshift", x)
    dims = normalize_axes("ifftshift", axes, x.ndim)
    return roll(x, tuple(-(x.shape[d] // 2) for d in dims), axis=dims)
