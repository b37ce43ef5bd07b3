"""The records of results: what an evaluation stores for gradients and for waiting readers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from magmath.engine.live_references import live_intermediates
from magmath.engine.remote_array import OVERWRITTEN
from magmath.graph import Node, Provenance, provenance_of, recipe_of, set_provenance, topological
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.ops.leaves import PARAMETER, input_leaf


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
    if len(known) > 1:  # they may be computed from each other
        held = {*known, *[node for node in order if node in held]}
    recipe, operands, position = recipe_of(order, held, empty)
    common = Provenance.of(recipe, recipe.last, operands, None)
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
