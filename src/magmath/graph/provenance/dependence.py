"""Dependence: searches the provenance of a value for the arrays from which it was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, final
from weakref import WeakKeyDictionary

from magmath.graph.operation import Node
from magmath.graph.provenance.recorded_operands import (
    ProvenanceRecord,
    RecordedOperand,
    record_of,
)

IsSource = Callable[[RecordedOperand], bool]


@final
class DependenceQuery:
    """The query whether records were computed from one array.

    Records store the answer to the last query. The query of an array is one object, so that a loop
    that asks in each step does not search all former steps each time.
    """

    __slots__ = ("dependent", "independent")

    def __init__(self) -> None:
        self.dependent, self.independent = object(), object()

    @staticmethod
    def of(array: Node, *, through_gradients: bool) -> DependenceQuery:
        """Return the query for a leaf with its current value."""
        provenance, *queries = _queries.get(array, (None,))
        if not queries or provenance is not array.provenance:  # the leaf of another result now
            queries = [DependenceQuery(), DependenceQuery()]
            _queries[array] = (array.provenance, *queries)
        query: DependenceQuery = queries[through_gradients]
        return query

    def recall(
        self, records: Iterable[ProvenanceRecord], answers: dict[ProvenanceRecord, bool]
    ) -> None:
        """Add the answers that records store."""
        for record in records:
            if record.answer is self.independent:
                answers[record] = False
            elif record.answer is self.dependent:
                answers[record] = True


_queries: WeakKeyDictionary[Node, Any] = WeakKeyDictionary()


def first_number_of(sources: Iterable[Node]) -> int:
    """Return the smallest sequence number of what may depend on a source.

    That of an array without provenance is not known: it may be a later leaf for the value of a
    number that others have read.
    """
    return min([_number_of(source) for source in sources], default=0)


def _number_of(source: Node) -> int:
    record = record_of(source)
    if record is not None:
        return record.sequence_number
    is_pending = bool(source.inputs) and source.value is None
    return source.sequence_number if is_pending or source.operation.name == "variable" else 0


@final
@dataclass(frozen=True, eq=False)
class DependenceSearch:
    """A search of the records from which values were computed for operands that are sources.

    is_source          returns True for a source
    through_gradients  if False, what is reached only through results of `mm.grad` is left out
    through_stops      if False, what is reached only through `mm.stop_gradient` is left out
    first_number       the sequence number of nodes and records before which none depends on a
                       source
    query              what records store with their answers, if the source is one array
    answers            the answers for records
    """

    is_source: IsSource
    through_gradients: bool = True
    through_stops: bool = True
    first_number: int = 0
    query: DependenceQuery | None = None
    answers: dict[ProvenanceRecord, bool] = field(default_factory=dict)

    def is_dependent(self, record: ProvenanceRecord) -> bool:
        """Return True if a value was computed, directly or indirectly, from a source."""
        if record.sequence_number < self.first_number:
            return False
        answers, query = self.answers, self.query
        stack = [record]
        while stack:
            current = stack[-1]
            operands = current.direct_operands(
                through_gradients=self.through_gradients, through_stops=self.through_stops
            )
            earlier = [x.provenance for x in operands if x.provenance is not None]
            if query is not None:
                query.recall(earlier, answers)
            unknown = [
                x for x in earlier if x not in answers and x.sequence_number >= self.first_number
            ]
            depends = any(map(self.is_source, operands)) or any(answers.get(x) for x in earlier)
            if current not in answers and unknown and not depends:
                stack += unknown
                continue
            answers.setdefault(current, depends)
            if query is not None:
                current.answer = query.dependent if answers[current] else query.independent
            stack.pop()
        return answers[record]
