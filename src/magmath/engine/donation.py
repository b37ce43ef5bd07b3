"""Whose memory a written array may take: that of an array which nobody holds any more.

Arrays are immutable, so `a[i] = v` computes another array. Where the old one is held by the pending
expression alone, the new one is computed in its place, and nothing is copied. Who holds what is
what Python counts: the references to a node from outside of the expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

from magmath.graph import Node


def _references(items: Sequence[Any]) -> list[int]:
    return [getrefcount(item) for item in items]


(_COUNTING,) = _references([object()])  # what counting itself adds


def referenced_elsewhere(order: Sequence[Node]) -> set[Node]:
    """The nodes of an expression that are held by others than its nodes, and this list."""
    counts = zip(order, _references(order), strict=True)  # nearly all have one reader, or a caller
    return _beyond_uses(order, [x for x in counts if x[1] > _COUNTING + 1])


def live_intermediates(order: Sequence[Node], wanted: Sequence[Node]) -> set[Node]:
    """Those of them that are to be computed, besides those that are wanted."""
    counts = zip(order, _references(order), strict=True)
    several = [
        x for x in counts if x[1] > _COUNTING + 1 and x[0].value is None and x[0] not in wanted
    ]
    return _beyond_uses(order, several)


def _beyond_uses(order: Sequence[Node], counted: Sequence[tuple[Node, int]]) -> set[Node]:
    """Those nodes that are referred to more often than by the expression and its list."""
    if not counted:
        return set()
    several = {id(node): (node, count) for node, count in counted}
    uses = dict.fromkeys(several, 0)
    for inputs in {id(node.inputs): node.inputs for node in order}.values():  # nodes may share them
        for source in inputs:
            if id(source) in uses:
                uses[id(source)] += 1
    return {node for key, (node, count) in several.items() if count > _COUNTING + uses[key]}


def _references_in_list(items: Sequence[Any]) -> int:
    for item in items:
        return getrefcount(item)
    return 0


_COUNTING_IN_LIST = _references_in_list([object()])  # of what a list alone holds, in a loop over it


def are_unreferenced(leaves: Sequence[Node], data: Sequence[Any]) -> bool:
    """True if nobody holds leaves but their list, nor their data but the leaves and a list."""
    for leaf in leaves:
        if getrefcount(leaf) > _COUNTING_IN_LIST:
            return False
    for value in data:  # noqa: SIM110  which counts them otherwise
        if getrefcount(value) > _COUNTING_IN_LIST + 1:
            return False
    return True


def _is_value_owned(node: Node) -> bool:
    """True if nobody but this known node holds its value."""
    return is_sole_owner(node) and (not isinstance(node.value, Node) or _is_value_owned(node.value))


def is_sole_owner(node: Node) -> bool:
    """True if nobody but this known node holds the leaf, or the data, behind it."""
    (count,) = _references([node.value])
    return count == _COUNTING + 1


class _Probe:
    """Counts the references to a value that is written, and to what it is written into, where
    neither has a name."""

    value = target = 0

    def __setitem__(self, key: Any, value: Any) -> None:
        _Probe.value, _Probe.target = getrefcount(value), getrefcount(self)


_Probe()[0] = object()
TEMPORARY, TEMPORARY_TARGET = _Probe.value, _Probe.target


def is_referenced(former: list[Node], order: Sequence[Node] = ()) -> bool:
    """True if anything refers to the value of a variable but the variable, the list that is given,
    and the versions of it in an expression that nothing else refers to.

    The variable refers to the leaf and to its data; a version refers to the leaf twice.
    """
    versions = [node for node in order if node.operation.version and node.value is former[0]]
    if referenced_elsewhere(order).intersection(versions):
        return True
    leaf, data = _references_in_list(former), _references_in_list([former[0].value])
    return leaf > _COUNTING_IN_LIST + 1 + 2 * len(versions) or data > _COUNTING_IN_LIST + 2


def is_unobservable(order: Sequence[Node], own: Sequence[Node]) -> bool:
    """True if no gradient can be asked for with respect to what an expression is made of: nobody
    holds a node of it but `own`, or only such as have no gradient."""
    for node in order:
        untold = node.is_leaf and node.value is None
        remembers = not node.is_leaf and node.value is not None and node.dtype.is_floating
        if node.name == "variable" or untold or remembers:
            return False
    held = referenced_elsewhere(order)
    return not any(node.dtype.is_floating for node in held.difference(own))


def worthwhile_intermediates(order: Sequence[Node], held: Iterable[Node]) -> list[Node]:
    """Of what is held on the way, what is computed too because its holders would do so again.

    So `while float(error(x)) > 0.1: x = step(x)` computes each x once. What is larger than all that
    there is already (by broadcasting, say) is not among it.
    """
    found = [node for node in held if not (node.is_leaf or node.name == "constant")]
    if not found:
        return found
    most = max([node.size for node in order if node.value is not None], default=0)
    fitting = {node for node in found if node.size <= most}
    return [node for node in order if node in fitting]


def donate(
    order: Sequence[Node], wanted: tuple[Node, ...]
) -> tuple[tuple[Node, ...], tuple[Node | None, ...]]:
    """What is computed with what is wanted, and for each the leaf whose memory it takes over.

    An array that was written and that somebody holds is computed for good, or every expression of
    it would write again. So is what others hold of an array that is overwritten, if it is smaller.
    """
    if not any(node.operation.overwrites_first for node in order):
        return wanted, ()
    held = referenced_elsewhere(order)
    pending = [x for x in order if x in held and x.value is None and not x.is_leaf]
    found = [*wanted, *(x for x in pending if x.operation.overwrites_first)]
    found = list(dict.fromkeys(found))
    targets: list[Node | None] = []
    for node in list(found):
        target = _overwritten(node, held) if node.value is None else None
        needing = [] if target is None else _depending(order, node.inputs[0])
        others = [x for x in needing if x in pending and x not in found]
        fits = sum(x.size for x in others) < node.size
        targets.append(target if fits and target not in targets else None)
        found += others if targets[-1] else []
    return tuple(found), (*targets, *(None,) * (len(found) - len(targets)))


def _overwritten(node: Node, held: set[Node]) -> Node | None:
    """The leaf behind the array that a node writes into, if that is held by the node alone."""
    if (
        not node.operation.overwrites_first
        or node.inputs[0] in held
        or not _is_value_owned(node.inputs[0])
    ):
        return None
    leaf = node.inputs[0].value if isinstance(node.inputs[0].value, Node) else node.inputs[0]
    plain = leaf.name == "input" and leaf.layout is not None and leaf.layout.boxes is None
    return leaf if plain else None


def _depending(order: Sequence[Node], leaf: Node) -> list[Node]:
    """The nodes for which the leaf's value is needed."""
    found: set[Node] = {leaf}
    for node in order:
        if node.value is None and any(source in found for source in node.inputs):
            found.add(node)
    return [node for node in order if node in found and node is not leaf]
