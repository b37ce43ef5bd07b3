"""`mm.signal`: convolution and correlation of n-dimensional arrays, with SciPy's names and modes.

mode    "full": all positions with an overlap; "same": the middle part of that, of the first array's
        shape; "valid": the positions where the larger array contains the smaller one
method  "direct": sums of products, and so are the gradients; "fft": by Fourier transforms, in
        floating point; "auto": the method that is predicted to be faster for the arrays' layouts

The first array may be split over the workers in every dimension: each worker receives the halo that
it needs from its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from magmath.arrays.array import Array
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.promotion import floating_dtype
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Node, Shape
from magmath.ops import elementwise as e
from magmath.ops.conv.convolution import by_spectra, correlation
from magmath.ops.fft.fourier import COMPLEX_OF, REAL_OF
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import reversed_along

__all__ = ["convolve", "correlate"]


def __dir__() -> list[str]:
    return __all__


MODES = ("full", "same", "valid")
METHODS = ("auto", "direct", "fft")


@dispatch_cached
def convolve(in1: Array, in2: Array, /, mode: str = "full", method: str = "auto") -> Array:
    """Return Σ_j in1[i - j] in2[j], for arrays with the same number of dimensions, 1 or more.

    Raises ShapeError for other shapes, or for "valid" if neither fits into the other; DTypeError
    for types without a common type, or for "fft" and half types.
    """
    a, b = _operands("convolve", in1, in2, mode, method)
    if mode == "valid" and not _is_within(b.shape, a.shape):
        a, b = b, a
    return _correlated("convolve", a, reversed_along(b, range(b.ndim)), mode, method)


@dispatch_cached
def correlate(in1: Array, in2: Array, /, mode: str = "full", method: str = "auto") -> Array:
    """Return Σ_j in1[i + j] conj(in2[j]), from the first i for which the arrays overlap.

    Raises as `convolve`.
    """
    a, b = _operands("correlate", in1, in2, mode, method)
    b = e.conj(b)
    if mode == "valid" and not _is_within(b.shape, a.shape):
        axes = range(a.ndim)
        a, b = reversed_along(b, axes), reversed_along(a, axes)
    return _correlated("correlate", a, b, mode, method)


def _operands(name: str, in1: Array, in2: Array, mode: str, method: str) -> tuple[Node, Node]:
    x, y = promoted_nodes(name, in1, in2)
    if mode not in MODES or method not in METHODS:
        raise OptionError(
            f"{name}: mode is one of {', '.join(MODES)} and method one of {', '.join(METHODS)}, "
            f"given were {mode!r} and {method!r}"
        )
    if x.ndim != y.ndim or not x.ndim or 0 in (*x.shape, *y.shape):
        raise ShapeError(
            f"{name}: needs arrays of equally many dimensions, 1 or more, with elements, was given "
            f"shapes {x.shape} and {y.shape}"
            "; add dimensions with mm.expand_dims"
        )
    if mode == "valid" and not (_is_within(x.shape, y.shape) or _is_within(y.shape, x.shape)):
        raise ShapeError(
            f'{name}: for mode "valid" one array must fit into the other, was given shapes '
            f"{x.shape} and {y.shape}"
            '; use mode="same" or "full"'
        )
    if method == "fft":
        x, y = (e.astype(node, floating_dtype(node.dtype)) for node in (x, y))
    if method == "fft" and x.dtype not in (*COMPLEX_OF, *REAL_OF):
        raise DTypeError(
            f'{name}: method "fft" takes float32, float64, complex64 and complex128, was given '
            f'{x.dtype}; use method="direct"'
        )
    return x, y


def _is_within(inner: Shape, outer: Shape) -> bool:
    return all(m <= n for m, n in zip(inner, outer, strict=True))


def _correlated(name: str, x: Node, w: Node, mode: str, method: str) -> Array:
    """Return Σ_j x[i + j] w[j] for the positions i of the mode."""
    node = correlation(
        reshape(x, (1, 1, *x.shape)),
        reshape(w, (1, 1, *w.shape)),
        stride=(1,) * x.ndim,
        padding=_padding(mode, w.shape),
        dilation=(1,) * x.ndim,
        transforms="arrays" if method == "auto" else "none",
        line=user_line(),
    )
    result = by_spectra(node) if method == "fft" else node
    return Array(reshape(result, result.shape[2:]))


def _padding(mode: str, kernel: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the number of zeros before and after each dimension of x."""
    if mode == "valid":
        return tuple((0, 0) for _ in kernel)
    if mode == "full":
        return tuple((k - 1, k - 1) for k in kernel)
    return tuple((k - 1 - (k - 1) // 2, (k - 1) // 2) for k in kernel)
