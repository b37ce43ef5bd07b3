"""Recipes: the structure of an expression without its nodes, from which it is built again.

A recipe lists operations and the positions of their operands: what a tape of autodiff holds,
without the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from msgspec import Struct

from magmath.core.bounded_memo import store_bounded
from magmath.core.dtypes import DType, convert_number
from magmath.core.shapes import Shape
from magmath.core.type_aliases import Number
from magmath.graph.application import apply
from magmath.graph.operation import NO_ATTRIBUTES, Line, Node, Operation, make_node
from magmath.graph.signature import Signature
from magmath.layout import Layout

# Records of earlier results refer to no later ones, so they form no cycles (gc=False): collections
# of garbage, which otherwise traverse all objects of long loops, need not count them.


@final
class RecipeStep(Struct, eq=False, gc=False):
    """The data from which a node is built again; `sources` are the positions of its inputs."""

    operation: Operation
    attributes: Mapping[str, Any]
    shape: Shape
    dtype: DType
    layout: Layout | None
    line: Line
    signature: Signature | None
    sources: tuple[int, ...]


@final
class NumberStep(Struct, eq=False, gc=False):
    """A Python number to whose node nothing else refers."""

    operation: Operation
    dtype: DType
    value: Number


_Search: TypeAlias = tuple[int, bool, bool]
"""An output, and the two switches of `Recipe.reached`."""
_MAX_REACHED: Final = 16
"""Searches whose results a recipe stores: each may be as long as the recipe."""

RecipeEntry = Node | NumberStep | RecipeStep | None
"""The node of a Python number or its data, an operation, or None for an array that was read."""


@final
class Recipe:
    """The structure of an expression: for each node, the data from which it is built again.

    steps      one for each node, after those that it reads; the other fields are positions in it
    operands   the operands, and pending nodes with other references, which can be built again if
               they no longer exist
    numbers    the numbers whose values each record stores
    last       the last step
    reads_gradients  a step is the mark of a gradient
    """

    __slots__ = ("_bits", "_reached", "_read_by", "last", "length", "numbers", "operands",
                 "reads_gradients", "steps")  # fmt: skip

    def __init__(
        self,
        steps: list[RecipeEntry],
        operands: Sequence[int],
        numbers: Sequence[int] = (),
    ) -> None:
        self.steps = steps
        self.operands = operands
        self.numbers = numbers
        self.last = len(steps) - 1
        self.length = len(steps) - len(operands)
        self.reads_gradients = any(
            isinstance(x, RecipeStep) and x.operation.is_gradient for x in steps
        )
        self._reached: dict[_Search, list[int]] = {}
        self._read_by: dict[_Search, list[int]] = {}
        self._bits: dict[tuple[bool, bool], list[int]] = {}

    def with_numbers(self, numbers: Sequence[int]) -> Recipe:
        """Return the recipe with numbers at these positions, whose values each record stores."""
        steps = list(self.steps)
        for i in numbers:
            step = steps[i]
            if isinstance(step, Node):
                steps[i] = NumberStep(step.operation, step.dtype, step.value)
        return Recipe(steps, self.operands, numbers)

    def reached(
        self, output: int, *, through_gradients: bool = True, through_stops: bool = True
    ) -> list[int]:
        """Return the positions of an output and of all nodes from which it is computed, in order.

        With `through_gradients=False`, nodes that are reached only through results of `mm.grad` are
        left out, and with `through_stops=False` those reached only through `mm.stop_gradient`.
        """
        key = (output, through_gradients, through_stops)
        reached = self._reached.get(key)
        if reached is None:
            reached = self._search(*key)
            store_bounded(self._reached, key, reached, _MAX_REACHED)
        return reached

    def _search(self, output: int, through_gradients: bool, through_stops: bool) -> list[int]:
        positions = {output}
        for i in range(output, -1, -1):
            step = self.steps[i]
            if i not in positions or not isinstance(step, RecipeStep):
                continue
            if not _is_end(step.operation, through_gradients, through_stops):
                positions.update(step.sources)
        return sorted(positions)

    def read_by(
        self, output: int, *, through_gradients: bool = True, through_stops: bool = True
    ) -> list[int]:
        """Return the indices, in `operands`, of those from which an output is computed, without
        itself unless it is an operand; the other arguments as in `reached`."""
        key = (output, through_gradients, through_stops)
        indices = self._read_by.get(key)
        if indices is None:
            bits = self._operand_bits(through_gradients, through_stops)[output]
            own_position = -1 if self.steps[output] is None else output
            indices = [
                k for k, i in enumerate(self.operands) if bits >> k & 1 and i != own_position
            ]
            store_bounded(self._read_by, key, indices, _MAX_REACHED)
        return indices

    def _operand_bits(self, through_gradients: bool, through_stops: bool) -> list[int]:
        """Return for each step the operands that it reaches, as the bits of an integer, so that all
        outputs are known after one pass."""
        key = (through_gradients, through_stops)
        bits_of_steps = self._bits.get(key)
        if bits_of_steps is None:
            bit_of_operand = {i: 1 << k for k, i in enumerate(self.operands)}
            bits_of_steps = []
            for i, step in enumerate(self.steps):
                bits = bit_of_operand.get(i, 0)
                if isinstance(step, RecipeStep) and not _is_end(
                    step.operation, through_gradients, through_stops
                ):
                    for source in step.sources:
                        bits |= bits_of_steps[source]
                bits_of_steps.append(bits)
            self._bits[key] = bits_of_steps
        return bits_of_steps


def _is_end(operation: Operation, through_gradients: bool, through_stops: bool) -> bool:
    """Return True for an operation at which a search ends."""
    if operation.is_gradient:
        return not through_gradients
    return operation.name == "stop_gradient" and not through_stops


def number_node(step: Node | NumberStep, value: Number) -> Node:
    """Return a node with a number of the type of a step: its own, or that of a record."""
    if step.operation.name == "constant":
        return apply(step.operation, value=value, dtype=step.dtype)
    number = convert_number(value, step.dtype)
    return Node(step.operation, (), NO_ATTRIBUTES, (), step.dtype, value=number, is_of_numbers=True)


def built_step(
    step: RecipeStep, built: Mapping[int, Node | None], value: Node | None, line: Line
) -> Node | None:
    """Return the node of a step, given the nodes of earlier steps; None if an input is missing.

    `line` is that of the user's code for a step that has none.
    """
    inputs = [node for i in step.sources if (node := built[i]) is not None]
    if len(inputs) < len(step.sources):
        return None
    return make_node(
        step.operation,
        tuple(inputs),
        step.attributes,
        step.shape,
        step.dtype,
        step.layout,
        step.line or line,
        value,
        step.signature,
    )
