"""The embedding layer."""

from __future__ import annotations

from typing import final

from magmath.api import random
from magmath.api.numpy_creation import copy
from magmath.arrays.array import Array
from magmath.core.dtypes import DType
from magmath.core.integers import require_integer
from magmath.graph import Shape
from magmath.nn.functional import embedding
from magmath.nn.initializers import initializer
from magmath.nn.layer_input import checked_padding_row
from magmath.nn.module import Module
from magmath.nn.variables import Initial, Parameter, deferred


@final
class Embedding(Module):
    """Looks up rows of a table at integer indices: weight (count, features), initially normal.

    padding_idx   the index of padding, whose row is initially 0 and is not trained
    """

    def __init__(
        self,
        count: int,
        features: int,
        padding_idx: int | None = None,
        *,
        weight_init: Initial | str | float | None = None,
    ) -> None:
        self.count = require_integer("Embedding: count", count, 1)
        self.features = require_integer("Embedding: features", features, 1)
        if padding_idx is not None:
            padding_idx = checked_padding_row("Embedding", padding_idx, count)
        self.padding_idx = padding_idx
        first = initializer(_normal if weight_init is None else weight_init)
        self.weight: Parameter = deferred(
            first if padding_idx is None else _with_zero_row(first, padding_idx)
        )

    def __call__(self, indices: Array) -> Array:
        """Integers (…) → (…, features). Indices go from 0 to count - 1: otherwise the computation
        raises IndexError."""
        self.materialize(weight=(self.count, self.features))
        return embedding(indices, self.weight, self.padding_idx)


def _with_zero_row(first: Initial, row: int) -> Initial:
    """Return an initial value with zeros in one row."""

    def initial(shape: Shape, dtype: DType) -> Array:
        values = copy(first(shape, dtype))
        values[row] = 0.0
        return values

    return initial


def _normal(shape: Shape, dtype: DType) -> Array:
    return random.normal(shape=shape, dtype=dtype)
