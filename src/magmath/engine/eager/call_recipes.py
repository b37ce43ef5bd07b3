"""The recipes of calls on small arrays: the operations between the arguments and the results.

What a function did is in the provenance of its results, as far as the arguments. From that this
module makes one recipe, which `eager_calls` repeats on other arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from msgspec.structs import replace

from magmath.graph import Node, Provenance, provenance_of
from magmath.graph.provenance.operand_references import (
    MAX_KEPT,
    LeafReference,
    OperandReference,
    StrongLeafReference,
)
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.recipe import (
    NumberStep,
    Recipe,
    RecipeEntry,
    RecipeStep,
    built_step,
    number_node,
)
from magmath.ops.leaves import input_leaf

MAX_OPERATIONS = 128


def recipe_of_call(result: Node, arguments: Sequence[Node]) -> tuple[Recipe, list[int]] | None:
    """Return the recipe by which a leaf was computed from these leaves, and the positions of those
    that are its operands; None as `operations_between`, and if the function has made arrays."""
    operations = None if result in arguments else operations_between((result,), arguments)
    if operations is None or operations.own:
        return None
    return operations.recipe, operations.used


@final
class CallOperations(NamedTuple):
    """The operations of a call.

    recipe   the operations
    used     the positions of its operands among the arguments, followed by the own arrays
    own      arrays that the function itself has made
    outputs  the positions of the results in the recipe
    """

    recipe: Recipe
    used: list[int]
    own: tuple[Node, ...]
    outputs: list[int]


def operations_between(results: Sequence[Node], arguments: Sequence[Node]) -> CallOperations | None:
    """Return the operations by which leaves were computed from these leaves; None if they depend on
    other arrays, on variables or on random numbers."""
    builder = _RecipeBuilder(arguments)
    try:
        positions = [builder.add_result(x) for x in results]
    except _ForeignOperand:
        return None
    first = len(builder.used)
    outputs = [-1 - i if i < 0 else first + i for i in positions]
    return CallOperations(builder.recipe(), builder.used, tuple(builder.own), outputs)


@final
class _ForeignOperand(Exception):
    """An operand that is no argument, and not computed from arguments alone."""


@final
class _RecipeBuilder:
    """Collects the operations between arguments and results as the steps of one recipe.

    arguments  the positions of the arguments, followed by the own arrays
    own        arrays that the operations read and that are no arguments, nor computed

    Positions of operands in steps are negative until `recipe` puts them first.
    """

    def __init__(self, arguments: Sequence[Node]) -> None:
        self.arguments = {leaf: i for i, leaf in enumerate(arguments)}
        self.own: list[Node] = []
        self._count = len(arguments)
        self._steps: list[NumberStep | RecipeStep] = []
        self._begun = 0  # the steps of records whose operands are being added, and those added
        self._done: dict[tuple[int, int], int] = {}
        self._used: dict[int, int] = {}

    @property
    def used(self) -> list[int]:
        """The positions of the arguments that are operands, in the order of their first use."""
        return [*self._used]

    def add_result(self, leaf: Node) -> int:
        """Add the steps of a leaf, an argument or one without a record; return its position."""
        if leaf in self.arguments:
            return self._use(self.arguments[leaf])
        record = provenance_of(leaf)
        return self._add_own_array(leaf) if record is None else self.add_record(record)

    def add_record(self, record: Provenance) -> int:
        """Add the steps of a record; return the position of its output."""
        recipe, key = record.recipe, (id(record), record.output)
        if key in self._done:
            return self._done[key]
        if recipe is None:
            raise _ForeignOperand
        operands = dict(zip(recipe.operands, record.operands, strict=True))
        numbers = record.numbers()
        positions: dict[int, int] = {}
        reached = recipe.reached(record.output)
        self._begun += sum(recipe.steps[i] is not None for i in reached)
        if self._begun > MAX_OPERATIONS:  # before it descends into the operands
            raise _ForeignOperand
        for i in reached:
            step = recipe.steps[i]
            if step is None:
                positions[i] = self._add_operand(operands[i])
            else:
                positions[i] = self._add_step(step, numbers.get(i), positions)
        return self._done.setdefault(key, positions[record.output])

    def _add_step(self, step: RecipeEntry, number: Any, positions: Mapping[int, int]) -> int:
        """Add a step of a record; return its position. `positions` are those of its sources."""
        if isinstance(step, Node):
            step = NumberStep(step.operation, step.dtype, step.attributes.get("value", step.value))
        if isinstance(step, NumberStep):
            value = step.value if number is None else number
            step = NumberStep(step.operation, step.dtype, value)
        else:
            assert step is not None
            if step.operation.is_random or step.operation.is_mark or step.operation.is_version:
                raise _ForeignOperand
            sources = tuple([positions[i] for i in step.sources])
            step = replace(step, line=None, sources=sources)
        self._steps.append(step)
        return len(self._steps) - 1

    def _add_operand(self, operand: OperandReference) -> int:
        """Add an operand of a record, with its steps if it was computed itself; return its
        position."""
        if not isinstance(operand, (LeafReference, StrongLeafReference)):
            raise _ForeignOperand
        leaf = operand.find()
        argument = None if leaf is None else self.arguments.get(leaf)
        if argument is not None:
            return self._use(argument)
        before = provenance_before(operand)
        if before is not None:
            return self.add_record(before)
        if leaf is None or not operand.kept_bytes:
            raise _ForeignOperand
        return self._add_own_array(leaf)

    def _add_own_array(self, leaf: Node) -> int:
        """Add an array that the function has made; return its position."""
        if leaf.nbytes > MAX_KEPT:
            raise _ForeignOperand
        argument = self.arguments[leaf] = self._count + len(self.own)
        self.own.append(leaf)
        return self._use(argument)

    def _use(self, argument: int) -> int:
        """Add an argument to the operands, if it is none yet; return its position."""
        return -1 - self._used.setdefault(argument, len(self._used))

    def recipe(self) -> Recipe:
        """Return the recipe, with the used arguments as its operands."""
        first = len(self.used)
        steps: list[RecipeEntry] = [None] * first
        for step in self._steps:
            if isinstance(step, RecipeStep):
                sources = tuple([-1 - i if i < 0 else first + i for i in step.sources])
                step = replace(step, sources=sources)
            steps.append(step)
        return Recipe(steps, range(first))


def nodes_of(recipe: Recipe, operands: Sequence[Node]) -> list[Node]:
    """Return the nodes of all steps, on leaves without values in place of the operands."""
    nodes: dict[int, Node] = {}
    for i, leaf in enumerate(operands):
        assert leaf.layout is not None
        nodes[i] = input_leaf(leaf.shape, leaf.dtype, leaf.layout, None)
    for i, step in enumerate(recipe.steps[len(operands) :], len(operands)):
        if isinstance(step, NumberStep):
            nodes[i] = number_node(step, step.value)
        else:
            assert isinstance(step, RecipeStep)
            node = built_step(step, nodes, None, None)
            assert node is not None
            nodes[i] = node
    return [*nodes.values()]
