"""Attention layers: multi-head attention, and the encoder and decoder layers of transformers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, final

from magmath.arrays.array import Array
from magmath.core.integers import require_integer
from magmath.nn.attention import attention_of_heads, check_attention_inputs, require_heads
from magmath.nn.layer_input import layer_input
from magmath.nn.layers.dense import Dense
from magmath.nn.layers.dropout import Dropout
from magmath.nn.layers.normalization import LayerNorm
from magmath.nn.module import Module


@final
class MultiheadAttention(Module):
    """Attention of several heads, each with its own part of the features.

    features  the units of the four products
    heads     the number of heads, which must divide the features
    dropout   the probability with which a weight is zero in training
    bias      if True, the four products have a bias

    The parts `query`, `key`, `value` and `output` are Dense layers. Source: Vaswani et al. (2017),
    section 3.2.2.
    """

    def __init__(
        self, features: int, heads: int, *, dropout: float = 0.0, bias: bool = True
    ) -> None:
        self.features = require_integer("MultiheadAttention: features", features, 1)
        self.heads = require_heads("MultiheadAttention", heads, self.features)
        self.query = Dense(features, bias=bias)
        self.key = Dense(features, bias=bias)
        self.value = Dense(features, bias=bias)
        self.output = Dense(features, bias=bias)
        self.dropout = Dropout(dropout)

    def __call__(
        self,
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        *,
        mask: Any = None,
        key_mask: Any = None,
        causal: bool = False,
    ) -> Array:
        """(N, queries, features), keys and values (N, keys, …) → (N, queries, features).

        Keys are the queries by default, and values the keys.

        mask      broadcasts to (N, heads, queries, keys), so two dimensions are (queries, keys);
                  bool, True for keys that take part, or floating point, added to the scores
        key_mask  bool (N, keys), True for keys that take part and False for padding
        causal    if True, query i attends to the keys 0 … i only
        """
        key = query if key is None else key
        value = key if value is None else value
        check_attention_inputs("MultiheadAttention", query, key, value)
        averages = attention_of_heads(
            self.query(query),
            self.key(key),
            self.value(value),
            self.heads,
            mask,
            key_mask=key_mask,
            causal=causal,
            drop=self.dropout,
        )
        return self.output(averages)


class _TransformerLayer(Module, ABC):
    """Attentions and two dense layers, each with a residual connection and a LayerNorm."""

    reads_memory: ClassVar[bool]
    memory_attention: MultiheadAttention

    def __init__(
        self,
        features: int,
        heads: int,
        feedforward: int = 2048,
        *,
        dropout: float = 0.1,
        activation: str | Callable[[Array], Array] = "relu",
        norm_first: bool = False,
        epsilon: float = 1e-5,
    ) -> None:
        blocks = 3 if self.reads_memory else 2
        self.attention = MultiheadAttention(features, heads, dropout=dropout)
        if self.reads_memory:
            self.memory_attention = MultiheadAttention(features, heads, dropout=dropout)
        self.first = Dense(feedforward, activation)
        self.second = Dense(features)
        self.norms = [LayerNorm(epsilon=epsilon) for _ in range(blocks)]
        self.dropouts = [Dropout(dropout) for _ in range(blocks + 1)]
        self.norm_first = norm_first

    def _with_residuals(self, x: Array, *attentions: Callable[[Array], Array]) -> Array:
        """Return the output for x: the attentions and the dense layers one after the other, each
        with its residual connection."""
        *of_attentions, inner_dropout, last_dropout = self.dropouts

        def feedforward(y: Array) -> Array:
            return self.second(inner_dropout(self.first(y)))

        blocks = zip(
            self.norms, (*attentions, feedforward), (*of_attentions, last_dropout), strict=True
        )
        for norm, block, dropout in blocks:
            added = dropout(block(norm(x) if self.norm_first else x))
            x = layer_input(type(self).__name__, x, added) + added
            x = x if self.norm_first else norm(x)
        return x


@final
class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and two dense layers, each with a residual connection and a LayerNorm.

    features     the features of inputs and outputs
    heads        the number of heads of the attention, which must divide the features
    feedforward  the units of the first dense layer
    dropout      the probability of its dropouts
    activation   that of the first dense layer
    norm_first   if True, each norm precedes its layers, otherwise it follows the sum

    Source: Vaswani et al. (2017), section 3.1.
    """

    reads_memory = False

    def __call__(
        self, x: Array, *, mask: Any = None, key_mask: Any = None, causal: bool = False
    ) -> Array:
        """(N, length, features) → the same shape; for `mask`, `key_mask` and `causal` see
        `nn.MultiheadAttention`."""
        attention = partial(self.attention, mask=mask, key_mask=key_mask, causal=causal)
        return self._with_residuals(x, attention)


@final
class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the outputs of an encoder, and two dense layers, each with a
    residual connection and a LayerNorm.

    For its arguments see `TransformerEncoderLayer`. Source: Vaswani et al. (2017), section 3.1.
    """

    reads_memory = True

    def __call__(
        self,
        x: Array,
        memory: Array,
        *,
        mask: Any = None,
        key_mask: Any = None,
        causal: bool = False,
        memory_mask: Any = None,
        memory_key_mask: Any = None,
    ) -> Array:
        """(N, length, features), and the outputs of the encoder (N, keys, …) → the shape of the
        first.

        `mask`, `key_mask` and `causal` are those of the self-attention, `memory_mask` and
        `memory_key_mask` of the attention to the encoder; see `nn.MultiheadAttention`.
        """
        self_attention = partial(self.attention, mask=mask, key_mask=key_mask, causal=causal)
        of_memory = partial(
            self.memory_attention, key=memory, mask=memory_mask, key_mask=memory_key_mask
        )
        return self._with_residuals(x, self_attention, of_memory)
