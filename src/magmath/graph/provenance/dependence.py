"""Dependence: searches the provenance of a value for the arrays from which it was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final
from weakref import WeakKeyDictionary

from magmath.graph.operation import Node
from magmath.graph.provenance.recorded_operands import ProvenanceRecord, RecordedOperand

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


def depends_on(
    record: ProvenanceRecord,
    is_source: IsSource,
    answers: dict[ProvenanceRecord, bool],
    *,
    through_gradients: bool = True,
    through_stops: bool = True,
    first_number: int = 0,
    query: DependenceQuery | None = None,
) -> bool:
    """Return True if a value was computed, directly or indirectly, from an operand that `is_source`
    accepts; `through_gradients` and `through_stops` as in `ProvenanceRecord.direct_operands`.

    `answers` caches the answers for records, which also store those to a `query`. Records before
    `first_number` do not depend on such an operand.
    """
    stack = [record]
    while stack:
        current = stack[-1]
        operands = current.direct_operands(
            through_gradients=through_gradients, through_stops=through_stops
        )
        earlier = [x.provenance for x in operands if x.provenance is not None]
        if query is not None:
            query.recall(earlier, answers)
        unknown = [x for x in earlier if x not in answers and x.sequence_number >= first_number]
        depends = any(map(is_source, operands)) or any(answers.get(x) for x in earlier)
        if current not in answers and unknown and not depends:
            stack += unknown
            continue
        answers.setdefault(current, depends)
        if query is not None:
            current.answer = query.dependent if answers[current] else query.independent
        stack.pop()
    return answers[record]
