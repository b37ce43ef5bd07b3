"""Operations that mark calls of functions with gradients of their own (`mm.custom_gradient`).

`custom_call` stands for a call. Its inputs are the arguments, the arrays that the gradient rule
reads, and the values of the function; its attribute is the rule. `custom_result` is a result of the
call; the passes replace it by its value. Only `autodiff` and `batching` read the call: gradients
reach its arguments by the rule, and nothing else on which the values depend.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

from magmath.core.dtypes import DType, bool_
from magmath.graph import Graph, Node, Shape, apply, topological
from magmath.ops.marks import mark


@final
@dataclass(frozen=True, eq=False)
class GradientRule:
    """The cotangents of the arguments of a function, as expressions of placeholders.

    value_cotangents  the placeholders of the cotangents of the values
    read              the placeholders of the arrays that the rule reads
    outputs           the cotangents of the arguments, in their shapes; None for an argument without
                      a gradient

    Rules of the same structure are equal, so that calls of a function share their program.
    """

    value_cotangents: Sequence[Node]
    read: Sequence[Node]
    outputs: Sequence[Node | None]

    @property
    def computed(self) -> list[Node]:
        """The cotangents of the arguments that have a gradient."""
        return [x for x in self.outputs if x is not None]

    def with_computed(
        self, computed: Iterable[Node], cotangents: Sequence[Node], read: Sequence[Node]
    ) -> GradientRule:
        """Return a rule with other expressions and placeholders for the same arguments."""
        remaining = iter(computed)
        outputs = [None if x is None else next(remaining) for x in self.outputs]
        return GradientRule(cotangents, read, outputs)

    def applied(self, cotangents: Sequence[Node], read: Sequence[Node]) -> list[Node | None]:
        """Return the cotangents of the arguments for these cotangents of the values.

        All nodes are new: an equal rule outlives a pool, and a node of it that is computed would
        have a value of this pool.
        """
        leaves = (*self.value_cotangents, *self.read)
        new = dict(zip(leaves, (*cotangents, *read), strict=True))
        for node in topological(self.computed):
            if node not in new:
                inputs = tuple([new[x] for x in node.inputs])
                new[node] = node.replace(inputs) if inputs else node
        computed = [new[x] for x in self.computed]
        return list(self.with_computed(computed, (), ()).outputs)

    @cached_property
    def _structure(self) -> Hashable:
        graph = Graph((*self.value_cotangents, *self.read, *self.computed))
        numbers = tuple([x.value for x in graph.leaves if x.name == "scalar"])
        return graph.key, numbers, tuple([x is None for x in self.outputs])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradientRule) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)


def _call_infer(*inputs: Node, rule: GradientRule) -> tuple[Shape, DType]:
    return (), bool_


def _result_infer(value: Node, call: Node, index: int) -> tuple[Shape, DType]:
    return value.shape, value.dtype


CUSTOM_CALL = mark("custom_call", infer=_call_infer, reference=lambda *inputs, rule: inputs[0])
CUSTOM_RESULT = mark(
    "custom_result", infer=_result_infer, reference=lambda value, call, index: value
)


def custom_call(
    arguments: Sequence[Node], rule: GradientRule, read: Sequence[Node], values: Sequence[Node]
) -> Node:
    """Return the mark of a call, with one or more arguments, that returns these values."""
    return apply(CUSTOM_CALL, *arguments, *read, *values, rule=rule)


def custom_result(call: Node, index: int) -> Node:
    """Return a value of a call as its result."""
    return apply(CUSTOM_RESULT, parts_of_call(call).values[index], call, index=index)


@final
class CallParts(NamedTuple):
    """The inputs of a call: its arguments, the arrays that its rule reads, and its values."""

    arguments: Sequence[Node]
    read: Sequence[Node]
    values: Sequence[Node]


def parts_of_call(call: Node) -> CallParts:
    """Return the parts of the inputs of a call."""
    rule: GradientRule = call.attributes["rule"]
    first = len(rule.outputs)
    second = first + len(rule.read)
    return CallParts(call.inputs[:first], call.inputs[first:second], call.inputs[second:])


OPERATIONS = {record.name: record for record in (CUSTOM_CALL, CUSTOM_RESULT)}
