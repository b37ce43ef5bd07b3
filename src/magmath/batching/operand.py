"""Operands of the nodes of a batch, and the rules that compute those nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from magmath.graph import Node, Shape
from magmath.ops.manipulation import reshape
from magmath.ops.sums import broadcast_to


@final
@dataclass(frozen=True)
class BatchOperand:
    """An operand of a node in a batch: `node` has the batch as its first dimension if `varies`."""

    node: Node
    varies: bool
    size: int

    @property
    def shape(self) -> Shape:
        """The shape of one example."""
        return self.node.shape[1:] if self.varies else self.node.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of one example."""
        return len(self.shape)

    @property
    def stacked(self) -> Node:
        """The operand of every example, with the batch in front."""
        return self.node if self.varies else broadcast_to(self.node, (self.size, *self.shape))

    def aligned(self, ndim: int) -> Node:
        """Return the operand in a shape that broadcasts to examples of `ndim` dimensions."""
        if not self.varies:
            return self.node
        return reshape(self.node, (self.size, *(1,) * (ndim - self.ndim), *self.shape))


BatchOperands: TypeAlias = Sequence[BatchOperand]
BatchingRule: TypeAlias = Callable[[Node, BatchOperands], Node]
