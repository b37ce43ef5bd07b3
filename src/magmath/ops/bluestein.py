"""A Fourier transform of any length as a convolution, whose transforms have a length with factors.

With j·k = (j² + k² - (k - j)²) / 2 and the chirp w[j] = exp(∓iπ·j²/n),

    X[k] = w[k] · Σ_j (x[j] · w[j]) · conj(w[k - j])

(Bluestein, "A linear filtering approach to the computation of the discrete Fourier transform",
IEEE Trans. Audio Electroacoust. 18, 1970). So a long axis of a length that has no two factors to
take it as a matrix by, a prime one for instance, is divided over the workers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from magmath.core.dtypes import complex128, int64
from magmath.graph import Node
from magmath.ops.creation import iota
from magmath.ops.elementwise import astype, call, conj, where
from magmath.ops.leaves import constant
from magmath.ops.slicing import padded, slice_along

SHORTEST = 1 << 12
"""The least length that is transformed so."""
LONGEST = 1 << 31
"""The length from which on squares of positions are no 64-bit integers."""

Transform = Callable[[Node, bool], Node]
"""A complex transform along the axis, forward or inverse; there and back is the identity."""


def bluestein_fft(x: Node, axis: int, fft: Transform, inverse: bool, scale: float) -> list[Node]:
    """The transform of a complex array along an axis of suitable length, times a number."""
    n = x.shape[axis]
    if not SHORTEST <= n < LONGEST:
        return []
    m = next_smooth(2 * n - 1)
    along = tuple(-1 if d == axis else 1 for d in range(x.ndim))
    positions = iota(tuple(n if e < 0 else e for e in along), axis)
    w = astype(_chirp(positions, n, inverse), x.dtype)
    there = iota(tuple(m if e < 0 else e for e in along), axis)
    apart = call("minimum", there, m - there)
    near = call("less", apart, constant(n, int64))
    known = astype(conj(_chirp(apart, n, inverse)), x.dtype)
    answer = fft(where(near, known, constant(0, x.dtype)), False)
    wide = (*x.shape[:axis], m, *x.shape[axis + 1 :])
    spectrum = fft(padded(x * w, wide, (0,) * x.ndim), False)
    found = slice_along(fft(spectrum * answer, True), axis, 0, n)
    return [found * (w * scale)]


def _chirp(positions: Node, n: int, inverse: bool) -> Node:
    """exp(∓iπ·j²/n), complex128: j² counts modulo 2n, which integers keep exact."""
    squares = call("remainder", positions * positions, constant(2 * n, int64))
    turn = constant((1j if inverse else -1j) * math.pi / n, complex128)
    return call("exp", astype(squares, complex128) * turn)


def next_smooth(least: int) -> int:
    """The smallest number from `least` on that has no other factors than 2, 3 and 5."""
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            best = min(best, three << max(0, (-(-least // three) - 1).bit_length()))
            three *= 3
        five *= 5
    return best
