"""The operands of an operation on small arrays: their values, which this process stores, and what
the record of the result keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from magmath.core.type_aliases import Number
from magmath.graph import Node, OperandReference, Provenance, Recipe, weak_reference_to
from magmath.graph.operation import Operation
from magmath.graph.provenance.operand_references import reference_to_array
from magmath.graph.provenance.recipe import NumberStep, RecipeEntry, RecipeStep
from magmath.graph.signature import Signature
from magmath.ops.leaves import CONSTANT, SCALAR
from magmath.ops.manipulation import PERMUTE

if TYPE_CHECKING:
    import numpy as np

OperandSource: TypeAlias = int | tuple[int, Signature | None]
"""What an operand is: the position of an array among the leaves, with the signature of the
transposition if the operand is its transpose, `NUMBER` or `NUMBER_OF_FUNCTION`."""
NUMBER: Final = -1
"""The source of a number of the user's code."""
NUMBER_OF_FUNCTION: Final = -2
"""The source of a number that belongs to the definition of a function."""


@final
class EagerOperands:
    """The operands of one operation.

    values      the value of each operand
    sources     what each operand is
    leaves      the different arrays
    numbers     the numbers
    transposes  the nodes of those operands that are transposes of leaves, which are read without a
                copy
    """

    __slots__ = ("_positions", "leaves", "numbers", "sources", "transposes", "values")

    def __init__(self) -> None:
        self.values: list[np.ndarray[Any, Any]] = []
        self.sources: list[OperandSource] = []
        self.leaves: list[Node] = []
        self._positions: dict[Node, int] = {}
        self.numbers: list[Number] = []
        self.transposes: list[Node] = []

    def add_number(self, node: Node, number: Number, value: np.ndarray[Any, Any]) -> None:
        """Add the operand of a node that is a number."""
        self.values.append(value)
        self.numbers.append(number)
        self.sources.append(NUMBER if node.operation is SCALAR else NUMBER_OF_FUNCTION)

    def add_array(
        self, leaf: Node, value: np.ndarray[Any, Any], transpose: Node | None = None
    ) -> None:
        """Add a stored array, or its transpose."""
        leaves = self.leaves
        position = self._positions.setdefault(leaf, len(leaves))
        if position == len(leaves):
            leaves.append(leaf)
        if transpose is None:
            self.sources.append(position)
        else:
            value = PERMUTE.reference(value, **transpose.attributes)
            self.sources.append((position, transpose.signature))
            self.transposes.append(transpose)
        self.values.append(value)

    def provenance(self, node: Node) -> Provenance:
        """Return the record of the value of a node, whose inputs have the values of these operands.
        Nodes of one signature, with such operands, share the recipe."""
        operation, signature, inputs = node.operation, node.signature, node.inputs
        assert signature is not None
        key = tuple(self.sources)
        recipe: Recipe | None = signature.recipes.get(key)
        if recipe is None:
            recipe = signature.recipes[key] = self._recipe(operation, signature, inputs)
        operands: list[OperandReference] = [reference_to_array(x) for x in self.leaves]
        if self.transposes:
            operands += map(weak_reference_to, self.transposes)
        return Provenance.of(
            recipe, recipe.last, tuple(operands), node.line, tuple(self.numbers),
            node.sequence_number,
        )  # fmt: skip

    def _recipe(self, operation: Operation, signature: Signature, inputs: Sequence[Node]) -> Recipe:
        """Return the recipe: the operands, the numbers, the transposes of operands, the operation.

        The transposes are operands too, which gradients find while they exist, and are built again
        otherwise.
        """
        count = len(self.leaves)
        number_nodes = [x for x in inputs if x.operation is SCALAR or x.operation is CONSTANT]
        numbers = range(count, count + len(number_nodes))
        steps: list[RecipeEntry] = [None] * count
        steps += [NumberStep(x.operation, x.dtype, 0) for x in number_nodes]
        next_number = iter(numbers)
        positions_read: list[int] = []
        operand_positions = [*range(count)]
        for source in self.sources:
            if isinstance(source, int):
                positions_read.append(next(next_number) if source < 0 else source)
                continue
            position, transposition = source
            assert transposition is not None
            operand_positions.append(len(steps))
            positions_read.append(len(steps))
            steps.append(_step(PERMUTE, transposition, (position,)))
        steps.append(_step(operation, signature, tuple(positions_read)))
        return Recipe(steps, operand_positions, numbers)


def recipe_of_operation(operation: Operation, signature: Signature) -> Recipe:
    """Return the recipe of an operation on one array."""
    return Recipe([None, _step(operation, signature, (0,))], (0,))


def _step(operation: Operation, signature: Signature, sources: tuple[int, ...]) -> RecipeStep:
    return RecipeStep(
        operation,
        signature.attributes,
        signature.shape,
        signature.dtype,
        None,
        None,
        signature,
        sources,
    )
