"""The provenance of the results of compiled functions: a template for all calls, and the operands
of each call.

Calls that receive results of the call before, and otherwise the same arrays, have one record
(`graph/provenance/repeated_calls.py`). Such a call is recognized by its arguments before anything
else is checked, since they are then of the right types and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, final
from weakref import ref

from magmath.engine.lifetimes.retained_expressions import keep_expression, keeps_expressions
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    RecordedOperand,
    recipe_of,
    set_provenance,
    weak_operand,
)
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.recorded_operands import (
    MAX_KEPT,
    KeptOperand,
    LeafOperand,
    operand_of_array,
)
from magmath.graph.provenance.repeated_calls import CallResult, RepeatedCalls

MAX_KEPT_ARGUMENT = 64 << 20
"""Bytes of the largest argument that the results of a call keep alive, without a memory limit: a
batch of NumPy that the call has converted has no other reference."""


@final
class ProvenanceTemplate:
    """The part of the provenance of a compiled function's results that all calls share.

    `position` maps the placeholders of arguments to the positions of the arguments. `outside` are
    other pending nodes that the function reads. `kinds` are the classes of the arguments, None if
    they must be examined further.
    """

    def __init__(
        self,
        traced: Graph,
        position: Mapping[Node, int],
        outside: Collection[Node],
        line: Any,
        kinds: Sequence[type] | None,
    ) -> None:
        order = traced.nodes
        self._recipe, captured, positions = recipe_of(order, outside)
        self._outputs = [positions[node] for node in traced.outputs]
        self._line = line
        self._operands: list[int | Node | RecordedOperand] = [
            position.get(node, node if node.name == "variable" else known)
            for node, known in zip([order[i] for i in self._recipe.operands], captured, strict=True)
        ]  # the position of an argument, a variable, or a captured array
        given = [n for n in order if n.name == "scalar" and n.value is None]
        self._recipe.numbers = [positions[node] for node in given]
        self._numbers = [position.get(node, node) for node in given]
        used = {x for x in (*self._operands, *self._numbers) if isinstance(x, int)}
        varies = any(isinstance(x, Node) for x in (*self._operands, *self._numbers))
        can_repeat = kinds is not None and len(used) == len(kinds) and not varies
        self._kinds = kinds if can_repeat else None
        self.repetitions: list[Repetition] = []
        """The latest calls, if each continues the one before."""

    def continued(self, arguments: Sequence[Any]) -> Repetition | None:
        """Return the latest calls if a call with these arguments would continue them, else None."""
        if keeps_expressions():
            return None
        try:
            repetition = self.repetitions.pop()  # no other thread has it now
        except IndexError:
            return None
        return repetition if repetition.is_continued_by(arguments) else None

    def note_continued(
        self, leaves: Sequence[Node], repetition: Repetition, arguments: Sequence[Any]
    ) -> None:
        """Store the provenance in the leaves of the results of a call that continues others."""
        repetition.add(leaves, [arguments[x] for x in self._numbers] if self._numbers else ())  # type: ignore[index]
        self.repetitions.append(repetition)

    def operands(self, arguments: Sequence[Any]) -> list[RecordedOperand]:
        """Return the operands of a call; they must be recorded before it assigns variables."""
        operands: list[RecordedOperand] = []
        for source in self._operands:
            if type(source) is int:
                argument = arguments[source]
                leaf = argument._leaf or argument.evaluated()
                keep_expression(leaf)
                limited = leaf.value.pool.memory_limit is not None
                operands.append(operand_of_array(leaf, MAX_KEPT if limited else MAX_KEPT_ARGUMENT))
            elif isinstance(source, Node):
                operands.append(weak_operand(source.value().node))
            else:
                operands.append(source)  # type: ignore[arg-type]
        return operands

    def note(
        self,
        leaves: Sequence[Node],
        operands: list[RecordedOperand],
        arguments: Sequence[Any],
        drawn: Mapping[Node, float],
    ) -> None:
        """Store the provenance in the leaves of the results of a call."""
        repetition = self._begun(operands)
        if repetition is not None:
            self.note_continued(leaves, repetition, arguments)
            return
        numbers: Sequence[Any] = ()
        if self._numbers:
            numbers = [drawn[x] if isinstance(x, Node) else arguments[x] for x in self._numbers]
        common = Provenance.of(self._recipe, 0, tuple(operands), self._line, numbers)
        for leaf, output in zip(leaves, self._outputs):  # noqa: B905  assigned variables follow
            set_provenance(leaf, common.of_output(output, self._line))

    def _begun(self, operands: Sequence[RecordedOperand]) -> Repetition | None:
        """Return a repetition whose first call has these operands, if they are results of an
        earlier call, and operands of it."""
        recipe, kinds = self._recipe, self._kinds
        if kinds is None:
            return None
        for x in operands:
            before = provenance_before(x)
            if before is not None and before.recipe is recipe:
                break
        else:
            return None
        if keeps_expressions():
            return None
        fed: list[int | None] = []
        for x, former in zip(operands, before.operands, strict=True):
            made = provenance_before(x)
            if x is former or _is_same_leaf(x, former):
                fed.append(None)
            elif made is not None and made.recipe is recipe:
                fed.append(self._outputs.index(made.output))
            else:
                return None
        calls = RepeatedCalls(recipe, self._outputs, self._line, operands, fed)
        sources = {x: i for i, x in enumerate(self._operands) if isinstance(x, int)}
        given: list[_Given] = []
        for position, kind in enumerate(kinds):
            if position not in sources:
                given.append((kind, None, None, None))
                continue
            operand = operands[sources[position]]
            leaf = operand.find()
            if leaf is None:
                return None
            given.append((kind, fed[sources[position]], provenance_before(operand), ref(leaf)))
        return Repetition(calls, given)


def _is_same_leaf(x: RecordedOperand, y: RecordedOperand) -> bool:
    """Return True for references to one leaf with one value."""
    kinds = LeafOperand, KeptOperand
    if not (isinstance(x, kinds) and isinstance(y, kinds)):
        return False
    leaf = x.find()
    return leaf is not None and leaf is y.find()


_Given = tuple[type, int | None, Provenance | None, Callable[[], Node | None] | None]
"""An argument: its class, the number of the result of the last call that it is, or None, and the
provenance and the leaf that it had in the first call; no leaf for a number."""


@final
class Repetition:
    """Calls of which each continues the one before.

    `values` are the values of the arguments of the next call, after `is_continued_by` has accepted
    them.
    """

    __slots__ = ("_calls", "_given", "_latest", "values")

    def __init__(self, calls: RepeatedCalls, given: Sequence[_Given]) -> None:
        self._calls, self._given = calls, given
        self._latest: Sequence[CallResult] = ()
        self.values: list[Any] = []

    def is_continued_by(self, arguments: Sequence[Any]) -> bool:
        """Return True if these arguments of a call are results of the last one, and the other
        operands of the first one, and if a record may have one more call."""
        if len(arguments) != len(self._given):
            return False
        latest, values = self._latest, []
        for given, (kind, fed, provenance, leaf) in zip(arguments, self._given):  # noqa: B905
            if type(given) is not kind:
                return False
            argument: Any = given
            if leaf is None:
                values.append(argument)
                continue
            found = argument._leaf
            if found is not argument._node:  # an expression
                return False
            if fed is not None:
                if found.provenance is not latest[fed]:
                    return False
            elif found.provenance is not provenance or found is not leaf():
                return False
            values.append(found.value)
        if self._calls.room < 0:
            self._calls.shorten()
            return False
        self.values = values
        return True

    def add(self, leaves: Sequence[Node], numbers: Sequence[Any]) -> None:
        """Add a call."""
        self._latest = self._calls.add(leaves, numbers)
