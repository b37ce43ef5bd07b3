"""The provenance of repeated calls of a compiled function: one record for all of them.

A loop such as

    for _ in range(1000):
        x = step(x, y)

passes results of each call to the next one, and the same other arrays. A record of each
call would take as long as the call of a small function, so the calls are counted, and the records
are made when they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import final
from weakref import ref

from msgspec import Struct

from magmath.core.type_aliases import Number
from magmath.graph.operation import Line, Node, next_sequence_number
from magmath.graph.provenance.operand_references import (
    LeafReference,
    OperandReference,
    set_provenance,
)
from magmath.graph.provenance.provenance import Provenance
from magmath.graph.provenance.provenance_chains import MAX_LENGTH, longest, nodes_before
from magmath.graph.provenance.recipe import Recipe


@final
class CallResult(Struct, eq=False, gc=False):
    """The provenance of a result of a repeated call, before its record is made."""

    calls: RepeatedCalls
    call: int
    output: int
    identity: int = 0
    """`ProvenanceRecord.identity`, which the `Provenance` that replaces this object gets."""

    def recorded(self, leaf: Node) -> Provenance:
        """Return the record, which also becomes the provenance of the leaf."""
        return self.calls.provenances_of_call(self.call)[self.output]


@final
class RepeatedCalls:
    """Calls of a function, of which each but the first receives results of the one before.

    recipe                the recipe of the function
    outputs               the positions of its results in the recipe
    operands              the operands of the first call
    result_for_operand    for each operand the position of the result of the previous call that it
                          is; None for an operand that all calls share
    remaining_operations  the number of operations that may follow
    """

    __slots__ = (
        "_line", "_lock", "_numbers", "_operands", "_outputs", "_recipe", "_records",
        "_result_for_operand", "_results", "_sequence_numbers", "remaining_operations",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Recipe,
        outputs: Sequence[int],
        line: Line,
        operands: Sequence[OperandReference],
        result_for_operand: Sequence[int | None],
    ) -> None:
        self._recipe, self._outputs, self._line = recipe, outputs, line
        self._operands, self._result_for_operand = operands, result_for_operand
        self._lock = RLock()
        self._sequence_numbers: list[int] = []  # of each call
        self._numbers: dict[int, Sequence[Number]] = {}  # the scalars of each call that has some
        self._results: list[ref[Node]] = []
        self._records: list[list[Provenance]] = []
        self.remaining_operations = MAX_LENGTH - longest(operands)

    def add(self, leaves: Sequence[Node], numbers: Sequence[Number]) -> list[CallResult]:
        """Add a call, which is known to continue the last one; return the records of its results
        and set them as the provenance of these leaves."""
        call = len(self._sequence_numbers)
        self._sequence_numbers.append(next_sequence_number())
        self.remaining_operations -= self._recipe.length
        if numbers:
            self._numbers[call] = numbers
        results = []
        for output, leaf in enumerate(leaves):
            result = CallResult(self, call, output)
            results.append(result)
            self._results.append(ref(leaf))
            set_provenance(leaf, result)
        return results

    def provenances_of_call(self, call: int) -> list[Provenance]:
        """Return the records of the results of a call; make them, and those of all calls before, if
        they do not exist yet."""
        with self._lock:  # several threads may need gradients
            for new_call in range(len(self._records), call + 1):
                operands = self._operands
                if new_call:
                    operands = self._operands_of(new_call, self._records[-1])
                self._records.append(self._make_provenances(new_call, tuple(operands)))
            return self._records[call]

    def shorten(self) -> None:
        """Make the records of the results of the last call; of the calls before it, keep only which
        existing arrays they read or computed."""
        last = len(self._sequence_numbers) - 1
        if not last:
            self.provenances_of_call(0)
            return
        nodes = [node for x in self._operands for node in (*x.nodes(), *_nodes_before(x))]
        existing = dict.fromkeys([node.leaf_or_self for node in nodes])
        for call in range(last + 1):
            for position in range(len(self._outputs)):
                leaf = self._leaf_of_result(call, position)
                if leaf is not None:
                    existing[leaf] = None
        operands = [LeafReference(ref(leaf), leaf.provenance) for leaf in existing]
        for operand in operands:
            operand.forget_provenance()
        sequence_number = self._sequence_numbers[last - 1]
        forgotten = Provenance(self._line, operands, 0, sequence_number=sequence_number)
        operands_of_last = self._operands_of(last, [forgotten for _ in self._outputs])
        for reference, result in zip(operands_of_last, self._result_for_operand, strict=True):
            if result is not None and self._leaf_of_result(last - 1, result) is not None:
                assert isinstance(reference, LeafReference)
                reference.identify()
        with self._lock:
            self._make_provenances(last, tuple(operands_of_last))

    def _operands_of(self, call: int, before: Sequence[Provenance]) -> list[OperandReference]:
        """Return the operands of a call after the first one; `before`: the records of the results
        of the call before."""
        first = (call - 1) * len(self._outputs)
        return [
            shared
            if position is None
            else LeafReference(self._results[first + position], before[position])
            for shared, position in zip(self._operands, self._result_for_operand, strict=True)
        ]

    def _leaf_of_result(self, call: int, position: int) -> Node | None:
        """Return the leaf of a result of a call if it exists and still has this value, whether its
        record was made or not, otherwise None."""
        leaf = self._results[call * len(self._outputs) + position]()
        if leaf is None:
            return None
        provenance = leaf.provenance
        if isinstance(provenance, CallResult):
            return leaf if provenance.calls is self and provenance.call == call else None
        is_recorded = call < len(self._records) and any(
            provenance is x for x in self._records[call]
        )
        return leaf if is_recorded else None

    def _make_provenances(
        self, call: int, operands: tuple[OperandReference, ...]
    ) -> list[Provenance]:
        """Return new records of the results of a call, and set them as the provenance of leaves
        that still have these results."""
        records = []
        numbers = self._numbers.get(call, ())
        common = Provenance.of(self._recipe, 0, operands, self._line, numbers)
        for position, output in enumerate(self._outputs):
            record = common.of_output(output, self._line, self._sequence_numbers[call])
            records.append(record)
            leaf = self._leaf_of_result(call, position)
            if leaf is not None and isinstance(leaf.provenance, CallResult):
                record.identity = leaf.provenance.identity
                set_provenance(leaf, record)
        return records


def _nodes_before(operand: OperandReference) -> Sequence[Node]:
    return () if operand.provenance is None else list(nodes_before(operand.provenance))
