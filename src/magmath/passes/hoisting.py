"""Hoisted values: finds what a compiled function computes from variables and captured arrays alone.

They are the same in every call until one of the variables changes, so the engine computes them
once (`engine/hoisted_values.py`), and the function's program reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from magmath.graph import Graph, Node, topological

_VIEWS = ("reshape", "permute_dims", "broadcast_to", "slice", "redistribute")
"""Operations that compute nothing: their results are not worth memory of their own."""


def hoisted_nodes(graph: Graph, varying: Collection[Node]) -> set[Node]:
    """Return the nodes that depend on none of the leaves `varying`, the numbers that they may read
    included; nothing if there are numbers alone."""
    hoisted: set[Node] = set()
    numbers: set[Node] = set()
    for node in graph.nodes:
        if node in varying:
            continue
        if node.name in ("scalar", "constant"):
            numbers.add(node)
        elif node.is_leaf:
            hoisted.add(node)
        elif all(x in hoisted or x in numbers for x in node.inputs):
            (numbers if numbers.issuperset(node.inputs) else hoisted).add(node)
    return hoisted | numbers if hoisted else set()


def values_to_keep(graph: Graph, hoisted: Collection[Node]) -> list[Node]:
    """Return the hoisted values that other nodes read and that need no more memory than the arrays
    from which they are computed."""
    outputs = set(graph.outputs)
    values: dict[Node, None] = {}
    read = [x for node in graph.nodes if node not in hoisted for x in node.inputs if x in hoisted]
    seen: set[Node] = set()
    while read:
        node = read.pop()
        if node in seen or node.is_leaf_or_constant:
            continue
        seen.add(node)
        if node not in outputs and _is_worth_memory(node):
            values[node] = None
        else:
            read += node.inputs
    return list(values)


def _is_worth_memory(node: Node) -> bool:
    below = topological([node])
    if all(x.is_leaf_or_constant or x.name in _VIEWS for x in below):
        return False
    return node.nbytes <= sum(x.nbytes for x in below if x.name in ("input", "variable"))


def with_leaves(graph: Graph, values: Sequence[Node], leaves: Sequence[Node]) -> Graph:
    """Return the graph with leaves in place of some of its values."""
    return graph.substituted(dict(zip(values, leaves, strict=True)))
