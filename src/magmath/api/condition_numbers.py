"""Condition numbers of matrices, which are infinite for those without an inverse."""

from __future__ import annotations

import math
from typing import Any

from magmath.api.creation import eye
from magmath.api.elementwise import isnan, logical_and, logical_not
from magmath.api.factorizations import svdvals
from magmath.api.linear_systems import inv, slogdet
from magmath.api.manipulation import reshape
from magmath.api.norms import matrix_norm
from magmath.api.reductions import any
from magmath.api.searching import where
from magmath.arrays.array import Array, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.errors import MatrixShapeError
from magmath.ops.linalg.lapack import check_matrix


@dispatch_cached
def cond(x: Array, p: Any = None) -> Array:
    """Return the condition number: the norm of a matrix times that of its inverse; for None and 2
    the ratio of the largest to the least singular value, for -2 its inverse. That of a matrix
    without an inverse is infinite."""
    a = floating("cond", x)
    check_matrix("cond", a.node, square=p not in (None, 2, -2))
    if not a.size:
        raise MatrixShapeError(
            f"cond: needs matrices with elements, was given shape {a.shape}; leave them out"
        )
    if p in (None, 2, -2):
        s = svdvals(a)
        number = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
        is_singular = isnan(number)  # 0 / 0
    else:
        is_singular = slogdet(a).sign == 0
        regular = where(
            reshape(is_singular, (*a.shape[:-2], 1, 1)), eye(a.shape[-1], dtype=a.dtype), a
        )
        number = matrix_norm(a, ord=p) * matrix_norm(inv(regular), ord=p)
    has_nan = any(isnan(a), axis=(-2, -1))
    return where(logical_and(is_singular, logical_not(has_nan)), math.inf, number)
