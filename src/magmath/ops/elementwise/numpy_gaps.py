"""References of element-wise functions that NumPy lacks.

SciPy has the special functions; it is imported when one is first called.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def erf_of(x: Any) -> Any:
    """Return the error function; NumPy has none."""
    from scipy.special import erf

    return erf(x)


def expit_of(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), without overflow; NumPy has none."""
    from scipy.special import expit

    return expit(x)


def erfc_of(x: Any) -> Any:
    """Return 1 minus the error function, exact also where it is small; NumPy has none."""
    from scipy.special import erfc

    return erfc(x)


def lgamma_of(x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function; NumPy has none."""
    from scipy.special import gammaln

    return np.where(np.isneginf(x), np.inf, gammaln(x))  # as in C and torch


def digamma_of(x: Any) -> Any:
    """Return the derivative of `lgamma_of`."""
    from scipy.special import digamma

    return digamma(x)


def zeta_of(s: Any, x: Any) -> Any:
    """Return Hurwitz's zeta function, the sum of (k + x)^(-s) for k = 0, 1, …"""
    from scipy.special import zeta

    return zeta(s, x)


def complex_of(real: Any, imag: Any) -> Any:
    """Return complex numbers with these parts, which may be infinite."""
    result = np.empty(np.broadcast(real, imag).shape, np.result_type(real, imag, np.complex64))
    result.real, result.imag = real, imag
    return result
