"""The provenance of results: what an evaluation stores for gradients and for waiting readers."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import TypeAlias

from magmath.core.bounded_memo import RecentlyUsed
from magmath.engine.lifetimes.live_references import live_intermediates
from magmath.engine.remote_array import OVERWRITTEN
from magmath.graph import Node, Provenance, provenance_of, recipe_of, set_provenance, topological
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.graph.provenance.operand_references import reference_to
from magmath.graph.provenance.recipe import Recipe
from magmath.graph.structure import Structure
from magmath.ops.leaves import SCALAR, input_leaf

RecipeMemo: TypeAlias = "RecentlyUsed[Hashable, Recipe]"
"""Recipes by the structure of expressions and the positions of the operands in them."""
MAX_STEPS = 1000
"""The number of steps of the longest recipe that is stored."""


def deliver_results(leaves: Mapping[Node, Node]) -> None:
    """Pass the values of nodes to the weak results that refer to these nodes."""
    for node, leaf in leaves.items():
        if node.result is not None:
            node.result.resolve(leaf)


def record_provenance(
    leaves: Mapping[Node, Node],
    order: Sequence[Node],
    live: Container[Node],
    donated: Sequence[Node] = (),
) -> None:
    """Store how the values of nodes were computed, in the leaves that hold them.

    order    the nodes of the expression
    live     those nodes of it that have other references
    donated  leaves whose memory was overwritten
    """
    if not leaves:
        return
    empty = {x: input_leaf(x.shape, x.dtype, x.layout, OVERWRITTEN) for x in donated if x.layout}
    recipe, operands, position = recipe_of(order, _operands_in(order, leaves, live), empty)
    _record_outputs(leaves, position, Provenance.of(recipe, recipe.last, operands, None))


def record_provenance_by_structure(
    results: Mapping[Node, Node],
    order: Sequence[Node],
    live: Container[Node],
    donated: Sequence[Node],
    structure: Structure,
    recipes: RecipeMemo,
) -> None:
    """Store how the values of nodes were computed, as `record_provenance`, but with the recipe of
    an earlier expression of the same structure, if there is one."""
    key, leaves = structure
    if donated or not _has_shared_recipe(order, leaves):
        record_provenance(results, order, live, donated)
        return
    read = _operands_in(order, results, live)
    key = key, *[i for i, node in enumerate(order) if node in read]
    recipe = recipes.find(key)
    if recipe is None:
        whole, operands, position = recipe_of(order, read)
        numbers = [i for i, node in enumerate(order) if node.operation is SCALAR]
        recipe = whole.with_numbers(numbers)
        recipes.store(key, recipe)
    else:
        operands = [reference_to(order[i]) for i in recipe.operands]
        position = {node: i for i, node in enumerate(order) if node in results}
    numbers_of_this = [order[i].value for i in recipe.numbers]
    common = Provenance.of(recipe, recipe.last, operands, None, numbers_of_this)
    _record_outputs(results, position, common)


def _has_shared_recipe(order: Sequence[Node], leaves: Sequence[Node]) -> bool:
    """Return True if the structure of an expression determines its recipe, up to numbers.

    It does not if several nodes are one leaf of the structure, or if the nodes of numbers matter:
    those of streams of random numbers, which generators know, and those with a provenance.
    """
    if len(order) > MAX_STEPS:
        return False
    count = 0
    for node in order:
        operation = node.operation
        if operation.is_random or (operation is SCALAR and node.provenance is not None):
            return False
        count += operation.is_leaf or node.value is not None
    return count == len(leaves)


def _operands_in(
    order: Sequence[Node], results: Mapping[Node, Node], live: Container[Node]
) -> Container[Node]:
    """Return the nodes that are recorded as operands: also the results, if there are several,
    which may be computed from each other."""
    return live if len(results) == 1 else {*results, *[node for node in order if node in live]}


def _record_outputs(
    leaves: Mapping[Node, Node], position: Mapping[Node, int], common: Provenance
) -> None:
    """Set the provenance of leaves, given the record of one output."""
    for node, leaf in leaves.items():
        if node.operation is SCALAR:  # the node is the scalar itself, a number
            set_provenance(leaf, provenance_of(node))
        else:
            record = common.of_output(position[node], node.line, node.sequence_number)
            set_provenance(leaf, record)


def provenance_of_pending(node: Node) -> Provenance:
    """Return the provenance of a pending node."""
    order = topological((node,), pending=True)
    leaves = {node: Node(SCALAR, (), NO_ATTRIBUTES, node.shape, node.dtype)}
    record_provenance(leaves, order, live_intermediates(order, (node,)))
    provenance = provenance_of(leaves[node])
    if provenance is None:
        return Provenance(node.line, (), sequence_number=node.sequence_number)
    return provenance
