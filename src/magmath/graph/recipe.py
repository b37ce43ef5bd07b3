"""Recipes: the structure of an expression without its nodes, from which it is built again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from magmath.core.dtypes import DType
from magmath.core.shapes import Shape
from magmath.graph.operation import NO_ATTRIBUTES, Line, Node, Operation, make_node
from magmath.graph.signature import Signature
from magmath.layout import Layout

Number = bool | int | float | complex
RecipeStep = tuple[
    Operation,
    Mapping[str, Any],
    Shape,
    DType,
    Layout | None,
    Line,
    Signature | None,
    tuple[int, ...],
]
"""The data from which a node is built again; the last entry has the positions of its inputs."""


@final
class Recipe:
    """The structure of an expression: for each node, the data from which it is built again.

    A step is the node of a Python number, an operation with the positions of its inputs, or None
    for an array that the expression read. `operands` are the positions of the operands. They
    include pending nodes with other references, which can be built again if they no longer exist.
    `numbers` are the positions of numbers that each call of a compiled function receives.
    """

    __slots__ = ("_read_by", "length", "numbers", "operands", "steps")

    def __init__(
        self,
        steps: list[Node | RecipeStep | None],
        operands: Sequence[int],
        numbers: Sequence[int] = (),
    ) -> None:
        self.steps = steps
        self.operands = operands
        self.numbers = numbers
        self.length = len(steps) - len(operands)
        self._read_by: dict[int, list[int]] = {}

    def reached(self, output: int) -> list[int]:
        """Return the positions of all nodes from which an output is computed, in order, itself
        included."""
        found = {output}
        for i in range(output, -1, -1):
            step = self.steps[i]
            if i in found and isinstance(step, tuple):
                found.update(step[-1])
        return sorted(found)

    def read_by(self, output: int) -> list[int]:
        """Return the numbers of the operands from which an output is computed, without itself."""
        found = self._read_by.get(output)
        if found is None:
            reached = set(self.reached(output)) - {output}
            found = [number for number, i in enumerate(self.operands) if i in reached]
            self._read_by[output] = found
        return found


def number_node(placeholder: Node, value: Number) -> Node:
    """Return a node with a number that a compiled function received."""
    return Node(placeholder.operation, (), NO_ATTRIBUTES, (), placeholder.dtype, None, None, value)


def built_step(
    step: RecipeStep, built: Mapping[int, Node | None], value: Node | None
) -> Node | None:
    """Return the node of a step, given the nodes of earlier steps; None if an input is missing."""
    operation, attributes, shape, dtype, layout, line, form, positions = step
    inputs = [node for i in positions if (node := built[i]) is not None]
    if len(inputs) < len(positions):
        return None
    return make_node(operation, tuple(inputs), attributes, shape, dtype, layout, line, value, form)
