"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

from magmath.api.activations import softmax, softmax_or_zero
from magmath.api.creation import ones
from magmath.api.diagonals import tril
from magmath.api.manipulation import swapaxes
from magmath.api.products import matmul
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array
from magmath.core.dtypes import bool_
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import Shape, can_broadcast_to
from magmath.errors import DTypeError, ShapeError


def attention_weights(
    query: Array,
    key: Array,
    mask: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Array:
    """Return softmax(query · keyᵀ · scale): the weight of each key for each query.

    query (…, queries, features), key (…, keys, features) → (…, queries, keys).

    mask    bool, True for keys that take part, or floating point, added to the scores before the
            softmax; broadcasts to the result
    causal  if True, query i attends to the keys 0 … i only
    scale   by default 1/√features

    A query without any key has weights and gradients 0, as in PyTorch's
    `scaled_dot_product_attention`. Raises DTypeError for a mask of integers, ShapeError for one
    that does not broadcast.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"attention_weights: queries have {query.shape[-1]} features and keys "
            f"{key.shape[-1]}; give both the same number"
        )
    scores = matmul(
        query * (query.shape[-1] ** -0.5 if scale is None else scale), swapaxes(key, -1, -2)
    )
    if causal:
        is_not_later = tril(ones(scores.shape[-2:], dtype=bool_))
        scores = where(is_not_later, scores, -float("inf"))
    if mask is None:  # each query has a key
        return softmax(scores, axis=-1)
    mask = _checked_mask(mask, scores.shape)
    scores = where(mask, scores, -float("inf")) if mask.dtype is bool_ else scores + mask
    return softmax_or_zero(scores, axis=-1)


def _checked_mask(mask: Any, shape: Shape) -> Array:
    """Return a mask as an array. Raises DTypeError for other types than bool and floating point,
    ShapeError unless it broadcasts to scores of this shape."""
    array = as_array("attention", mask)
    if array.dtype is not bool_ and not array.dtype.is_floating:
        raise DTypeError(
            f"attention: a mask must be bool (True for keys that take part) or floating point "
            f"(added to the scores), was given {array.dtype}; convert it with mm.astype(mask, bool)"
        )
    if not can_broadcast_to(array.shape, shape):
        raise ShapeError(
            f"attention: a mask of shape {array.shape} does not broadcast to the scores "
            f"{shape}, which end with (queries, keys); nn.MultiheadAttention takes one of "
            f"(N, keys) as key_mask="
        )
    return array


@keyword_hints
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Array:
    """Return the averages of the values, weighted by `attention_weights`.

    query (…, queries, features), key (…, keys, features), value (…, keys, outputs) →
    (…, queries, outputs). Source: Vaswani et al. (2017), equation 1.
    """
    return matmul(attention_weights(query, key, mask, causal=causal, scale=scale), value)
