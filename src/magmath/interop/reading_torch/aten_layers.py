"""PyTorch's other layers, and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import magmath as mm
from magmath.errors import UnsupportedError
from magmath.interop.reading_torch.aten_dropout import dropout, feature_dropout, native_dropout
from magmath.interop.reading_torch.aten_recurrent import recurrent
from magmath.interop.reading_torch.aten_types import Operator, promoted
from magmath.nn import functional as f
from magmath.nn.losses.loss_reduction import Reduction


def _trilinear(
    first: mm.Array,
    second: mm.Array,
    third: mm.Array,
    axes_1: Sequence[int],
    axes_2: Sequence[int],
    axes_3: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> mm.Array:
    """Return the sum of products of three arrays with further axes, as of `nn.Bilinear`."""
    product: Any = None
    for x, axes in ((first, axes_1), (second, axes_2), (third, axes_3)):
        for axis in sorted(axes):
            x = mm.expand_dims(x, axis)
        product = x if product is None else product * x
    return mm.sum(product, axis=tuple(summed))


def _embedding(
    weight: mm.Array,
    indices: mm.Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> mm.Array:
    if scale_grad_by_freq:
        raise UnsupportedError(
            "from_torch: Embedding(scale_grad_by_freq=True) is not available; train without it"
        )
    return f.embedding(indices, weight, None if padding_idx < 0 else padding_idx)


def _embedding_bag(
    weight: mm.Array,
    indices: mm.Array,
    offsets: mm.Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: mm.Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, ...]:
    """Return the sum (mode 0), mean (1) or maximum (2) of the rows of each bag, which is a range of
    the indices that begins at its offset."""
    if scale_grad_by_freq:
        raise UnsupportedError(
            "from_torch: EmbeddingBag(scale_grad_by_freq=True) is not available; train without it"
        )
    count, features = offsets.shape[0] - include_last_offset, weight.shape[1]
    places = mm.arange(indices.shape[0], dtype=offsets.dtype)
    bags = mm.searchsorted(offsets[:count], places, side="right") - 1
    padding_idx = -1 if padding_idx is None else padding_idx
    rows = f.embedding(indices, weight, None if padding_idx < 0 else padding_idx)
    is_counted = mm.expand_dims(indices != padding_idx, axis=1)
    numbers = mm.zeros((count, 1), dtype=weight.dtype)
    mm.add.at(numbers, bags, mm.astype(is_counted, weight.dtype))
    if mode == 2:
        results = mm.full((count, features), -mm.inf, dtype=weight.dtype)
        mm.maximum.at(results, bags, mm.where(is_counted, rows, -mm.inf))
        return mm.where(numbers > 0, results, 0.0), None, None, None
    if per_sample_weights is not None:
        rows = rows * mm.expand_dims(per_sample_weights, axis=1)
    results = mm.zeros((count, features), dtype=weight.dtype)
    mm.add.at(results, bags, mm.where(is_counted, rows, 0.0))
    if mode == 1:
        results = results / mm.maximum(numbers, 1.0)
    return results, None, None, None


def _weight_norm(v: mm.Array, g: mm.Array, axis: int = 0) -> tuple[mm.Array, mm.Array]:
    """Return g · v / |v| and |v|, with norms over all axes but one, or over all for -1."""
    other_axes = tuple([i for i in range(v.ndim) if axis < 0 or i != axis])
    norms = mm.sqrt(mm.sum(v * v, axis=other_axes, keepdims=True))
    return v * (g / norms), norms


def _attention(
    query: mm.Array,
    key: mm.Array,
    value: mm.Array,
    mask: mm.Array | None = None,
    rate: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> mm.Array:
    if enable_gqa:
        shared = query.shape[-3] // key.shape[-3]
        key, value = (mm.repeat(x, shared, axis=-3) for x in (key, value))
    weights = f.attention_weights(query, key, mask, causal=causal, scale=scale)
    return dropout(weights, rate) @ value


_REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


def _cross_entropy(
    x: mm.Array,
    labels: mm.Array,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    smoothing: float = 0.0,
) -> mm.Array:
    return mm.nn.cross_entropy(
        x,
        labels,
        weight=weight,
        label_smoothing=smoothing,
        ignore_index=ignore_index if labels.dtype.is_integer else None,
        reduction=_REDUCTIONS[reduction],
    )


def _nll_loss(
    x: mm.Array,
    labels: mm.Array,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> mm.Array:
    """Return the negative entries of x at the labels, which are logarithms of probabilities."""
    axis = min(x.ndim - 1, 1)
    is_counted = labels != ignore_index
    labels = mm.where(is_counted, labels, 0)
    entries = mm.take_along_axis(x, mm.expand_dims(labels, axis=axis), axis=axis)
    factors = mm.where(is_counted, 1.0 if weight is None else weight[labels], 0.0)
    factors = mm.astype(factors, x.dtype, copy=False)
    losses = -mm.where(is_counted, mm.squeeze(entries, axis=axis) * factors, 0.0)
    if reduction == 0:
        return losses
    return mm.sum(losses) / mm.sum(factors) if reduction == 1 else mm.sum(losses)


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, reduction=1: function(*promoted(x, y), reduction=_REDUCTIONS[reduction])


LAYERS: dict[str, Operator] = {
    "dropout": dropout,
    "feature_dropout": feature_dropout,
    "native_dropout": native_dropout,
    "embedding": _embedding,
    "_embedding_bag": _embedding_bag,
    "embedding_bag": _embedding_bag,
    "_weight_norm_interface": _weight_norm,
    "_trilinear": _trilinear,
    "scaled_dot_product_attention": _attention,
    "lstm": recurrent("lstm"),
    "gru": recurrent("gru"),
    "rnn_tanh": recurrent("tanh"),
    "rnn_relu": recurrent("relu"),
    # losses
    "cross_entropy_loss": _cross_entropy,
    "nll_loss": _nll_loss,
    "nll_loss2d": _nll_loss,
    "nll_loss_nd": _nll_loss,
    "mse_loss": _loss(mm.nn.mean_squared_error),
    "l1_loss": _loss(mm.nn.mean_absolute_error),
}
