"""The provenance of a loop: the recipe of its body, which is unrolled for gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

from msgspec.structs import replace

from magmath.core.dtypes import DType, int64
from magmath.engine.user_line import user_line
from magmath.graph import (
    Graph,
    Node,
    OperandReference,
    Operation,
    Recipe,
    Shape,
    recipe_of,
    topological,
    weak_reference_to,
)
from magmath.graph.provenance.recipe import NumberStep, RecipeStep, number_node
from magmath.ops.concatenation import CONCAT
from magmath.ops.leaves import scalar
from magmath.ops.manipulation import RESHAPE


@final
class LoopProvenance:
    """The provenance of a loop's results: the recipe of its body, and how to unroll it.

    The operands are the initial states, then the arrays and variables that the body captures.
    `length` is the number of operations of all steps.
    """

    def __init__(
        self,
        body: Graph,
        states: Sequence[Node],
        index: Node,
        assigned: Sequence[Node],
        collected: Sequence[tuple[Shape, DType]],
        numbers_of_steps: range,
        numbers: Mapping[Node, float],
        *,
        reverse: bool,
    ) -> None:
        order = topological(body.outputs, pending=True)
        self._body, captured, position = recipe_of(order, ())
        self._outputs = [position[node] for node in body.outputs]
        self._states = [position.get(node) for node in states]
        self._index = position.get(index)
        self._assigned = [position.get(leaf) for leaf in assigned]
        self._collected, self._steps = collected, numbers_of_steps
        self._numbers = {position[x]: n for x, n in numbers.items() if x in position}
        self._reverse = reverse
        own_nodes = {*self._states, self._index}
        pairs = zip(self._body.operands, captured, strict=True)
        self._captured = {operand: read for operand, read in pairs if operand not in own_nodes}
        self._read: Sequence[int] = ()
        self._variables = {position[x]: x for x in order if x.name == "variable"}
        self.length = self._body.length * len(numbers_of_steps)

    def captured(self, variables: Mapping[Node, Any]) -> list[OperandReference]:
        """Return the captured operands of the body, before the loop assigns variables."""
        operands = [
            weak_reference_to(variables[self._variables[operand]].current_version)
            if operand in self._variables
            else read
            for operand, read in self._captured.items()
        ]
        self._read, self._captured, self._variables = tuple(self._captured), {}, {}
        return operands

    def unrolled(self) -> tuple[Recipe, Sequence[int]]:
        """Return the recipe of the unrolled loop and the positions of its results."""
        operands = range(len(self._states) + len(self._read))
        unrolled: list[Any] = [None for _ in operands]
        states = list(operands[: len(self._states)])
        outside = dict(zip(self._read, operands[len(states) :], strict=True))
        varying, common = self._varying(), dict[int, int]()
        rows: list[list[int]] = [[] for _ in self._collected]
        for number in self._steps:
            state_positions = {
                x: at for x, at in zip(self._states, states, strict=True) if x is not None
            }
            positions = self._append_step(unrolled, number, common | outside | state_positions)
            common |= {x: at for x, at in positions.items() if x not in varying}
            outputs = [positions[x] for x in self._outputs]
            states, collected = outputs[: len(states)], outputs[len(states) :]
            for row, position in zip(rows, collected, strict=False):
                row.append(position)
            assigned = zip(self._assigned, collected[len(rows) :], strict=True)
            outside |= {leaf: position for leaf, position in assigned if leaf is not None}
        stacked = [
            _stack(unrolled, row[::-1] if self._reverse else row, *kind)
            for row, kind in zip(rows, self._collected, strict=True)
        ]
        return Recipe(unrolled, operands), [*states, *stacked]

    def _append_step(
        self, unrolled: list[Any], number: int, existing: Mapping[int, int]
    ) -> dict[int, int]:
        """Append the operations of a step to the unrolled recipe.

        Positions in it are returned by positions in the body; `existing` are those of values that
        exist before the step.
        """
        positions = dict(existing)
        for position, step in enumerate(self._body.steps):
            if position in positions:
                continue
            positions[position] = len(unrolled)
            if position == self._index:
                unrolled.append(scalar(number, int64))
            elif position in self._numbers:
                assert isinstance(step, (Node, NumberStep))
                unrolled.append(number_node(step, self._numbers[position]))
            elif isinstance(step, RecipeStep):
                sources = tuple([positions[i] for i in step.sources])
                unrolled.append(replace(step, sources=sources))
            else:
                unrolled.append(step)
        return positions

    def _varying(self) -> set[int]:
        """Return the positions in the body whose values differ between steps."""
        varying = {x for x in (*self._states, self._index, *self._assigned) if x is not None}
        for position, step in enumerate(self._body.steps):
            if isinstance(step, RecipeStep) and not varying.isdisjoint(step.sources):
                varying.add(position)
        return varying


def _stack(unrolled: list[Any], row: Sequence[int], shape: Shape, dtype: DType) -> int:
    """Append the array with these rows to a recipe; return its position."""
    row_shape = (1, *shape)
    positions = []
    for position in row:
        positions.append(len(unrolled))
        unrolled.append(_step(RESHAPE, {"shape": row_shape}, row_shape, dtype, (position,)))
    unrolled.append(_step(CONCAT, {"axis": 0}, (len(row), *shape), dtype, tuple(positions)))
    return len(unrolled) - 1


def _step(
    operation: Operation, attributes: Mapping[str, Any], shape: Shape, dtype: DType, positions: Any
) -> RecipeStep:
    frozen = MappingProxyType({**attributes})
    return RecipeStep(operation, frozen, shape, dtype, None, user_line(), None, positions)
