"""Tracing of loops in a compiled function: one step becomes the body of a node of the graph.

Everything that changes from step to step is a state of the loop: the user's value, the variables
that a step assigns, and the numbers of the random streams that it draws from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, final

from magmath.arrays.array import Array
from magmath.arrays.tree import Tree, unflatten
from magmath.arrays.variables.variable import Variable, assign
from magmath.core.dtypes import int64
from magmath.engine.traces.drawn_streams import Stream, StreamPosition, Streams
from magmath.engine.traces.tracing import Scope, VariableState, current, tracing
from magmath.engine.user_line import user_line
from magmath.errors import MagmathError
from magmath.graph import Node
from magmath.ops.counted_loops import ScanBody, is_short, scan_results
from magmath.ops.leaves import version
from magmath.ops.while_loops import LoopBody, final_states
from magmath.passes.subgraphs import without_versions
from magmath.transform.loop_states import LoopResults, StepFunction, checked_states
from magmath.transform.traced_function import closure_converted, placeholder

MIN_TRACED_STEPS: Final = 32
"""Loops of fewer steps are unrolled at once; of longer ones a step is traced, to see whether they
are short in operations."""


def trace_loop(
    holds: Callable[[Any], Node],
    body: Callable[[Any], Any],
    goes_on: Node,
    states: Sequence[Array],
    tree: Tree,
) -> Any:
    """Return the value of a traced function's `while_loop` after its last step.

    `holds` returns the truth value of a value as a node, `goes_on` is that of the initial one.
    Variables that a step assigns, and generators that it draws from, continue after the loop with
    its final states.
    """
    starts = [placeholder(x.shape, x.dtype) for x in states]
    with tracing(_LoopScope(can_loop=True)) as scope:
        value = unflatten(tree, [Array(x) for x in starts])
        following = checked_states("while_loop", body(value), tree, states)
        del value
        next_holds = holds(unflatten(tree, [Array(x) for x in following]))
    scope.check_effects("while_loop")
    step = _StepWithEffects(scope, starts, following, [next_holds, *scope.drawn])
    loop_body, captured = step.loop_body()
    initial = [*[x.node for x in states], *step.initial_effects()]
    finals = final_states(loop_body, goes_on, initial, captured, user_line())
    step.continue_with(finals[len(states) :])
    return unflatten(tree, [Array(x) for x in finals[: len(states)]])


def trace_scan(
    name: str,
    step_function: StepFunction,
    states: Sequence[Array],
    rows: Sequence[Array],
    steps: int,
    *,
    reverse: bool = False,
) -> LoopResults | None:
    """Return the results of a traced function's loop with a fixed number of steps.

    Returns None, and changes nothing, if the loop has to be unrolled: if it is short, if its body
    needs the value of the step number or of a state, or updates arrays that exist outside of it, or
    if the surrounding function becomes a part of a program.
    """
    trace = current()
    if trace is None or not trace.can_loop or steps < MIN_TRACED_STEPS:
        return None
    starts = [placeholder(x.shape, x.dtype) for x in states]
    read = [placeholder(x.shape[1:], x.dtype) for x in rows]
    number = placeholder((), int64)
    scope = _LoopScope()
    try:
        with tracing(scope):
            following, collected = step_function(
                [Array(x) for x in starts], [Array(x) for x in read], number
            )
        scope.check_effects(name)
    except Exception:  # unrolled, the body works, or raises an error that tells more
        with suppress(MagmathError):
            scope.check_effects(name)
        return None
    step = _StepWithEffects(scope, starts, following, [*collected, *scope.drawn])
    scanned, captured = step.scan_body(read, number, len(collected))
    if not scanned.is_plain:
        return None
    initial = [*[x.node for x in states], *step.initial_effects(), *[x.node for x in rows]]
    inputs = [*initial, *captured]
    results = scan_results(scanned, steps, inputs, user_line(), reverse=reverse)
    if not results or is_short(results[0].inputs[0]):
        return None
    count, state_count = len(scanned.states), len(states)
    step.continue_with(results[state_count:count])
    arrays = [Array(x) for x in results]
    return LoopResults(arrays[:state_count], arrays[count:])


@final
class _LoopScope(Scope):
    """The effects of one step: its variables and random streams begin as placeholders."""

    def __init__(self, *, can_loop: bool = False) -> None:
        super().__init__(can_loop=can_loop)
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

    @property
    def is_conditional(self) -> bool:
        return True

    def draw(self, generator: Streams) -> Stream:
        stream = self.draws_of(generator).next()
        self.drawn.append(stream.number)
        return stream

    def add_drawn(self, number: Node) -> None:
        self.drawn.append(number)

    def draws_of(self, generator: Streams) -> StreamPosition:
        if id(generator) not in self.streams:
            outer = super().draws_of(generator)
            self.streams[id(generator)] = _Stream(generator, outer)
        return self.streams[id(generator)].inner

    def add_moved(self, position: StreamPosition) -> None:
        """Do nothing: the streams of a step are its own."""


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
class _StepWithEffects:
    """A traced step. Its effects are states after the user's: variables, then streams.

    starts         the placeholders of the user's states
    following      the next values of these states
    other_outputs  its results that are no states
    """

    def __init__(
        self,
        scope: _LoopScope,
        starts: Sequence[Node],
        following: Sequence[Node],
        other_outputs: Sequence[Node],
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
        outputs = [*following, *after, *numbers, *other_outputs]
        self._outputs = without_versions(outputs, fixed)

    def loop_body(self) -> tuple[LoopBody, list[Node]]:
        """Return the step as the body of a `while_loop`, and what it reads from outside."""
        step, count = closure_converted(self._outputs, self._starts), len(self._starts)
        following, (holds, *drawn) = step.outputs[:count], step.outputs[count:]
        streams = len(self._streams)
        body = LoopBody(self._starts, step.placeholders, following, holds, streams, drawn)
        return body, step.captured

    def scan_body(
        self, rows: Sequence[Node], number: Node, collects: int
    ) -> tuple[ScanBody, list[Node]]:
        """Return the step as the body of a loop with a fixed number of steps, and what it reads
        from outside; the first of the other results are values to collect, so many."""
        step = closure_converted(self._outputs, [*self._starts, *rows, number])
        count = len(self._starts)
        following, other_results = step.outputs[:count], step.outputs[count:]
        collected, drawn = other_results[:collects], other_results[collects:]
        inner = step.placeholders
        body = ScanBody(self._starts, rows, inner, number, following, collected, drawn)
        return body, step.captured

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
            self._outer.add_moved(stream.outer)
