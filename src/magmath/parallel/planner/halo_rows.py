"""The rows of space that parts of a windowed operation read from other parts.

A window of a convolution or a pooling reads elements beyond a part of its operand. How many depends
on the number of parts, so the layers of a graph store a `HaloRows`, and the costs ask it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

from magmath.graph import Node
from magmath.layout import Split


@final
@dataclass(frozen=True)
class HaloRows:
    """The rows of one operand that a part of an operation's result reads and its worker lacks.

    application  equal for applications with the same rows
    operand      number of the operand
    dimension    its dimension of space
    """

    application: Hashable
    operand: int
    dimension: int
    node: Node = field(compare=False, repr=False)

    @property
    def letter(self) -> str:
        """The index letter of the dimension of the result."""
        return self.node.index_notation.inputs[self.operand][self.dimension].lower()

    def received(self, parts: int) -> int:
        """Return the rows that the worker that lacks most receives, if the operand and the result
        are divided evenly into `parts`."""
        return _received(self, parts)


def halo_rows(node: Node, operand: int, dimension: int) -> HaloRows | None:
    """Return the rows that parts of a node read of a dimension of an operand; None if they read
    their own part or all of it."""
    notation = node.index_notation
    letter = notation.inputs[operand][dimension]
    if not letter.isupper() or letter.lower() not in notation.output:
        return None
    if node.operation.derived_split is None:
        return None
    return HaloRows(node.signature or node, operand, dimension, node)


@lru_cache(maxsize=4096)
def _received(halo: HaloRows, parts: int) -> int:
    node, letter = halo.node, halo.letter
    result = Split.even(0, node.shape[node.index_notation.output.index(letter)], parts)
    own = Split.even(0, node.inputs[halo.operand].shape[halo.dimension], parts)
    assert node.operation.derived_split is not None
    read = node.operation.derived_split(node, letter, result, halo.operand)
    if read is None:
        return 0
    needed = [(read.indices_at(i), own.indices_at(i)) for i in range(parts)]
    return max(rows.size - rows.intersect(stored).size for rows, stored in needed)
