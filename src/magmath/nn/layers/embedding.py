"""The embedding layer."""

from __future__ import annotations

from typing import final

from magmath.api import random
from magmath.arrays.array import Array
from magmath.core.dtypes import DType
from magmath.core.integers import require_integer
from magmath.graph import Shape
from magmath.nn.functional import embedding
from magmath.nn.initializers import initializer
from magmath.nn.module import Module
from magmath.nn.variables import Initial, Parameter, deferred


@final
class Embedding(Module):
    """Looks up rows of a table at integer indices: weight (count, features), initially normal."""

    def __init__(
        self, count: int, features: int, *, weight_init: Initial | str | None = None
    ) -> None:
        self.count = require_integer("Embedding: count", count, 1)
        self.features = require_integer("Embedding: features", features, 1)
        self.weight: Parameter = deferred(initializer(weight_init or _normal))

    def __call__(self, indices: Array) -> Array:
        """Integers (…) → (…, features). Indices go from 0 to count - 1: otherwise the computation
        raises IndexError."""
        self.materialize(weight=(self.count, self.features))
        return embedding(indices, self.weight)


def _normal(shape: Shape, dtype: DType) -> Array:
    return random.normal(shape=shape, dtype=dtype)
