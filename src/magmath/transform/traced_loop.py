"""Tracing of `while_loop` in a compiled function: one step becomes the body of a `while` node.

Everything that changes from step to step is a state of the loop: the user's value, the variables
that a step assigns, and the numbers of the random streams that it draws from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, final

from magmath.arrays.array import Array
from magmath.arrays.tree import unflatten
from magmath.arrays.variable import Variable, assign
from magmath.core.dtypes import int64
from magmath.engine.drawn_streams import StreamPosition, Streams
from magmath.engine.tracing import Scope, VariableState, tracing
from magmath.engine.user_line import user_line
from magmath.graph import Node
from magmath.graph.rebuild import rebuilt
from magmath.ops.leaves import version
from magmath.ops.while_loops import LoopBody, final_states
from magmath.transform.loops import checked_states
from magmath.transform.subgraphs import frontier, without_versions
from magmath.transform.traced_function import placeholder


def trace_loop(
    holds: Callable[[Any], Node],
    body: Callable[[Any], Any],
    goes_on: Node,
    states: Sequence[Array],
    tree: Hashable,
) -> Any:
    """Return the value of a traced function's loop after its last step.

    `holds` returns the truth value of a value as a node, `goes_on` is that of the initial one.
    Variables that a step assigns, and generators that it draws from, continue after the loop with
    its final states.
    """
    starts = [placeholder(x.shape, x.dtype) for x in states]
    with tracing(_LoopScope()) as scope:
        value = unflatten(tree, [Array(x) for x in starts])
        following = checked_states("while_loop", body(value), tree, states)
        del value
        next_holds = holds(unflatten(tree, [Array(x) for x in following]))
    scope.check_updates("while_loop")
    step = _Step(scope, starts, following, next_holds)
    captured = step.captured()
    initial = [*[x.node for x in states], *step.initial_effects()]
    finals = final_states(step.body(captured), goes_on, initial, captured, user_line())
    step.continue_with(finals[len(states) :])
    return unflatten(tree, [Array(x) for x in finals[: len(states)]])


@final
class _LoopScope(Scope):
    """The effects of one step: its variables and random streams begin as placeholders."""

    def __init__(self) -> None:
        super().__init__(can_loop=True)
        self.variables: dict[Node, Node] = {}
        """Placeholders for the values of variables before the step, by the variables' leaves."""
        self._versions: dict[Node, Node] = {}
        self.streams: dict[int, _Stream] = {}
        """The streams of random numbers, by the identities of the generators."""

    def value_of(self, variable: VariableState) -> Node:
        leaf = variable.leaf
        if leaf in self.assigned:
            return self.assigned[leaf]
        self.read[leaf] = variable
        if leaf not in self._versions:  # one node, by which an optimizer finds the variable
            self._versions[leaf] = version(leaf, self.before(leaf), variable.number)
        return self._versions[leaf]

    def before(self, leaf: Node) -> Node:
        """Return the placeholder for the value of a variable before the step."""
        if leaf not in self.variables:
            self.variables[leaf] = placeholder(leaf.shape, leaf.dtype)
        return self.variables[leaf]

    @property
    def is_loop(self) -> bool:
        return True

    def draw(self, generator: Streams) -> tuple[Node, Node]:
        seed, number = self.draws_of(generator).next()
        self.drawn.append(number)
        return seed, number

    def draws_of(self, generator: Streams) -> StreamPosition:
        if id(generator) not in self.streams:
            outer = super().draws_of(generator)
            self.streams[id(generator)] = _Stream(generator, outer)
        return self.streams[id(generator)].inner


@final
class _Stream:
    """The next stream of a generator, in the surrounding code and in a step.

    `start` is the placeholder for its number before the step.
    """

    def __init__(self, generator: Streams, outer: StreamPosition) -> None:
        self.generator, self.outer = generator, outer  # the generator is kept for its identity
        self.start = placeholder((), int64)
        self.inner = StreamPosition(outer.seed, self.start)


@final
class _Step:
    """A traced step. Its effects are states after the user's: variables, then streams."""

    def __init__(
        self, scope: _LoopScope, starts: Sequence[Node], following: Sequence[Node], holds: Node
    ) -> None:
        assert scope.outer is not None
        self._outer, self._streams = scope.outer, list(scope.streams.values())
        self._assigned: list[Variable] = [scope.read[leaf] for leaf in scope.assigned]
        before = [scope.before(leaf) for leaf in scope.assigned]
        self._starts = [*starts, *before, *[x.start for x in self._streams]]
        after = [x.inputs[1] for x in scope.assigned.values()]
        numbers = [x.inner.number for x in self._streams]
        fixed = {
            start: scope.outer.value_of(scope.read[leaf])
            for leaf, start in scope.variables.items()
            if leaf not in scope.assigned
        }
        outputs = [*following, *after, *numbers, holds, *scope.drawn]
        self._outputs = without_versions(outputs, fixed)

    def captured(self) -> list[Node]:
        """Return what the step reads from outside of the loop."""
        return frontier(self._outputs, self._starts)

    def body(self, captured: Sequence[Node]) -> LoopBody:
        """Return the step as the body of a loop."""
        inner = [placeholder(x.shape, x.dtype) for x in captured]
        found = rebuilt(self._outputs, dict(zip(captured, inner, strict=True)))
        count = len(self._starts)
        following, holds, drawn = found[:count], found[count], found[count + 1 :]
        return LoopBody(self._starts, inner, following, holds, len(self._streams), drawn)

    def initial_effects(self) -> list[Node]:
        """Return the values of the assigned variables, and the numbers of the streams, before the
        loop."""
        variables = [self._outer.value_of(v) for v in self._assigned]
        return [*variables, *[x.outer.number for x in self._streams]]

    def continue_with(self, finals: Sequence[Node]) -> None:
        """Assign the variables, and continue the streams, with the final states of the loop."""
        count = len(self._assigned)
        if count:
            assign(list(zip(self._assigned, finals[:count], strict=True)))
        for stream, number in zip(self._streams, finals[count:], strict=True):
            stream.outer.move(number)
