"""Clipping of gradients: element by element, or by the common norm of all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from magmath.core.dtypes import compute_dtype
from magmath.core.promotion import promote
from magmath.errors import OptionError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.ops.sums import sum_

MIN_NORM = 1e-6  # added to the norm, as in PyTorch, to avoid a division by zero


def check_limits(value: float | None, norm: float | None) -> None:
    """Raise OptionError for limits that are not positive, or if both are given."""
    for name, limit in (("clip_value", value), ("clip_norm", norm)):
        if limit is not None and not limit > 0:
            raise OptionError(
                f"optimizer: {name} must be positive, was given {limit}; None switches it off"
            )
    if value is not None and norm is not None:
        raise OptionError(
            f"optimizer: give clip_value or clip_norm, not both; was given {value} and {norm}"
        )


def clipped(gradients: Sequence[Node], value: float | None, norm: float | None) -> Sequence[Node]:
    """Return gradients with elements in ±value, or scaled so that their norm is at most `norm`.

    The norm is that of all elements of all gradients, on all workers. Scaled gradients of half
    types become float32.
    """
    if value is not None:
        return [_clamped(g, value) for g in gradients]
    if norm is None or not gradients:
        return gradients
    common = _norm(gradients)
    factor = e.call("minimum", norm / (common + MIN_NORM), constant(1, common.dtype))
    return [e.astype(factor, compute_dtype(g.dtype)) * in_compute_type(g) for g in gradients]


def in_compute_type(x: Node) -> Node:
    """Return x in its compute type: float32 for half types."""
    return e.astype(x, compute_dtype(x.dtype))


def _norm(gradients: Sequence[Node]) -> Node:
    dtype = promote(*[compute_dtype(g.dtype) for g in gradients])
    squares = [e.astype(sum_(in_compute_type(g) * in_compute_type(g)), dtype) for g in gradients]
    return e.call("sqrt", reduce(add, squares))


def _clamped(gradient: Node, max_value: float) -> Node:
    low, high = constant(-max_value, gradient.dtype), constant(max_value, gradient.dtype)
    return e.call("minimum", e.call("maximum", gradient, low), high)
