"""Chains of calls of a compiled function: each call receives results of the call before, and
otherwise the same arrays, as `x = step(x, y)` in a loop.

The calls of a chain have one record (`graph/provenance/repeated_calls.py`). A call that continues a
chain is recognized by its arguments before anything else is checked, since they are then of the
right types and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final
from weakref import ref

from magmath.graph import Node, OperandReference, Provenance, Recipe
from magmath.graph.operation import Line
from magmath.graph.provenance.operand_references import LeafReference, StrongLeafReference
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.repeated_calls import CallResult, RepeatedCalls


@final
class _ArgumentOfChain(NamedTuple):
    """What an argument must be in each call of a chain.

    kind        its class
    result      the position of the result of the previous call that it is; None for an argument
                that all calls share
    provenance  the provenance that it had in the first call
    leaf        the leaf that it had in the first call; None for a number
    """

    kind: type
    result: int | None = None
    provenance: Provenance | None = None
    leaf: Callable[[], Node | None] | None = None


@final
class CallChain:
    """Calls of which each continues the one before.

    `values` are the values of the arguments of the next call, after `is_continued_by` has accepted
    them.
    """

    __slots__ = ("_arguments", "_calls", "_latest", "values")

    def __init__(self, calls: RepeatedCalls, arguments: Sequence[_ArgumentOfChain]) -> None:
        self._calls, self._arguments = calls, arguments
        self._latest: Sequence[CallResult] = ()
        self.values: list[Any] = []

    def is_continued_by(self, arguments: Sequence[Any]) -> bool:
        """Return True if these arguments of a call are results of the last one, and the other
        operands of the first one, and if a record may have one more call."""
        if len(arguments) != len(self._arguments):
            return False
        latest, values = self._latest, []
        for passed, (kind, result, provenance, leaf) in zip(arguments, self._arguments):  # noqa: B905
            if type(passed) is not kind:
                return False
            argument: Any = passed
            if leaf is None:
                values.append(argument)
                continue
            own_leaf = argument._leaf
            if own_leaf is not argument._node:  # an expression
                return False
            if result is not None:
                if own_leaf.provenance is not latest[result]:
                    return False
            elif own_leaf.provenance is not provenance or own_leaf is not leaf():
                return False
            values.append(own_leaf.value)
        if self._calls.remaining_operations < 0:
            self._calls.shorten()
            return False
        self.values = values
        return True

    def add(self, leaves: Sequence[Node], numbers: Sequence[Any]) -> None:
        """Add a call with these leaves of results and these numbers."""
        self._latest = self._calls.add(leaves, numbers)


@final
class ChainMaker:
    """What the chains of a function have in common.

    recipe       the recipe of the function
    outputs      the positions of its results in the recipe
    line         the user's line of its calls
    kinds        the classes of its arguments
    argument_of  for each operand its position among the arguments; None for a captured array
    """

    def __init__(
        self,
        recipe: Recipe,
        outputs: Sequence[int],
        line: Line,
        kinds: Sequence[type],
        argument_of: Sequence[int | None],
    ) -> None:
        self._recipe, self._outputs, self._line = recipe, outputs, line
        self._kinds, self._argument_of = kinds, argument_of

    def begin(self, operands: Sequence[OperandReference]) -> CallChain | None:
        """Return a chain whose first call has these operands, if some are results of an earlier
        call, and the others operands of that call; otherwise None."""
        result_for_operand = self._result_for_operand(operands)
        if result_for_operand is None:
            return None
        arguments = [_ArgumentOfChain(kind) for kind in self._kinds]
        for position, operand, result in zip(
            self._argument_of, operands, result_for_operand, strict=True
        ):
            if position is None:
                continue
            leaf = operand.find()
            if leaf is None:
                return None
            kind, provenance = self._kinds[position], provenance_before(operand)
            arguments[position] = _ArgumentOfChain(kind, result, provenance, ref(leaf))
        calls = RepeatedCalls(self._recipe, self._outputs, self._line, operands, result_for_operand)
        return CallChain(calls, arguments)

    def _result_for_operand(self, operands: Sequence[OperandReference]) -> list[int | None] | None:
        """Return for each operand the position of the result of an earlier call that it is, or None
        for an operand of that call too; None if there is no such call."""
        recipe = self._recipe
        for operand in operands:
            before = provenance_before(operand)
            if before is not None and before.recipe is recipe:
                break
        else:
            return None
        results: list[int | None] = []
        for operand, former in zip(operands, before.operands, strict=True):
            origin = provenance_before(operand)
            if operand is former or _is_same_leaf(operand, former):
                results.append(None)
            elif origin is not None and origin.recipe is recipe:
                results.append(self._outputs.index(origin.output))
            else:
                return None
        return results


def _is_same_leaf(x: OperandReference, y: OperandReference) -> bool:
    """Return True for references to one leaf with one value."""
    kinds = LeafReference, StrongLeafReference
    if not (isinstance(x, kinds) and isinstance(y, kinds)):
        return False
    leaf = x.find()
    return leaf is not None and leaf is y.find()
