"""Attention as functions: scaled dot products, and several heads with their own features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from magmath.api.activations import softmax, softmax_or_zero
from magmath.api.creation import ones
from magmath.api.data_types import astype
from magmath.api.diagonals import tril
from magmath.api.elementwise import logical_and
from magmath.api.manipulation import reshape, swapaxes
from magmath.api.products import matmul
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array
from magmath.core.dtypes import bool_
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import Shape, can_broadcast_to
from magmath.errors import DTypeError, ShapeError
from magmath.nn.dropout import dropout as random_dropout
from magmath.nn.linear import linear


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
            softmax, in their type; broadcasts to the result
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
    if mask.dtype is bool_:
        scores = where(mask, scores, -float("inf"))
    else:
        scores = scores + astype(mask, scores.dtype, copy=False)
    return softmax_or_zero(scores, axis=-1)


def _typed_mask(mask: Any) -> Array:
    """Return a mask as an array. Raises DTypeError for other types than bool and floating point."""
    array = as_array("attention", mask)
    if array.dtype is not bool_ and not array.dtype.is_floating:
        raise DTypeError(
            f"attention: a mask must be bool (True for keys that take part) or floating point "
            f"(added to the scores), was given {array.dtype}; convert it with mm.astype(mask, bool)"
        )
    return array


def _checked_mask(mask: Any, shape: Shape) -> Array:
    """Return a mask as an array. Raises DTypeError for other types than bool and floating point,
    ShapeError unless it broadcasts to scores of this shape."""
    array = _typed_mask(mask)
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


@keyword_hints
def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    heads: int,
    weights: Sequence[Array],
    biases: Sequence[Array | None] | None = None,
    *,
    mask: Any = None,
    key_mask: Any = None,
    causal: bool = False,
    dropout: float = 0.0,
    training: bool = False,
) -> Array:
    """Return the attention of several heads, each with its own part of the features.

    query (N, queries, …), key and value (N, keys, …) → (N, queries, outputs).

    weights   of the queries, keys and values (inputs, features), and of the output (features,
              outputs); `heads` divides the features
    biases    four biases, or None for no bias
    mask      broadcasts to (N, heads, queries, keys), so two dimensions are (queries, keys); bool,
              True for keys that take part, or floating point, added to the scores
    key_mask  bool (N, keys), True for keys that take part and False for padding
    causal    if True, query i attends to the keys 0 … i only
    dropout   the probability with which a weight of a key is zero in training

    Raises ShapeError for arrays that do not fit each other, OptionError for fewer heads than 1.
    Source: Vaswani et al. (2017), section 3.2.2.
    """
    check_attention_inputs("multi_head_attention", query, key, value)
    added = (None,) * 4 if biases is None else biases
    if len(weights) != 4 or len(added) != 4:
        raise ShapeError(
            f"multi_head_attention: needs four weights, of the queries, keys, values and output, "
            f"and no or four biases, was given {len(weights)} and {len(added)}"
        )
    projected = [
        linear(x, weight, bias)
        for x, weight, bias in zip((query, key, value), weights[:3], added[:3], strict=True)
    ]
    heads = require_heads("multi_head_attention", heads, *[x.shape[-1] for x in projected])
    queries, keys, values = projected
    averages = attention_of_heads(
        queries,
        keys,
        values,
        heads,
        mask,
        key_mask=key_mask,
        causal=causal,
        drop=partial(random_dropout, rate=dropout, training=training),
    )
    return linear(averages, weights[3], added[3])


def require_heads(name: str, heads: int, *features: int) -> int:
    """Return the number of heads as an int. Raises OptionError unless it is an integer of at least
    1, ShapeError unless it divides all these numbers of features."""
    count = require_integer(f"{name}: heads", heads, 1)
    for n in features:
        if n % count:
            raise ShapeError(
                f"{name}: heads must divide the features, was given {count} for {n}; choose "
                f"another number"
            )
    return count


def check_attention_inputs(name: str, query: Array, key: Array, value: Array) -> None:
    """Raise ShapeError unless queries, keys and values are sequences of one batch, with a value for
    each key."""
    for kind, sequence in (("queries", query), ("keys", key), ("values", value)):
        if sequence.ndim != 3:
            raise ShapeError(
                f"{name}: takes {kind} (N, length, features), was given {sequence.shape}; add the "
                f"batch with mm.expand_dims(x, 0)"
            )
    batches = {x.shape[0] for x in (query, key, value)} - {1}
    if len(batches) > 1 or key.shape[1] != value.shape[1]:
        raise ShapeError(
            f"{name}: takes queries (N, length, …), and keys and values (N, keys, …), was given "
            f"{query.shape}, {key.shape} and {value.shape}; give the same N, and a value for each "
            f"key"
        )


def attention_of_heads(
    query: Array,
    key: Array,
    value: Array,
    heads: int,
    mask: Any,
    *,
    key_mask: Any,
    causal: bool,
    drop: Callable[[Array], Array],
) -> Array:
    """Return the averages (N, queries, features) of all heads, of queries, keys and values that
    have been multiplied by their weights, (N, length, features). `drop` is applied to the weights
    of the keys."""
    mask = _with_keys(mask, key_mask, key.shape[:2])
    split_query, split_key, split_value = (_by_heads(x, heads) for x in (query, key, value))
    weights = attention_weights(split_query, split_key, mask, causal=causal)
    joined = swapaxes(matmul(drop(weights), split_value), 1, 2)
    return reshape(joined, (*joined.shape[:2], value.shape[-1]))


def _by_heads(x: Array, heads: int) -> Array:
    """Return (N, length, features) as (N, heads, length, features / heads)."""
    return swapaxes(reshape(x, (*x.shape[:2], heads, x.shape[-1] // heads)), 1, 2)


def _with_keys(mask: Any, key_mask: Any, shape: Shape) -> Any:
    """Return a mask without the keys that `key_mask`, of this shape (N, keys), excludes."""
    if key_mask is None:
        return mask
    keys = as_array("attention", key_mask)
    if keys.dtype is not bool_ or keys.shape != shape:
        raise ShapeError(
            f"attention: key_mask must be bool {shape}, True for keys that take part, was given "
            f"{keys.dtype} {keys.shape}"
        )
    takes_part = reshape(keys, (shape[0], 1, 1, shape[1]))
    if mask is None:
        return takes_part
    mask = _typed_mask(mask)
    return logical_and(mask, takes_part) if mask.dtype is bool_ else where(takes_part, mask, -inf)
