"""Signatures: the properties that equal applications of an operation share: attributes,
shapes and types of the operands and of the result."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import count
from math import prod
from typing import Any, final

from magmath.core.dtypes import DType
from magmath.core.shapes import Shape
from magmath.graph.index_notation import IndexNotation

_ids = count()


@final
class Signature:
    """The common properties of all applications of an operation with the same attributes to
    operands of the same shapes and types.

    attributes       those of the operation, read-only
    shape, dtype     those of the result
    index_notation   None until it is needed
    prepared_kernel  how such a node is computed on small whole arrays
                     (`executor/prepared_kernels.py`); None until it is needed
    recipes          how gradients find the value of an eager array again, by the pattern of its
                     operands; None until it is known whether such nodes are computed eagerly, and a
                     mapping that refuses entries if they are not
    id               unique: two signatures with one id are identical

    Signatures of the same operation, attributes and operands are equal; most of them are identical,
    so that a graph of many nodes is compared fast.
    """

    __slots__ = (
        "_hash",
        "_key",
        "attributes",
        "dtype",
        "id",
        "index_notation",
        "nbytes",
        "prepared_kernel",
        "recipes",
        "shape",
    )

    def __init__(
        self, key: Hashable, attributes: Mapping[str, Any], shape: Shape, dtype: DType
    ) -> None:
        self._key, self._hash = key, hash(key)
        self.attributes = attributes
        self.id = next(_ids)
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.prepared_kernel: Any = None
        self.recipes: Any = None
        self.index_notation: IndexNotation | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Signature) and self._key == other._key
