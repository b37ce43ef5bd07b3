"""Logarithm, exponential, sine and cosine from additions, products and quotients only.

IEEE 754 requires correct rounding of these operations, so the results have the same bits on every
device; the functions of libraries differ in the last place. Each function accepts float64 numbers
and tensors, and is accurate to a few units in the last place.
"""

from __future__ import annotations

from typing import Any


def log_series(mantissa: Any, exponent: Any) -> Any:
    """ln(mantissa · 2^exponent) for a mantissa in [√½, √2]: 2 artanh((m - 1) / (m + 1))."""
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = 1 / 19 + z * (1 / 21 + z * (1 / 23))
    series = 1 / 11 + z * (1 / 13 + z * (1 / 15 + z * (1 / 17 + z * series)))
    series = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * series)))
    return exponent * 0.6931471805599453 + (2.0 * s + 2.0 * s * z * series)


def exp_series(x: Any) -> Any:
    """exp(x) for x in [-ln(2)/2, ln(2)/2], by the rational function of Cephes (Moshier 1989)."""
    z = x * x
    p = x * ((1.2617719307481059e-4 * z + 3.0299440770744196e-2) * z + 1.0)
    q = (3.0019850513866446e-6 * z + 2.5244834034968410e-3) * z + 2.2726554820815503e-1
    return 1.0 + 2.0 * (p / (q * z + 2.0 - p))


def cosine_series(turns: Any) -> Any:
    """cos(2π · turns) for turns in [-1/8, 1/8]."""
    x = turns * 6.283185307179586
    z = x * x
    series = 1 / 479001600 + z * (-1 / 87178291200 + z * (1 / 20922789888000))
    series = 1 / 24 + z * (-1 / 720 + z * (1 / 40320 + z * (-1 / 3628800 + z * series)))
    return 1.0 - 0.5 * z + z * z * series


def sine_series(turns: Any) -> Any:
    """sin(2π · turns) for turns in [-1/8, 1/8]."""
    x = turns * 6.283185307179586
    z = x * x
    series = -1 / 39916800 + z * (1 / 6227020800 + z * (-1 / 1307674368000))
    series = -1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z * (1 / 362880 + z * series)))
    return x + x * z * series
