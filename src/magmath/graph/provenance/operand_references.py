"""References to the operands of evaluated expressions, by which provenance finds them.

They are weak, so that arrays without other references are freed, except for small arrays that could
not be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import prod
from types import MappingProxyType
from typing import Protocol, final
from weakref import ref

from msgspec import Struct, field

from magmath.graph.evaluation_state import set_result
from magmath.graph.operation import Line, Node, WeakResult, make_node, next_sequence_number
from magmath.graph.provenance.recent_array_cache import KeptArray, keep_recent

MAX_KEPT = 128 << 10
"""Bytes of the largest operand that a record keeps alive as long as it exists itself, if the
operand is no result. Of larger ones, all records keep limited bytes (`recent_array_cache.py`)."""

_identities = count(1)
# Records refer to earlier records only, so they form no cycles (gc=False): collections of garbage
# need not walk along their chains.


class ProvenanceRecord(Struct, eq=False, gc=False):
    """What operands and chains know of the record of how a value was computed.

    length           the number of operations of the longest chain before and with this one, those
                     included whose expressions were dropped
    start            the length up to which expressions were dropped
    sequence_number  that of the node whose value was computed: larger than those of all records and
                     nodes that it was computed from
    identity         0, or a number by which a reference that no longer holds this record recognizes
                     it
    answer           the answer to the last query whether the value was computed from an array
                     (`graph/provenance/dependence.py`)
    """

    line: Line
    operands: Sequence[OperandReference]
    length: int = 1
    start: int = 0
    sequence_number: int = field(default_factory=next_sequence_number)
    identity: int = 0
    answer: object = None

    def recorded(self, leaf: Node) -> ProvenanceRecord:
        """Return this record, as `DeferredProvenance` does."""
        return self

    @property
    def is_dropped(self) -> bool:
        """True if the expression was dropped."""
        raise NotImplementedError

    @property
    def reads_gradients(self) -> bool:
        """True if the value was computed from results of `mm.grad` in the same expression."""
        raise NotImplementedError

    def direct_operands(
        self, *, through_gradients: bool = True, through_stops: bool = True
    ) -> Sequence[OperandReference]:
        """Return the operands from which the value was computed directly.

        With `through_gradients=False`, operands that are reached only through results of `mm.grad`
        are left out.
        """
        raise NotImplementedError

    def drop_expression(
        self, operands: Sequence[OperandReference], direct: Sequence[OperandReference]
    ) -> None:
        """Drop the expression; its operands are the arrays on which the value depends, and `direct`
        those from which it was not computed through gradients."""
        raise NotImplementedError


class OperandReference:
    """A reference to an array that an expression read, a weak one unless the array is small and
    could not be computed again; an abstract class, but not an ABC, whose instance checks are slow.

    `provenance` is that of the array.
    """

    __slots__ = ()
    kept_bytes = 0
    """The bytes of an array that the operand keeps alive."""
    provenance: ProvenanceRecord | None

    def find(self) -> Node | None:
        """Return the node that was read, or the leaf with its value; None if neither exists any
        more."""
        raise NotImplementedError

    def nodes(self) -> Sequence[Node]:
        """Return the existing ones of the node, the leaf with its value, and the variable."""
        raise NotImplementedError


@final
class LeafReference(OperandReference, Struct, eq=False, gc=False):
    """A leaf that was read.

    A compiled function reuses the leaf of an unreferenced result for its next result, with another
    provenance; the reference is then no longer valid.
    """

    _leaf: ref[Node]
    provenance: ProvenanceRecord | None
    _identity: int = 0
    _kept_array: KeptArray | None = None

    @staticmethod
    def of(leaf: Node) -> LeafReference:
        """Return a weak reference to a leaf with its current value."""
        return LeafReference(ref(leaf), record_of(leaf))

    def find(self) -> Node | None:
        leaf = self._leaf()
        if leaf is None or leaf.provenance is self.provenance:
            return leaf
        identity, provenance = self._identity, leaf.provenance
        is_same = identity and provenance is not None and provenance.identity == identity
        return leaf if is_same else None

    def nodes(self) -> Sequence[Node]:
        leaf = self.find()
        return () if leaf is None else (leaf,)

    def identify(self) -> None:
        """Refer to the present value of the leaf, although its provenance is another one."""
        leaf = self._leaf()
        if leaf is not None and leaf.provenance is not None:
            leaf.provenance.identity = leaf.provenance.identity or next(_identities)
            self._identity = leaf.provenance.identity

    def forget_provenance(self) -> None:
        """Drop the provenance of the array."""
        before = self.provenance
        if before is not None:
            before.identity = before.identity or next(_identities)
            self._identity, self.provenance = before.identity, None


@final
class StrongLeafReference(OperandReference, Struct, eq=False, gc=False):
    """A small leaf that was read and that is no result itself: it is kept alive, since it could not
    be computed again. The arrays of leaves without provenance never change."""

    _leaf: Node
    kept_bytes: int
    provenance: ProvenanceRecord | None = None

    def find(self) -> Node | None:
        return self._leaf

    def nodes(self) -> Sequence[Node]:
        return (self._leaf,)


@final
class NodeReference(OperandReference):
    """A node that was read by a pending expression, or a node whose value is known by now."""

    __slots__ = ("_node", "_result", "provenance")

    def __init__(self, node: Node) -> None:
        self._node = ref(node)
        self.provenance: ProvenanceRecord | None = None
        if isinstance(node.value, Node):
            self.provenance = record_of(node.value)
            self._result: Callable[[], Node | None] = ref(node.value)
            return
        result = node.result
        if result is None:
            result = WeakResult()
            set_result(node, result)
        self._result = result

    def find(self) -> Node | None:
        return self._node() or self._result()

    def nodes(self) -> Sequence[Node]:
        return [node for node in (self._node(), self._result()) if node is not None]


@final
class VersionReference(OperandReference):
    """A value of a variable that was read: the leaf of the variable, which always exists, the
    number of the value among all values of the variable, and the leaf with the value."""

    __slots__ = ("_version", "leaf", "number", "provenance", "variable")

    def __init__(self, node: Node) -> None:
        self.provenance: ProvenanceRecord | None = None
        self.variable, value = node.inputs
        self.number: int = node.attributes["number"]
        self.leaf = ref(value)
        self._version = node.operation

    def find(self) -> Node | None:
        leaf = self.leaf()
        if leaf is None:
            return None
        attributes = MappingProxyType({"number": self.number})
        inputs = (self.variable, leaf)
        return make_node(self._version, inputs, attributes, leaf.shape, leaf.dtype, value=leaf)

    def nodes(self) -> Sequence[Node]:
        return (self.variable,)


def weak_reference_to(node: Node) -> OperandReference:
    """Return a weak reference to a node that an expression reads."""
    if node.operation.is_leaf:
        return LeafReference.of(node)
    return VersionReference(node) if node.operation.is_version else NodeReference(node)


def reference_to(node: Node) -> OperandReference:
    """Return a reference to a node that an expression reads: one that keeps it alive if it is a
    small array that is no result itself, or one of the latest larger ones; otherwise a weak one."""
    return reference_to_array(node) if node.operation.name == "input" else weak_reference_to(node)


def reference_to_array(leaf: Node) -> OperandReference:
    """Return `reference_to` of the leaf of an array."""
    before = leaf.provenance
    if before is not None:
        return LeafReference(ref(leaf), before.recorded(leaf))
    nbytes = prod(leaf.shape) * leaf.dtype.itemsize
    if nbytes <= MAX_KEPT:
        return StrongLeafReference(leaf, nbytes)
    return LeafReference(ref(leaf), None, _kept_array=keep_recent(leaf, nbytes))


def reference_to_value(node: Node, leaf: Node) -> OperandReference:
    """Return `reference_to` of a node whose value is in a leaf: a variable's value, or an array
    that has been computed."""
    return VersionReference(node) if node.operation.is_version else reference_to_array(leaf)


class DeferredProvenance(Protocol):
    """A provenance whose record is made when it is needed."""

    def recorded(self, leaf: Node, /) -> ProvenanceRecord:
        """Return the record, which also becomes the provenance of the leaf."""


def record_of(leaf: Node) -> ProvenanceRecord | None:
    """Return the record of a leaf, or None if it has none."""
    record: ProvenanceRecord | DeferredProvenance | None = leaf.provenance
    return None if record is None else record.recorded(leaf)


set_provenance: Callable[[Node, ProvenanceRecord | DeferredProvenance | None], None] = (
    Node.__dict__["provenance"].__set__
)
"""Set the provenance of a leaf: a part of its evaluation state."""
