"""Donation: a written array reuses the memory of an array that has no other references.

Values are immutable, so `a[i] = v` computes another one. If only the pending expression refers to
the old value, the new one is computed in its memory, without a copy. Python's reference counts tell
whether nodes are referenced from outside of the expression.

    overwritten   leaves whose memory a result takes
    lost          nodes that cannot be computed again after that
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from magmath.engine.fallible_operations import is_pending_and_fallible
from magmath.engine.lifetimes.live_references import (
    has_array,
    is_referenced,
    is_value_owned,
    referenced_elsewhere,
)
from magmath.graph import Node

MAX_PARTS: Final = 4
"""Limit of the elements of writes that are stored because only other pending expressions read them,
relative to the elements of the largest one."""


def is_small_write(written: Node, max_bytes: int) -> bool:
    """Return True if a write cannot fail and its pending operands have at most `max_bytes`
    each.

    It holds little memory while it is pending.
    """
    reached, seen = [written], {written}
    while reached:
        node = reached.pop()
        if node.nbytes > max_bytes or is_pending_and_fallible(node):
            return False
        pending = [x for x in node.inputs if x.value is None and not x.is_leaf]
        new = {x for x in pending if not x.operation.overwrites_first} - seen
        seen |= new
        reached += new
    return True


def donate(
    order: Sequence[Node], requested: tuple[Node, ...]
) -> tuple[tuple[Node, ...], tuple[Node | None, ...]]:
    """Return the nodes to compute, and for each the leaf whose memory it reuses, or None.

    Written arrays with other references are computed in addition to the requested nodes; otherwise
    every expression of them would write again. So are referenced nodes that depend on an
    overwritten array, if they are smaller than it; otherwise the array is not overwritten.
    """
    if not any(x.overwrites_first for x in {node.operation for node in order}):
        return requested, ()
    referenced = referenced_elsewhere(order)
    pending = [x for x in order if x in referenced and x.value is None and not x.is_leaf]
    writes = [x for x in pending if x.operation.overwrites_first]
    if sum([x.size for x in writes]) > MAX_PARTS * max([x.size for x in writes], default=0):
        writes = [x for x in writes if has_array(x) or _overwritten_leaf(x, referenced)]
    nodes = list(dict.fromkeys([*requested, *writes]))
    targets: list[Node | None] = []
    for node in list(nodes):
        target = _overwritten_leaf(node, referenced) if node.value is None else None
        needing = [] if target is None else _depending(order, node.inputs[0])
        additional = [x for x in needing if x in pending and x not in nodes]
        fits = sum(x.size for x in additional) < node.size
        targets.append(target if fits and target not in targets else None)
        nodes += additional if targets[-1] else []
    return tuple(nodes), (*targets, *(None,) * (len(nodes) - len(targets)))


def _overwritten_leaf(node: Node, referenced: set[Node]) -> Node | None:
    """Return the leaf of the array that a node writes into if only the node references it."""
    if (
        not node.operation.overwrites_first
        or node.inputs[0] in referenced
        or not is_value_owned(node.inputs[0])
    ):
        return None
    leaf = node.inputs[0].value if isinstance(node.inputs[0].value, Node) else node.inputs[0]
    plain = leaf.name == "input" and leaf.layout is not None and leaf.layout.boxes is None
    return leaf if plain else None


def _depending(order: Sequence[Node], leaf: Node) -> list[Node]:
    """Return the nodes that need the value of a leaf."""
    depending: set[Node] = {leaf}
    for node in order:
        if node.value is None and any(source in depending for source in node.inputs):
            depending.add(node)
    return [node for node in order if node in depending and node is not leaf]


def lost_nodes(order: Sequence[Node], targets: Sequence[Node | None]) -> set[Node]:
    """Return the nodes that cannot be computed again after a run that overwrites `targets`.

    They read the former values of these leaves, directly or through pending nodes.
    """
    overwritten = {leaf for leaf in targets if leaf is not None}
    lost: set[Node] = set()
    if not overwritten:
        return lost
    unreadable = {x for x in order if isinstance(x.value, Node) and x.value in overwritten}
    unreadable |= overwritten
    for node in order:
        if node not in unreadable and any(source in unreadable for source in node.inputs):
            lost.add(node)
            if node.value is None:
                unreadable.add(node)
    return lost


def with_leaves_of_variables(
    targets: Sequence[Node | None],
    order: Sequence[Node],
    requested: Sequence[Node],
    former_leaves: Mapping[Node, list[Node]],
) -> tuple[Node | None, ...]:
    """Return for each requested node the leaf that it overwrites, or None: that in `targets`, or
    the former leaf of the variable that gets its value, if that has no other references."""
    if not former_leaves:
        return tuple(targets)
    overwritten = list(targets) or [None] * len(requested)
    for node, former in former_leaves.items():
        if node in requested and former[0] not in overwritten and not is_referenced(former, order):
            overwritten[requested.index(node)] = former[0]
    return tuple(overwritten)
