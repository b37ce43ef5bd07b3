"""The recipes of expressions, with references to their operands."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from magmath.core.reference_counts import COUNTING, references
from magmath.graph.operation import Node
from magmath.graph.provenance.operand_references import (
    OperandReference,
    StrongLeafReference,
    reference_to,
)
from magmath.graph.provenance.recipe import NumberStep, Recipe, RecipeEntry, RecipeStep

NO_NODES: Mapping[Node, Node] = MappingProxyType({})


def recipe_of(
    order: Sequence[Node],
    referenced_nodes: Container[Node],
    overwritten: Mapping[Node, Node] = NO_NODES,
) -> tuple[Recipe, list[OperandReference], dict[Node, int]]:
    """Return the recipe of an expression, its operands, and the positions of its nodes.

    `referenced_nodes` have references from outside the expression. `overwritten` maps leaves whose
    memory was reused to leaves without values, which take their places: the gradient of a write
    needs no former value.
    """
    position = {node: i for i, node in enumerate(order)}
    recipe, nodes = recipe_of_nodes(order, position, referenced_nodes)
    operands: list[OperandReference] = []
    for node in nodes:
        empty = overwritten.get(node) if node.provenance is None else None
        operands.append(reference_to(node) if empty is None else StrongLeafReference(empty, 0))
    return recipe, operands, position


def recipe_of_nodes(
    order: Sequence[Node], position: Mapping[Node, int], referenced_nodes: Container[Node] = ()
) -> tuple[Recipe, list[Node]]:
    """Return the recipe of an expression, and the nodes that are its operands; `position` has the
    positions of all nodes, and `referenced_nodes` as in `recipe_of`."""
    steps: list[RecipeEntry] = []
    operands: list[Node] = []
    positions: list[int] = []
    for i, node in enumerate(order):
        operation = node.operation
        if node.value is None and not operation.is_leaf:
            sources = tuple(map(position.__getitem__, node.inputs))
            steps.append(
                RecipeStep(
                    operation, node.attributes, node.shape, node.dtype, node.layout, node.line,
                    node.signature, sources,
                )
            )  # fmt: skip
            if node not in referenced_nodes:
                continue
        elif operation.name == "scalar" and node.provenance is None:
            steps.append(node)
            continue
        else:
            steps.append(None)
        positions.append(i)
        operands.append(node)
    _replace_numbers(steps, position)
    return Recipe(steps, positions), operands


def _replace_numbers(steps: list[RecipeEntry], position: Mapping[Node, int]) -> None:
    """Store numbers without their nodes, if only this list, the order and the positions of the
    expression, and one operation refer to these."""
    nodes = [step for step in steps if type(step) is Node]
    for node, count in zip(nodes, references(nodes), strict=True):
        if count == COUNTING + 4 and node.provenance is None:
            steps[position[node]] = NumberStep(node.operation, node.dtype, node.value)
