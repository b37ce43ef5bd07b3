"""Donation: a written array reuses the memory of an array that has no other references.

Arrays are immutable, so `a[i] = v` computes another array. If only the pending expression refers to
the old array, the new one is computed in its memory, without a copy. Python's reference counts tell
whether nodes are referenced from outside of the expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any, ClassVar, Final

from magmath.core.reference_counts import COUNTING, references
from magmath.engine.data_failures import can_fail
from magmath.graph import Node
from magmath.passes.candidates import is_contraction

MAX_PARTS: Final = 4
"""Limit of the elements of stored intermediate values that only other pending expressions read,
relative to the elements of the largest evaluated array."""
SHORT: Final = 1 << 20
"""Elements of an array that is stored at once if it is referenced."""


def referenced_elsewhere(order: Sequence[Node]) -> set[Node]:
    """Return the nodes of an expression that have references outside its nodes and this list."""
    counts = zip(order, references(order), strict=True)  # nearly all nodes have one reference
    return _beyond_uses(order, [x for x in counts if x[1] > COUNTING + 1])


def live_intermediates(order: Sequence[Node], requested: Sequence[Node]) -> set[Node]:
    """Return unevaluated intermediates that user code still references."""
    pending = [node for node in order if node.value is None and node not in requested]
    counts = zip(pending, [count - 1 for count in references(pending)], strict=True)
    return _beyond_uses(order, [x for x in counts if x[1] > COUNTING + 1])


def _beyond_uses(order: Sequence[Node], counted: Sequence[tuple[Node, int]]) -> set[Node]:
    """Return the nodes with more references than those of the expression and its list."""
    if not counted:
        return set()
    uses = {node: 0 for node, _ in counted}
    shared: set[int] = set()  # nodes may share the tuple of their inputs
    for node in order:
        inputs = node.inputs
        if id(inputs) in shared:
            continue
        shared.add(id(inputs))
        for source in inputs:
            if source in uses:
                uses[source] += 1
    return {node for node, count in counted if count > COUNTING + uses[node]}


def _references_in_list(items: Sequence[Any]) -> int:
    for item in items:
        return getrefcount(item)
    return 0


# The count, in a loop over a list, of an object that only this list references.
_COUNTING_IN_LIST = _references_in_list([object()])


def are_unreferenced(leaves: Sequence[Node], data: Sequence[Any]) -> bool:
    """Return True if only their list refers to the leaves, and only the leaves and one list refer
    to their data."""
    for leaf in leaves:
        if getrefcount(leaf) > _COUNTING_IN_LIST:
            return False
    for value in data:  # noqa: SIM110  which counts them otherwise
        if getrefcount(value) > _COUNTING_IN_LIST + 1:
            return False
    return True


def _is_value_owned(node: Node) -> bool:
    """Return True if only this evaluated node references its value, through all forwarding
    leaves."""
    return is_sole_owner(node) and (not isinstance(node.value, Node) or _is_value_owned(node.value))


def bytes_held_alone(order: Sequence[Node]) -> int:
    """Return the bytes of the evaluated arrays that only a pending expression references."""
    held = referenced_elsewhere(order)
    known = [x for x in order if x not in held and (x.value is not None or x.name == "input")]
    alone = [x for x in known if x.operation.name != "parameter" and _is_value_owned(x)]
    return sum([x.nbytes for x in alone])


def is_sole_owner(node: Node) -> bool:
    """Return True if only this evaluated node references its leaf, or its data."""
    (count,) = references([node.value])
    return count == COUNTING + 1


class _Probe:
    """Counts the references to a written value, to the target of a write, and to an object that is
    converted to a number, when they have no names."""

    counts: ClassVar[dict[str, int]] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        _Probe.counts |= {"value": getrefcount(value), "target": getrefcount(self)}

    def __float__(self) -> float:
        _Probe.counts["float"] = getrefcount(self)
        return 0.0

    def __int__(self) -> int:
        _Probe.counts["int"] = getrefcount(self)
        return 0

    def __bool__(self) -> bool:
        _Probe.counts["bool"] = getrefcount(self)
        return False

    def __index__(self) -> int:
        _Probe.counts["index"] = getrefcount(self)
        return 0

    def __complex__(self) -> complex:
        _Probe.counts["complex"] = getrefcount(self)
        return 0j

    def item(self) -> None:
        _Probe.counts["item"] = getrefcount(self)


_Probe()[0] = object()
float(_Probe()), int(_Probe()), bool(_Probe()), range(_Probe()), complex(_Probe())
_Probe().item()
TEMPORARY, TEMPORARY_TARGET = _Probe.counts["value"], _Probe.counts["target"]
TEMPORARY_NUMBER: Final = _Probe.counts
"""The counts for an array that is converted by `float`, `int`, … or `item`."""


def is_referenced(former: list[Node], order: Sequence[Node] = ()) -> bool:
    """Return True if the value of a variable has references that do not count as the variable's
    own.

    Its own references are the variable, the list `former`, and versions of the variable in the
    expression `order` that have no references outside of it. The variable refers to the leaf and to
    its data; a version refers to the leaf twice.
    """
    versions = [node for node in order if node.operation.version and node.value is former[0]]
    if referenced_elsewhere(order).intersection(versions):
        return True
    leaf, data = _references_in_list(former), _references_in_list([former[0].value])
    return leaf > _COUNTING_IN_LIST + 1 + 2 * len(versions) or data > _COUNTING_IN_LIST + 2


def is_unobservable(order: Sequence[Node], own: Sequence[Node]) -> bool:
    """Return True if no live reference outside `own` could be differentiated later."""
    for node in order:
        unknown = node.is_leaf and node.value is None
        remembers = not node.is_leaf and node.value is not None and node.dtype.is_floating
        if node.name == "variable" or unknown or remembers:
            return False
    held = referenced_elsewhere(order)
    return not any(node.dtype.is_floating for node in held.difference(own))


def is_small_write(written: Node, most: int) -> bool:
    """Return True if a write cannot fail and its pending operands have at most `most` bytes each.

    It holds little memory while it is pending.
    """
    reached, seen = [written], {written}
    while reached:
        node = reached.pop()
        if node.nbytes > most or can_fail(node):
            return False
        pending = [x for x in node.inputs if x.value is None and not x.is_leaf]
        new = {x for x in pending if not x.operation.overwrites_first} - seen
        seen |= new
        reached += new
    return True


def worthwhile_intermediates(order: Sequence[Node], held: Iterable[Node]) -> list[Node]:
    """Return the referenced intermediates that should be computed now, and not once more later.

    So `while float(error(x)) > 0.1: x = step(x)` computes each x once, and `q, r = qr(x)` both
    results. Long intermediates of other operations than products and factorizations are omitted if
    they are larger than every evaluated array of the expression, for example by broadcasting, or if
    many of them have no array, and are only parts of other pending expressions.
    """
    found = [node for node in held if not node.is_leaf_or_constant]
    if not found:
        return found
    most = max([node.size for node in order if node.value is not None], default=0)
    most = max(most, SHORT)
    parts = [node for node in found if not _has_array(node)]
    if sum([node.size for node in parts]) > MAX_PARTS * most:
        found = [node for node in found if _has_array(node) or _is_expensive(node)]
    fitting = {node for node in found if node.size <= most or _is_expensive(node)}
    return [node for node in order if node in fitting]


def _has_array(node: Node) -> bool:
    """Return True if an array of user code refers to this node."""
    array = None if node.handle is None else node.handle()
    return array is not None and array.node is node


def _is_expensive(node: Node) -> bool:
    """Return True if computing a node again takes much longer than storing its result."""
    operation = node.operation
    return operation.lapack or (not operation.mark and is_contraction(node.index_notation))


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
    held = referenced_elsewhere(order)
    pending = [x for x in order if x in held and x.value is None and not x.is_leaf]
    writes = [x for x in pending if x.operation.overwrites_first]
    if sum([x.size for x in writes]) > MAX_PARTS * max([x.size for x in writes], default=0):
        writes = [x for x in writes if _has_array(x) or _overwritten(x, held)]
    found = list(dict.fromkeys([*requested, *writes]))
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
    """Return the leaf of the array that a node writes into if only the node references it."""
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
    """Return the nodes that need the value of a leaf."""
    found: set[Node] = {leaf}
    for node in order:
        if node.value is None and any(source in found for source in node.inputs):
            found.add(node)
    return [node for node in order if node in found and node is not leaf]


def with_former_values(
    order: Sequence[Node],
    requested: Sequence[Node],
    targets: Sequence[Node | None],
    overwritten: Mapping[Node, list[Node]],
) -> tuple[Node | None, ...]:
    """Return the leaves whose memory the results reuse.

    These are `targets`, and the former values of variables that have no other references.
    """
    if not overwritten:
        return tuple(targets)
    found = list(targets) or [None] * len(requested)
    for node, former in overwritten.items():
        if node in requested and former[0] not in found and not is_referenced(former, order):
            found[requested.index(node)] = former[0]
    return tuple(found)
