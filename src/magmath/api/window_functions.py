"""Window functions for signals (tapers): weights that decrease towards both ends."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from magmath.api.creation import arange, ones
from magmath.api.data_types import astype
from magmath.api.elementwise import cos, sqrt, square
from magmath.api.float_functions import i0
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import float64
from magmath.core.promotion import get_default_dtype
from magmath.core.shown_value import shown


def _window(name: str, M: int, weight_at: Any) -> Array:
    """Return the window of M weights by a function of the position, from -1 to 1."""
    M = _number_of_points(name, M)
    if M < 2:
        return ones((max(M, 0),))
    weights: Array = weight_at((2.0 * arange(0, M) - (M - 1)) / (M - 1))
    return astype(weights, get_default_dtype())


def _number_of_points(name: str, M: Any) -> int:
    """Return M as an int. Raises TypeError unless it is a whole number."""
    if getattr(M, "ndim", 0) == 0:
        with suppress(TypeError, ValueError, OverflowError):  # an object, nan or infinity
            size = int(M)
            if size == M:
                return size
    raise TypeError(f"{name}: needs the number of points, an integer, was given {shown(M)}")


@dispatch_cached
def bartlett(M: int) -> Array:
    """Return the Bartlett window of M points: a triangle."""
    return _window("bartlett", M, lambda t: where(t <= 0, 1.0 + t, 1.0 - t))


@dispatch_cached
def hanning(M: int) -> Array:
    """Return the Hann window of M points: a raised cosine that ends at 0."""
    return _window("hanning", M, lambda t: 0.5 + 0.5 * cos(math.pi * t))


@dispatch_cached
def hamming(M: int) -> Array:
    """Return the Hamming window of M points: a raised cosine that ends at 0.08."""
    return _window("hamming", M, lambda t: 0.54 + 0.46 * cos(math.pi * t))


@dispatch_cached
def blackman(M: int) -> Array:
    """Return the Blackman window of M points: a sum of two cosines."""
    return _window(
        "blackman", M, lambda t: 0.42 + 0.5 * cos(math.pi * t) + 0.08 * cos(2 * math.pi * t)
    )


@dispatch_cached
def kaiser(M: int, beta: float) -> Array:
    """Return the Kaiser window of M points: a ratio of Bessel functions, with the steepness
    `beta`."""

    def weight_at(t: Any) -> Array:
        height = i0(as_array("kaiser", float(beta), float64))
        weights: Array = i0(beta * sqrt(1 - square(t))) / float(height)
        return weights

    return _window("kaiser", M, weight_at)
