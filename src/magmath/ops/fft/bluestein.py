"""Fourier transforms of any length as a convolution, by transforms of a smooth length.

With j·k = (j² + k² - (k - j)²) / 2 and the chirp w[j] = exp(∓iπ·j²/n),

    X[k] = w[k] · Σ_j (x[j] · w[j]) · conj(w[k - j])

(Bluestein, "A linear filtering approach to the computation of the discrete Fourier transform",
IEEE Trans. Audio Electroacoust. 18, 1970). In this way a long axis can be split over the workers
even if its length, a prime for instance, has no two factors for the four-step transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from magmath.core.dtypes import complex128, int64
from magmath.core.shapes import with_extent
from magmath.graph import Node
from magmath.ops.creation import iota
from magmath.ops.elementwise import astype, call, conj, where
from magmath.ops.leaves import constant
from magmath.ops.slicing import padded, slice_along

SHORTEST = 1 << 12
"""Minimum length for this algorithm."""
LONGEST = 1 << 31
"""Length from which the squares of positions exceed 64-bit integers."""

Transform = Callable[[Node, bool], Node]
"""(array, inverse) → complex transform along the axis; forward and inverse give the identity."""


def bluestein_fft(x: Node, axis: int, fft: Transform, inverse: bool, scale: float) -> list[Node]:
    """Return the transform of a complex array along an axis, times `scale`.

    Returns an empty list for unsuitable lengths.
    """
    n = x.shape[axis]
    if not SHORTEST <= n < LONGEST:
        return []
    m = next_smooth(2 * n - 1)
    along = tuple(-1 if d == axis else 1 for d in range(x.ndim))
    positions = iota(tuple(n if e < 0 else e for e in along), axis)
    w = astype(_chirp(positions, n, inverse), x.dtype)
    kernel_positions = iota(tuple(m if e < 0 else e for e in along), axis)
    distance = call("minimum", kernel_positions, m - kernel_positions)
    near = call("less", distance, constant(n, int64))
    kernel = astype(conj(_chirp(distance, n, inverse)), x.dtype)
    kernel_spectrum = fft(where(near, kernel, constant(0, x.dtype)), False)
    wide = with_extent(x.shape, axis, m)
    spectrum = fft(padded(x * w, wide, (0,) * x.ndim), False)
    convolved = slice_along(fft(spectrum * kernel_spectrum, True), axis, 0, n)
    return [convolved * (w * scale)]


def _chirp(positions: Node, n: int, inverse: bool) -> Node:
    """Return exp(∓iπ·j²/n), complex128; j² is reduced modulo 2n in exact integers."""
    squares = call("remainder", positions * positions, constant(2 * n, int64))
    turn = constant((1j if inverse else -1j) * math.pi / n, complex128)
    return call("exp", astype(squares, complex128) * turn)


def next_smooth(min_value: int) -> int:
    """Return the smallest number ≥ `min_value` whose prime factors are 2, 3 and 5 only."""
    best = 1 << (min_value - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            best = min(best, three << max(0, (-(-min_value // three) - 1).bit_length()))
            three *= 3
        five *= 5
    return best
