"""Signatures: the properties that equal applications of an operation share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import count
from math import prod
from typing import Any

from magmath.core.dtypes import DType
from magmath.core.shapes import Shape
from magmath.graph.index_notation import IndexNotation

_numbers = count()


class Signature:
    """The common properties of all applications of an operation with the same attributes to
    operands of the same shapes and types.

    These are the attributes, read-only, the shape and type of the result, and, once they are
    computed, the index notation, the prepared step that computes such a node eagerly (`ready`), and
    how its gradients find it again (`recipes`).
    Signatures with the same `key`, of operation, attributes and operands, are equal; most of them
    are identical, so that a graph of many nodes is compared fast. `number` is unique: two
    signatures with one number are identical.
    """

    __slots__ = (
        "_hash",
        "_key",
        "attributes",
        "dtype",
        "index_notation",
        "nbytes",
        "number",
        "ready",
        "recipes",
        "shape",
    )

    def __init__(
        self, key: Hashable, attributes: Mapping[str, Any], shape: Shape, dtype: DType
    ) -> None:
        self._key, self._hash = key, hash(key)
        self.attributes = attributes
        self.number = next(_numbers)
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.ready: Any = None
        self.recipes: Any = None
        self.index_notation: IndexNotation | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Signature) and self._key == other._key
