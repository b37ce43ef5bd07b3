"""Dependence: searches the provenance of a value for the arrays from which it was computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol, final
from weakref import WeakKeyDictionary, ref

from magmath.graph.operation import Node, next_sequence_number
from magmath.graph.provenance.operand_references import (
    OperandReference,
    ProvenanceRecord,
    record_of,
)

IsSource = Callable[[OperandReference], bool]


@final
class DependenceQuery:
    """The query whether records were computed from one of some arrays.

    Records store the answer to the last query. The query of the same arrays is one object, so that
    a loop that asks in each step does not search all former steps each time.
    """

    __slots__ = ("dependent", "independent")

    def __init__(self) -> None:
        self.dependent, self.independent = object(), object()

    @staticmethod
    def of(arrays: Collection[Node], *, through_gradients: bool) -> DependenceQuery:
        """Return the query for leaves with their current values."""
        ordered = sorted(arrays, key=attrgetter("sequence_number"))
        # A leaf may be that of another result later, whose record has another number. References to
        # the records themselves would keep the arrays alive, from which they were computed.
        state = [*map(ref, ordered)], [*map(number_of_source, ordered)]
        former, queries = _queries.get(ordered[0], ((), ()))
        if former != state:
            queries = DependenceQuery(), DependenceQuery()
            _queries[ordered[0]] = state, queries
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


_first_asked: WeakKeyDictionary[Node, tuple[object, int]] = WeakKeyDictionary()
"""For sources their provenance, and the sequence number at which they were a source first."""


def unchanged_sources(sources: Collection[Node]) -> set[Node]:
    """Return those leaves that were sources with their current values before another one of them
    was computed, such as a frozen parameter together with one that changes in each step."""
    newest = max(map(number_of_source, sources), default=0)
    unchanged = set[Node]()
    for source in sources:
        provenance, number = _first_asked.get(source, (None, 0))
        if not number or provenance is not source.provenance:
            _first_asked[source] = source.provenance, next_sequence_number()
        elif number < newest:
            unchanged.add(source)
    return unchanged


class Dependence(Protocol):
    """The dependence of records on some sources."""

    @property
    def first_number(self) -> int:
        """The sequence number of nodes and records before which none depends on a source."""

    def is_dependent(self, record: ProvenanceRecord, /) -> bool:
        """Return True if a value was computed, directly or indirectly, from a source."""


def first_number_of(sources: Iterable[Node]) -> int:
    """Return a sequence number before which no node and no record depends on a source."""
    return min(map(number_of_source, sources), default=0)


def number_of_source(source: Node) -> int:
    """Return a sequence number before which no node and no record depends on a source.

    It is 0, unknown, for an array without provenance, which may be a later leaf with the value of a
    number that others have read.
    """
    record = record_of(source)
    if record is not None:
        return record.sequence_number
    is_pending = bool(source.inputs) and source.value is None
    return source.sequence_number if is_pending or source.operation.name == "variable" else 0


@final
@dataclass(eq=False, slots=True)
class DependenceSearch:
    """A search of the records from which values were computed for operands that are sources.

    is_source          returns True for a source
    through_gradients  if False, what is reached only through results of `mm.grad` is left out
    through_stops      if False, what is reached only through `mm.stop_gradient` is left out
    first_number       the sequence number of nodes and records before which none depends on a
                       source
    query              under which records store their answers, or None
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
        answers, query, first = self.answers, self.query, self.first_number
        if record.sequence_number < first:
            return False
        stack = [record]
        while stack:
            current = stack[-1]
            direct = current.direct_operands(
                through_gradients=self.through_gradients, through_stops=self.through_stops
            )
            # An older value is no source, nor computed from one.
            operands = [
                x for x in direct if (p := x.provenance) is None or p.sequence_number >= first
            ]
            earlier = [x.provenance for x in operands if x.provenance is not None]
            if query is not None:
                query.recall(earlier, answers)
            unknown = [x for x in earlier if x not in answers]
            depends = any(map(self.is_source, operands)) or any(answers.get(x) for x in earlier)
            if current not in answers and unknown and not depends:
                stack += unknown
                continue
            answers.setdefault(current, depends)
            if query is not None:
                current.answer = query.dependent if answers[current] else query.independent
            stack.pop()
        return answers[record]
