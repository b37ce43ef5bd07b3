"""The structure of an expression: a key by which the program that computes it is found again.

`Graph.key` describes a graph of leaves and operations. An expression of the user's code has
evaluated nodes instead of leaves, so its graph must be built first. `structure_of` describes the
same graph in one pass over the nodes of the expression, and builds nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, final

from magmath.graph.operation import Node


@final
class Structure(NamedTuple):
    """The key of an expression, and its leaves in the order of their first use."""

    key: Hashable
    leaves: list[Node]


def structure_of(
    order: Sequence[Node], outputs: Sequence[Node], targets: Sequence[Node | None]
) -> Structure:
    """Return the structure of an expression.

    order    its nodes, each after its inputs, up to evaluated nodes
    outputs  the nodes to compute
    targets  for each output the leaf whose memory it reuses, or None

    Expressions with equal keys have equal graphs, and their leaves correspond. Values of
    scalars, data of inputs and identities of variables are not part of the key.
    """
    key: list[Hashable] = []
    position_of: dict[Node, int] = {}
    leaves: list[Node] = []
    count = 0
    for node in (*order, *[leaf for leaf in targets if leaf is not None]):
        leaf = node if node.operation.is_leaf else node.value
        if leaf is not None:
            position = position_of.get(leaf)
            if position is None:
                position = position_of[leaf] = count
                count += 1
                leaves.append(leaf)
                key += (leaf.operation.name, leaf.shape, leaf.dtype.name, leaf.layout)
            position_of[node] = position
            continue
        sources = [position_of[source] for source in node.inputs]
        if node.signature is not None:
            key.append(node.signature.id)
            key += sources
        else:
            key += (node.operation.name, tuple(node.attributes.items()), tuple(sources))
        key.append(node.layout)
        position_of[node] = count
        count += 1
    key.append(tuple([position_of[node] for node in outputs]))
    key.append(tuple([None if leaf is None else position_of[leaf] for leaf in targets]))
    return Structure(tuple(key), leaves)
