"""Polynomials given by their coefficients, the highest power first, as NumPy's older functions."""

from __future__ import annotations

from typing import Any

from magmath.api.calculus import convolve
from magmath.api.complex_functions import sort_complex
from magmath.api.creation import arange, eye, ones, zeros
from magmath.api.data_types import astype, finfo, result_type
from magmath.api.diagonals import vander
from magmath.api.elementwise import add, conj, divide, imag, real, sqrt, subtract
from magmath.api.linalg import eigvals, inv, lstsq
from magmath.api.manipulation import concat, reshape
from magmath.api.reductions import all, sum
from magmath.api.searching import nonzero
from magmath.api.stacking import atleast_1d
from magmath.arrays.array import Array, as_array, as_arrays, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.integers import require_integer
from magmath.core.promotion import floating_dtype
from magmath.errors import ShapeError

ZERO_REMAINDER = 1e-8
"""Absolute value up to which a leading coefficient of a remainder counts as zero, as in NumPy."""


def _coefficients(name: str, p: Any) -> Array:
    x: Array = atleast_1d(as_array(name, p))
    if x.ndim != 1:
        raise ShapeError(
            f"{name}: coefficients are 1-D, was given shape {x.shape}"
            "; flatten them with mm.reshape(x, (-1,))"
        )
    return x


@dispatch_cached
def polyval(p: Any, x: Any) -> Array:
    """Return the values of a polynomial at each element of x, by Horner's scheme."""
    single = isinstance(x, int)
    p, at = as_arrays("polyval", p, [x] if single else x)  # integers have 64 bits, as in NumPy
    at = at[0] if single else at
    coefficients = _coefficients("polyval", p)
    value = zeros(at.shape, dtype=result_type(at, coefficients))
    for i in range(coefficients.size):
        value = value * at + coefficients[i]
    return value


@dispatch_cached
def polyadd(a1: Any, a2: Any) -> Array:
    """Return the sum of two polynomials."""
    return add(*_aligned("polyadd", a1, a2))


@dispatch_cached
def polysub(a1: Any, a2: Any) -> Array:
    """Return the difference of two polynomials."""
    return subtract(*_aligned("polysub", a1, a2))


def _aligned(name: str, a1: Any, a2: Any) -> tuple[Array, Array]:
    """Return two polynomials with equally many coefficients."""
    x, y = (_coefficients(name, p) for p in as_arrays(name, a1, a2))
    size = max(x.size, y.size)
    first, second = (
        concat([zeros((size - p.size,), dtype=p.dtype), p]) if p.size < size else p for p in (x, y)
    )
    return first, second


@dispatch_cached
def polymul(a1: Any, a2: Any) -> Array:
    """Return the product of two polynomials."""
    x, y = (_coefficients("polymul", p) for p in as_arrays("polymul", a1, a2))
    return convolve(_trimmed(x), _trimmed(y))


def _trimmed(p: Array) -> Array:
    """Return the coefficients without leading zeros, at least one; the values are computed."""
    (positions,) = nonzero(p)
    return p[int(positions[0]) :] if positions.size else p[-1:]


@dispatch_cached
def polydiv(u: Any, v: Any) -> tuple[Array, Array]:
    """Return the quotient and the remainder of two polynomials."""
    dividend, divisor = (_coefficients("polydiv", p) for p in as_arrays("polydiv", u, v))
    element = floating_dtype(result_type(dividend, divisor))
    remainder, divisor = astype(dividend, element), astype(divisor, element)
    m, n = remainder.size - 1, divisor.size - 1
    quotient: list[Array] = []
    for k in range(max(m - n + 1, 0)):
        factor = divide(remainder[k], divisor[0])
        quotient.append(factor)
        remainder = concat(
            [remainder[:k], remainder[k : k + n + 1] - factor * divisor, remainder[k + n + 1 :]]
        )
    parts = concat([reshape(x, (1,)) for x in quotient]) if quotient else zeros(1, element)
    while remainder.size > 1 and abs(complex(remainder[0])) <= ZERO_REMAINDER:
        remainder = remainder[1:]
    return parts, remainder


@dispatch_cached
def polyder(p: Any, m: int = 1) -> Array:
    """Return the m-th derivative of a polynomial."""
    x = _coefficients("polyder", p)
    for _ in range(require_integer("polyder: m", m, 0)):
        n = x.size - 1
        x = x[:-1] * arange(n, 0, -1)
    return x


@dispatch_cached
def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """Return the m-th antiderivative of a polynomial; k has the constants of integration (0 for
    None)."""
    x = _coefficients("polyint", p)
    times = require_integer("polyint: m", m, 0)
    constants = atleast_1d(as_arrays("polyint", x, 0.0 if k is None else k)[1])
    if constants.size not in (1, times) and times:
        raise ShapeError(
            f"polyint: needs a constant for each of {times} integrations, or one"
            f"; pass k=[c1, c2, …] with {times} numbers"
        )
    for i in range(times):
        whole = divide(x, arange(x.size, 0, -1))
        x = concat([whole, constants[i : i + 1] if constants.size > 1 else constants])
    return x


@dispatch_cached
def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: Any = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    """Return the polynomial of degree `deg` that fits points best, by least squares; y may have
    several columns. w: weights of the residuals. With `full` also the residuals, the rank, the
    singular values and rcond; with `cov` also the covariance of the coefficients ("unscaled": as it
    is)."""
    order = require_integer("polyfit: deg", deg, 0) + 1
    arrays = as_arrays("polyfit", x, y) if w is None else as_arrays("polyfit", x, y, w)
    at, values, *weights = (floating("polyfit", a) for a in arrays)
    if at.ndim != 1 or not at.size or values.ndim not in (1, 2) or len(values) != at.size:
        raise ShapeError(
            f"polyfit: needs x of shape (n,) and y of shape (n,) or (n, k), was given {at.shape} "
            f"and {values.shape}"
            "; reshape them"
        )
    limit = at.size * finfo(at.dtype).eps if rcond is None else rcond
    matrix, targets = vander(at, order), values
    for weight in weights:
        if weight.shape != at.shape:
            raise ShapeError(
                f"polyfit: needs a weight for each of {at.size} points, was given shape "
                f"{weight.shape}; pass w of shape ({at.size},)"
            )
        matrix = matrix * reshape(weight, (-1, 1))
        targets = targets * (reshape(weight, (-1, 1)) if targets.ndim == 2 else weight)
    scale = sqrt(sum(matrix * matrix, 0))
    matrix = matrix / scale
    fit = lstsq(matrix, targets, rtol=float(limit))
    coefficients = fit.solution / (reshape(scale, (-1, 1)) if targets.ndim == 2 else scale)
    if full:
        return coefficients, atleast_1d(fit.residuals), fit.rank, fit.singular_values, limit
    if not cov:
        return coefficients
    covariance = inv(matrix.T @ matrix) / (reshape(scale, (-1, 1)) * scale)
    if values.ndim == 2:
        covariance = reshape(covariance, (*covariance.shape, 1))
    variance = 1.0 if cov == "unscaled" else _residual_variance(fit.residuals, at.size - order)
    return coefficients, covariance * variance


def _residual_variance(residuals: Array, degrees: int) -> Array:
    if degrees <= 0:
        raise ShapeError(
            "polyfit: the covariance needs more points than coefficients"
            "; add points, or use a smaller degree"
        )
    return residuals / degrees


def roots(p: Any) -> Array:
    """Return the roots of a polynomial: the eigenvalues of its companion matrix. Zeros at both ends
    are removed; the coefficients are computed for that."""
    x = _coefficients("roots", p)
    (positions,) = nonzero(x)
    if not positions.size:
        return zeros((0,))
    first, last = int(positions[0]), int(positions[-1])
    behind = x.size - 1 - last
    x = floating("roots", x[first : last + 1])
    n = x.size - 1
    if not n:
        return zeros((behind,), dtype=x.dtype)
    row = reshape(-x[1:] / x[0], (1, n))
    matrix = concat([row, eye(n - 1, n, dtype=x.dtype)]) if n > 1 else row
    values = eigvals(matrix)
    if behind:
        values = concat([values, zeros((behind,), dtype=values.dtype)])
    return _real_if_possible(values)


def _real_if_possible(values: Array) -> Array:
    return real(values) if bool(all(imag(values) == 0)) else values


def poly(seq_of_zeros: Any) -> Array:
    """Return the polynomial with these roots, or the characteristic polynomial of a matrix."""
    x = atleast_1d(as_array("poly", seq_of_zeros))
    if x.ndim == 2 and x.shape[0] == x.shape[1] and x.size:
        x = eigvals(x)
    elif x.ndim != 1:
        raise ShapeError(
            f"poly: needs a 1-D array or a square matrix, was given shape {x.shape}"
            "; pass the roots as one flat list"
        )
    if not x.size:
        return ones(())
    x = floating("poly", x)
    one = ones((1,), dtype=x.dtype)
    result = one
    for i in range(x.size):
        zero = zeros((1,), dtype=x.dtype)
        result = concat([result, zero]) - x[i] * concat([zero, result])
    if result.dtype.kind == "complex" and _is_mirrored(x):
        return real(result)
    return result


def _is_mirrored(roots: Array) -> bool:
    """Return True if the conjugates of the numbers are the same numbers."""
    return bool(all(sort_complex(roots) == sort_complex(conj(roots))))
