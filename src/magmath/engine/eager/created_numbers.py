"""Created numbers: small arrays of numbers alone, such as `arange(10)`, computed once.

A function of numbers alone returns a pending array, which belongs to no pool until its value is
needed. Another call with the same arguments returns a node of the same operation on the same
inputs, and the value of such a node is a copy of the one that was computed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from magmath.core.type_aliases import Number
from magmath.graph import Graph, Node
from magmath.graph.operation import Line, make_node

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation

MAX_BYTES = 16 << 10
"""Bytes of the largest array whose value is stored: for larger ones, it is copied as fast as
computed."""


@final
class CreationCall:
    """A call of numbers alone, which has returned a pending node of this value."""

    __slots__ = ("_node", "_value")
    has_frequent_misses = False

    def __init__(self, node: Node, value: np.ndarray[Any, Any]) -> None:
        self._node, self._value = node, value

    def run(
        self,
        eager: EagerComputation,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Node:
        """Return another pending node with the same value; there are no arguments."""
        node = self._node
        eager.store_numbers(node, self._value)
        return make_node(
            node.operation, node.inputs, node.attributes, node.shape, node.dtype, None, line, None,
            node.signature,
        )  # fmt: skip


def creation_call_of(eager: EagerComputation, result: Node) -> CreationCall | None:
    """Return the call that has returned a pending node, whose value is stored from now on; None if
    it is not of numbers alone, or large."""
    if result.value is not None or not result.is_of_numbers or result.is_leaf or result.layout:
        return None
    if result.signature is None or result.nbytes > MAX_BYTES:
        return None
    program = eager.program(Graph((result,)), (), ())
    if program is None:
        return None
    try:
        (value,) = program.run((), ())
    except Exception:  # it is raised where the value is needed
        return None
    eager.store_numbers(result, value)  # so that no input, which other nodes share, is computed
    return CreationCall(result.without_value(), value)
