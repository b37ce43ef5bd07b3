"""Weighted means, covariances and correlations."""

from __future__ import annotations

from functools import reduce
from typing import Any

from magmath.api.aligned_weights import aligned_weights
from magmath.api.creation import full, zeros
from magmath.api.data_types import astype, result_type
from magmath.api.elementwise import clip, conj, divide, imag, maximum, multiply, real, sqrt
from magmath.api.linalg import diagonal
from magmath.api.manipulation import broadcast_to, concat, reshape, squeeze
from magmath.api.reductions import sum
from magmath.api.statistics import mean
from magmath.arrays.array import Array, as_array, as_arrays, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import Axis
from magmath.errors import ShapeError


@dispatch_cached
def average(
    a: Any,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Return the mean over `axis` with weights, of the array's shape or one for each position of
    the axis; with `returned` also the sum of the weights."""
    x = as_array("average", a)
    if weights is None:
        value = mean(x, axis, keepdims=keepdims)
        count = x.size / max(value.size, 1)
        return (value, full(value.shape, count, dtype=value.dtype)) if returned else value
    x, weights = as_arrays("average", x, weights)
    weights = aligned_weights("average", weights, x, axis)
    element = floating_dtype(result_type(x, weights))
    x, weights = astype(x, element), astype(weights, element)
    total = sum(broadcast_to(weights, x.shape), axis, keepdims=keepdims)
    value = divide(sum(multiply(x, weights), axis, keepdims=keepdims), total)
    return (value, total) if returned else value


@dispatch_cached
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Array:
    """Return the covariance of variables, which are rows, or columns where `rowvar` is False.

    ddof: the divisor is the number of observations minus ddof, 1 by default, 0 with `bias`.
    fweights: the number of times that each observation counts; aweights: weights of observations.
    """
    x = _observations("cov", m, rowvar)
    if not x.shape[0]:
        return zeros((0, 0), dtype=x.dtype)
    if y is not None:
        first, second = as_arrays("cov", m, y)
        is_row = second.shape[:1] == (1,)  # one variable, also without `rowvar`, as in NumPy
        parts = [(first, rowvar), (second, rowvar or is_row)]
        x = concat([_observations("cov", part, has_rows) for part, has_rows in parts])
    if dtype is not None:
        x = astype(x, dtype)
    correction = (0 if bias else 1) if ddof is None else ddof
    if fweights is None and aweights is None:
        deviation = x - mean(x, 1, keepdims=True)
        degrees = float(max(x.shape[1] - correction, 0))
        return squeeze(divide(deviation @ conj(deviation).T, degrees))
    if fweights is not None and not as_array("cov", fweights).dtype.is_integer:
        raise TypeError("cov: fweights are integers; pass other weights as aweights")
    counts, factors = (_observation_weights(x, weights) for weights in (fweights, aweights))
    return _weighted_covariance(x, counts, factors, correction)


def _observation_weights(x: Array, weights: Any) -> Array | None:
    """Return one weight for each observation, or None for none."""
    if weights is None:
        return None
    factors = floating("cov", as_arrays("cov", x, weights)[1])
    if factors.shape != x.shape[1:]:
        raise ShapeError(
            f"cov: needs {x.shape[1]} weights, was given shape {factors.shape}"
            "; pass one for each observation"
        )
    return factors


def _weighted_covariance(
    x: Array, counts: Array | None, factors: Array | None, correction: int
) -> Array:
    """Return the covariance of observations that occur several times, with weights."""
    weights = reduce(multiply, [part for part in (counts, factors) if part is not None])
    weights = astype(weights, x.dtype)
    total = sum(weights)
    deviation = x - divide(sum(x * weights, 1, keepdims=True), total)
    lost = 1.0 if factors is None else sum(weights * factors) / total
    degrees = real(total - correction * lost) if correction else real(total)
    return squeeze((deviation * weights) @ conj(deviation).T / maximum(degrees, 0.0))


def _observations(name: str, m: Any, rowvar: bool) -> Array:
    """Return variables as rows."""
    x = floating(name, m)
    if x.ndim > 2:
        raise ShapeError(
            f"{name}: needs 1 or 2 dimensions, was given shape {x.shape}"
            "; reshape it to (variables, observations)"
        )
    if x.ndim < 2:
        return reshape(x, (1, x.size))
    return x if rowvar else x.T


@dispatch_cached
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Array:
    """Return the correlation coefficients of variables; see `cov`."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return divide(c, c)
    deviations = sqrt(real(diagonal(c)))
    c = c / reshape(deviations, (-1, 1)) / deviations
    if c.dtype.kind == "complex":
        return astype(_clipped_to_one(real(c)), c.dtype) + _clipped_to_one(imag(c)) * 1j
    return _clipped_to_one(c)


def _clipped_to_one(x: Array) -> Array:
    """Return correlations without errors of rounding beyond -1 and 1."""
    return clip(x, -1.0, 1.0)
