"""The records of results: what an evaluation stores for gradients and for waiting readers."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import TypeAlias

from magmath.core.bounded_memo import RecentlyUsed
from magmath.engine.live_references import live_intermediates
from magmath.engine.remote_array import OVERWRITTEN
from magmath.graph import Node, Provenance, provenance_of, recipe_of, set_provenance, topological
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.graph.provenance import operand_of
from magmath.graph.recipe import Number, NumberStep, Recipe, Step
from magmath.ops.leaves import PARAMETER, input_leaf

RecipeMemo: TypeAlias = "RecentlyUsed[Hashable, Recipe]"
"""Recipes by the structure of expressions and the positions of the operands in them."""


def deliver_results(known: Mapping[Node, Node]) -> None:
    """Pass the values of nodes to the weak results that refer to these nodes."""
    for node, leaf in known.items():
        if node.result is not None:
            node.result.found(leaf)


def record_provenance(
    known: Mapping[Node, Node],
    order: Sequence[Node],
    held: Container[Node],
    donated: Sequence[Node] = (),
) -> None:
    """Store in the leaves of `known` nodes how their values were computed.

    order    the nodes of the expression
    held     those nodes of it that have other references
    donated  leaves whose memory was overwritten
    """
    if not known:
        return
    empty = {x: input_leaf(x.shape, x.dtype, x.layout, OVERWRITTEN) for x in donated if x.layout}
    recipe, operands, position = recipe_of(order, _operands_in(order, known, held), empty)
    _set(known, position, Provenance.of(recipe, recipe.last, operands, None))


def record_by_structure(
    known: Mapping[Node, Node],
    order: Sequence[Node],
    held: Container[Node],
    structure: tuple[Hashable, Sequence[Node]],
    recipes: RecipeMemo,
) -> None:
    """Do the same as `record_provenance` with the recipe of an earlier expression of the same
    structure, if there is one, and the numbers of this one; `structure` is that of `structure_of`.
    """
    form, leaves = structure
    if sum(node.operation.leaf or node.value is not None for node in order) != len(leaves):
        record_provenance(known, order, held)  # several nodes are one leaf in the structure
        return
    held = _operands_in(order, known, held)
    key = form, *[i for i, node in enumerate(order) if node in held]
    recipe = recipes.find(key)
    if recipe is None:
        recipe, operands, position = recipe_of(order, held)
        given: list[Number] = []
        if not any(node.operation.random for node in order):  # known by the nodes of their numbers
            numbers = [i for i, step in enumerate(recipe.steps) if _is_number(step)]
            given = [order[i].value for i in numbers]
            recipe = recipe.with_numbers(numbers)
            recipes.store(key, recipe)
    else:
        operands = [operand_of(order[i]) for i in recipe.operands]
        given = [order[i].value for i in recipe.numbers]
        position = {node: i for i, node in enumerate(order) if node in known}
    _set(known, position, Provenance.of(recipe, recipe.last, operands, None, given))


def _is_number(step: Step) -> bool:
    return type(step) is NumberStep or (type(step) is Node and step.operation is PARAMETER)


def _operands_in(
    order: Sequence[Node], known: Mapping[Node, Node], held: Container[Node]
) -> Container[Node]:
    """Return the nodes that are recorded as operands: also the results, if there are several,
    which may be computed from each other."""
    return held if len(known) == 1 else {*known, *[node for node in order if node in held]}


def _set(known: Mapping[Node, Node], position: Mapping[Node, int], common: Provenance) -> None:
    """Set the provenance of leaves, given the record of one output."""
    for node, leaf in known.items():
        if node.operation is PARAMETER:  # the node is the parameter itself, a number
            set_provenance(leaf, provenance_of(node))
        else:
            set_provenance(leaf, common.of_output(position[node], node.line))


def provenance_of_pending(node: Node) -> Provenance:
    """Return the provenance of a pending node."""
    order = topological((node,), cut=True)
    known = {node: Node(PARAMETER, (), NO_ATTRIBUTES, node.shape, node.dtype)}
    record_provenance(known, order, live_intermediates(order, (node,)))
    found = provenance_of(known[node])
    return found if found is not None else Provenance(None, 0, (), node.line)
