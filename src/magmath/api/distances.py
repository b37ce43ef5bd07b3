"""Distances between all pairs of vectors of two sets."""

from __future__ import annotations

from magmath.api.activations import stop_gradient
from magmath.api.manipulation import expand_dims
from magmath.api.norms import vector_norm
from magmath.api.products import matmul, matrix_transpose
from magmath.api.reductions import sum
from magmath.api.statistics import mean
from magmath.arrays.array import Array, Operand
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import compute_dtype
from magmath.errors import OptionError, ShapeError
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant

MAX_BY_DIFFERENCES = 25
"""Largest number of vectors of a set for which the default mode computes all differences."""
_MODES = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}


@dispatch_cached
def cdist(
    x1: Operand,
    x2: Operand,
    /,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Array:
    """Return the p-norms (…, m, n) of all differences of vectors in (…, m, d) and (…, n, d), whose
    leading dimensions broadcast. Names and rules are PyTorch's.

    For p = 2 and more than 25 vectors in a set, or with "use_mm_for_euclid_dist", distances follow
    from scalar products, after the mean of x2 is subtracted: much faster, but short distances lose
    digits. "donot_use_mm_for_euclid_dist" computes all differences. Where a distance is 0 its
    gradient is 0; so is that by coordinates that are equal, if p < 1. Raises ShapeError if the
    shapes do not fit, OptionError for a negative p or an unknown mode.
    """
    if compute_mode not in _MODES:
        raise OptionError(
            f"cdist: compute_mode must be one of {', '.join(_MODES)}, was given {compute_mode!r}"
        )
    if not p >= 0:
        raise OptionError(f"cdist: p must be at least 0, was given {p}")
    a, b = map(Array, promoted_nodes("divide", x1, x2))
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"cdist: needs sets of vectors (…, m, d) and (…, n, d), was given {a.shape} and "
            f"{b.shape}"
        )
    by_products = _MODES[compute_mode]
    if by_products is None:
        by_products = max(a.shape[-2], b.shape[-2]) > MAX_BY_DIFFERENCES
    if p == 2 and by_products:
        return _euclidean(a, b)
    return vector_norm(expand_dims(a, -2) - expand_dims(b, -3), axis=-1, ord=p)


def _euclidean(a: Array, b: Array) -> Array:
    """Return Euclidean distances by √(|a|² + |b|² - 2 a·b)."""
    dtype = a.dtype
    wide = compute_dtype(dtype)
    a, b = Array(e.astype(a.node, wide)), Array(e.astype(b.node, wide))
    if b.shape[-2]:
        centre = stop_gradient(mean(b, axis=-2, keepdims=True))
        a, b = a - centre, b - centre
    lengths = sum(a * a, axis=-1, keepdims=True) + matrix_transpose(
        sum(b * b, axis=-1, keepdims=True)
    )
    squares = lengths - 2 * matmul(a, matrix_transpose(b))
    root = e.call("root", e.call("maximum", squares.node, constant(0, wide)))
    return Array(e.astype(root, dtype))
