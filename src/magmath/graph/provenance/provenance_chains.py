"""Chains of provenance records: what a value was computed from, directly or indirectly, and how
long these records are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeGuard

from magmath.graph.operation import Node
from magmath.graph.provenance.operand_references import (
    LeafReference,
    OperandReference,
    ProvenanceRecord,
)

MAX_LENGTH = 20_000
"""Maximum length of a chain of recorded operations; of earlier ones only the operands are
recorded."""


def chain_before(operands: Sequence[OperandReference]) -> tuple[int, int, int]:
    """Return the bytes that operands keep alive, and the length and the start of the longest chain
    that ends with one of them.

    The older half of a chain of more than `MAX_LENGTH` operations is dropped.
    """
    kept_bytes = length = start = 0
    for operand in operands:
        kept_bytes += operand.kept_bytes
        record = operand.provenance
        if record is not None:
            if record.length - record.start > MAX_LENGTH:
                _shorten([x for x in map(_provenance, operands) if _is_long(x)])
            # Comparisons, since calls of `max` would take a tenth of an operation on small arrays.
            if record.length > length:
                length = record.length
            if record.start > start:
                start = record.start
    return kept_bytes, length, start


def longest(operands: Sequence[OperandReference]) -> int:
    """Return the number of recorded operations of the longest chain before a result."""
    _, length, start = chain_before(operands)
    return length - start


def operands_before(
    record: ProvenanceRecord, *, through_gradients: bool = True
) -> Iterator[OperandReference]:
    """Yield all operands from which the value was computed, directly or indirectly."""
    seen, stack = set[object]((record,)), [record]
    while stack:
        for operand in stack.pop().direct_operands(through_gradients=through_gradients):
            if operand in seen:  # several records share an operand
                continue
            seen.add(operand)
            yield operand
            earlier = operand.provenance
            if earlier is not None and earlier not in seen:
                seen.add(earlier)
                stack.append(earlier)


def nodes_before(record: ProvenanceRecord, *, through_gradients: bool = True) -> Iterator[Node]:
    """Yield all existing nodes from which the value was computed, directly or indirectly."""
    for x in operands_before(record, through_gradients=through_gradients):
        yield from x.nodes()


def _provenance(operand: OperandReference) -> ProvenanceRecord | None:
    return operand.provenance


def _is_long(record: ProvenanceRecord | None) -> TypeGuard[ProvenanceRecord]:
    return record is not None and record.length - record.start > MAX_LENGTH


def _shorten(records: Sequence[ProvenanceRecord]) -> None:
    """Drop the expressions of the older half of the chains that end with some records, except on
    which existing arrays they depend. The chains of a network's parameters are mostly the same.

    Shorter chains join a long one at its operations, such as the mask of the labels in each step of
    a training, or a running mean. Of these, what is as recent as the newer half is kept, and what
    is short.
    """
    start = min([x.length for x in records]) - MAX_LENGTH // 2
    chain, before = _reached(records, lambda x: x.length > start)
    first_number = min([x.sequence_number for x in chain])
    recent = [x for x in before if x.sequence_number >= first_number]  # lengths grow: not in chain
    _, before_recent = _reached(recent, lambda x: x.sequence_number >= first_number)
    old = [
        x
        for x in (*before, *before_recent)
        if x.sequence_number < first_number and x.length - x.start > MAX_LENGTH // 4
    ]
    dropped = [x for x in dict.fromkeys(old) if not x.is_dropped]
    every, direct = _existing(dropped)
    for old_record in dropped:
        old_record.drop_expression(every[old_record], direct[old_record])
    for record in chain:
        record.start = max(record.start, start)


def _reached(
    records: Collection[ProvenanceRecord], is_included: Callable[[ProvenanceRecord], bool]
) -> tuple[dict[ProvenanceRecord, None], dict[ProvenanceRecord, None]]:
    """Return records and, of those from which they were computed, the ones that `is_included`
    selects, directly or through others of them; and the first ones that it does not select."""
    selected, others = dict.fromkeys(records), dict[ProvenanceRecord, None]()
    stack = [*records]
    while stack:
        for operand in stack.pop().direct_operands():
            earlier = operand.provenance
            if earlier is None or earlier in selected:
                continue
            if is_included(earlier):
                selected[earlier] = None
                stack.append(earlier)
            else:
                others[earlier] = None
    return selected, others


_Operands: TypeAlias = dict[ProvenanceRecord, list[OperandReference]]


def _existing(records: Sequence[ProvenanceRecord]) -> tuple[_Operands, _Operands]:
    """Return the existing arrays on which each record depends, without their provenance: all of
    them, and those on which it does not depend through gradients alone."""
    reached, _ = _reached(records, lambda _: True)
    every = _existing_of_each(records, reached, through_gradients=True)
    if not any(x.reads_gradients for x in reached):
        return every, every
    return every, _existing_of_each(records, reached, through_gradients=False)


def _existing_of_each(
    records: Sequence[ProvenanceRecord],
    reached: Collection[ProvenanceRecord],
    *,
    through_gradients: bool,
) -> _Operands:
    """Return the existing arrays on which each record depends; `reached` are all records before.

    Those of several records are found in one walk, as sets; one record, the usual case, needs none.
    """
    if len(records) == 1:
        read: Iterable[OperandReference] = operands_before(records[0], through_gradients=False)
        if through_gradients:
            read = [operand for record in reached for operand in record.direct_operands()]
        nodes = dict.fromkeys([node.leaf_or_self for x in read for node in x.nodes()])
        return {records[0]: _without_provenance(nodes)}
    bit_of: dict[Node, int] = {}  # the bit by which a node is in a set
    sets: dict[ProvenanceRecord, int] = {}  # sets of nodes, as the bits of integers
    stack = [*records]
    while stack:
        record = stack[-1]
        operands = record.direct_operands(through_gradients=through_gradients)
        earlier = [x.provenance for x in operands if x.provenance is not None]
        unknown = [x for x in earlier if x not in sets]
        if unknown and record not in sets:
            stack += unknown
            continue
        bits = 0
        for node in [node.leaf_or_self for x in operands for node in x.nodes()]:
            bits |= 1 << bit_of.setdefault(node, len(bit_of))
        for other in earlier:
            bits |= sets[other]
        sets[record] = bits
        stack.pop()
    arrays = list(bit_of)
    return {
        record: _without_provenance([x for i, x in enumerate(arrays) if sets[record] >> i & 1])
        for record in records
    }


def _without_provenance(nodes: Iterable[Node]) -> list[OperandReference]:
    operands = [LeafReference.of(node) for node in nodes]
    for leaf in operands:
        leaf.forget_provenance()
    return [*operands]
