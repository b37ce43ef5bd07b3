"""Loops outside of compiled functions: the body is traced once, and its steps run at once, on the
workers.

A loop is a node of the graph, through which gradients pass, unless a step assigns variables, draws
random numbers, or contains marks whose gradients depend on the surrounding expression
(`ScanBody.is_plain`), such as a gradient. The program of such a loop has the variables among its
targets; the provenance of its results stores the structure of the body, and gradients unroll it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from magmath.api.creation import asarray, zeros
from magmath.arrays.array import Array, copy_of
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.variables.variable import overwrite
from magmath.core.dtypes import int64
from magmath.engine import session
from magmath.engine.evaluation.loop_rows import row_number, row_of, step_graph
from magmath.engine.lifetimes.kept_expressions import is_keeping_expressions, keep_expression
from magmath.engine.remote_array import RemoteArray, leaf_of, remote_array_of
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.engine.user_line import user_line
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    provenance_of,
    set_provenance,
    set_value,
    topological,
    weak_reference_to,
)
from magmath.graph.graph import substituted
from magmath.ops.counted_loops import ScanBody, scan_results
from magmath.ops.leaves import input_leaf
from magmath.transform.loop_provenance import LoopProvenance
from magmath.transform.loop_states import LoopResults, StepFunction
from magmath.transform.traced_function import closure_converted, placeholder

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle


def run_loop(
    name: str,
    step_function: StepFunction,
    states: Sequence[Array],
    rows: Sequence[Array],
    steps: int,
    *,
    reverse: bool = False,
) -> LoopResults:
    """Run a loop; return its results.

    A step reads a row of each array in `rows`; with `reverse` the last row comes first. `name` is
    the public name of the loop, for errors.
    """
    inputs = [x.node for x in (*states, *rows)]  # as expressions, for gradients
    step = _TracedLoopStep(name, step_function, states, rows)
    if step.trace.is_outdated:
        step = _TracedLoopStep(name, step_function, states, rows)
    results = step.results(inputs, steps, reverse=reverse)
    if results is not None and is_keeping_expressions():
        return _divided(results, len(states))  # one expression computes it with its gradient
    for node in inputs:
        keep_expression(node)
    evaluate(*states, *rows)
    if results is not None:
        leaves = _evaluate_recorded(results)
    else:
        leaves = _LoopProgram(step, inputs[: len(states)], rows, steps, reverse=reverse).run()
    return _divided(leaves, len(states))


def _divided(results: Sequence[Node], states: int) -> LoopResults:
    """Return the results of a loop with this number of states."""
    arrays = [Array(x) for x in results]
    return LoopResults(arrays[:states], arrays[states:])


def _evaluate_recorded(results: Sequence[Node]) -> list[Node]:
    """Return leaves with the results of a loop, from which gradients pass to its inputs."""
    _evaluate(results[0].inputs[0].inputs)
    leaves = session.engine().loops.recorded_results(results)
    for provenance in map(provenance_of, leaves):
        assert provenance is not None
        provenance.keep_arrays()
    return leaves


@final
class _TracedLoopStep:
    """The step of a loop, as expressions of placeholders."""

    def __init__(
        self,
        name: str,
        step_function: StepFunction,
        states: Sequence[Array],
        rows: Sequence[Array],
    ) -> None:
        self.states = [placeholder(x.shape, x.dtype) for x in states]
        self.rows = [placeholder(x.shape[1:], x.dtype) for x in rows]
        self.number = placeholder((), int64)
        with tracing.tracing(Trace(step=self.number)) as self.trace:
            read = [Array(x) for x in self.rows]
            values = [Array(x) for x in self.states]
            self.following, self.collected = step_function(values, read, self.number)
        del values, read
        self.trace.check_effects(name)

    def results(self, inputs: Sequence[Node], steps: int, *, reverse: bool) -> list[Node] | None:
        """Return the results of the loop as nodes of the graph; None if it cannot be one.

        `inputs` are the initial states and the arrays of rows.
        """
        trace = self.trace
        outputs = [*self.following, *self.collected]
        if trace.assigned or not (outputs and trace.is_same_in_each_run):
            return None
        step = closure_converted(outputs, [*self.states, *self.rows, self.number])
        following, collected = step.outputs[: len(self.states)], step.outputs[len(self.states) :]
        body = ScanBody(
            self.states, self.rows, step.placeholders, self.number, following, collected
        )
        if not body.is_plain:
            return None
        values = {leaf: variable.current_version for leaf, variable in trace.read.items()}
        captured = substituted(step.captured, values)
        return scan_results(body, steps, [*inputs, *captured], user_line(), reverse=reverse)


def _evaluate(nodes: Sequence[Node]) -> None:
    """Compute expressions once; gradients with respect to them go through their values."""
    pending = [x for x in dict.fromkeys(nodes) if x.value is None and not x.is_leaf]
    for node, leaf in zip(pending, session.engine().evaluate(pending), strict=True):
        keep_expression(node)
        set_value(node, leaf)


@final
class _LoopProgram:
    """A loop that cannot be a node of the graph, as a program for the layouts of its states."""

    def __init__(
        self,
        step: _TracedLoopStep,
        initial: Sequence[Node],
        rows: Sequence[Array],
        steps: int,
        *,
        reverse: bool,
    ) -> None:
        self._engine, self._trace = session.engine(), step.trace
        self._initial, self._steps, self._reverse = initial, steps, reverse
        self._data: dict[Node, RemoteArray] = {}
        """The arrays that the program updates, by its leaves."""
        self._states = [self._new_leaf(copy_of(Array(x))) for x in initial]
        self._counter = self._new_leaf(copy_of(asarray(0, dtype=int64)))
        number = row_number(self._counter, steps, reverse=reverse)
        images = dict(zip((*step.states, step.number), (*self._states, self._counter), strict=True))
        images |= {x: row_of(data.node, number) for x, data in zip(step.rows, rows, strict=True)}
        assigned = self._trace.assigned
        outputs = substituted([*step.following, *step.collected, *assigned.values()], images)
        _evaluate_invariant(outputs, [*self._data], step.number.sequence_number)
        count, last = len(initial), len(outputs) - len(assigned)
        following, collected, values = outputs[:count], outputs[count:last], outputs[last:]
        collectors = [self._new_leaf(zeros((steps, *x.shape), dtype=x.dtype)) for x in collected]
        self._assigned = list(assigned)
        graph = step_graph(
            dict(zip(self._states, following, strict=True)),
            dict(zip(collectors, collected, strict=True)),
            self._counter,
            number,
            dict(zip(assigned, values, strict=True)),
        )
        self._graph = self._engine.pending_graph(graph)
        self._compiled = self._engine.compile(self._graph)
        self._body = Graph(tuple(outputs))
        self._collected = [(x.shape, x.dtype) for x in collected]

    def _new_leaf(self, array: Array) -> Node:
        """Return a leaf for an array that the program updates, in the layout of its first value."""
        data = remote_array_of(array.evaluated_leaf())
        leaf = input_leaf(data.shape, data.dtype, data.layout, None)
        self._data[leaf] = data
        return leaf

    def run(self) -> list[Node]:
        """Run all steps; return the leaves of the states and of the collected values."""
        compiled = self._compiled
        for variable in self._trace.read.values():  # whose values gradients may read
            keep_expression(variable.current_version)
        variables = [self._trace.read[leaf] for leaf in self._assigned]
        numbers = self._trace.numbers_of_run(self._steps)
        unrollable = LoopProvenance(
            self._body, self._states, self._counter, self._assigned, self._collected,
            range(self._steps), numbers, reverse=self._reverse,
        )  # fmt: skip
        operands = [*map(weak_reference_to, self._initial), *unrollable.captured(self._trace.read)]
        values: dict[Node, Any] = {**self._data, **numbers}
        self._data = {}  # which would keep the arrays
        numbers_of_run = [values.get(x, x.value) for x in self._leaves(compiled.scalars)]

        def start() -> tuple[list[RemoteArray], RunHandle]:
            arrays = [values.get(x) or remote_array_of(x) for x in self._leaves(compiled.inputs)]
            return self._engine.runs.start(compiled, arrays, numbers_of_run, steps=self._steps)

        results, run = overwrite(variables, start, can_fail=compiled.can_fail(numbers_of_run))
        run.values()
        line = user_line()
        leaves = [leaf_of(data) for data in results[:-1]]  # the last one is the counter
        for output, leaf in enumerate(leaves):
            set_provenance(leaf, Provenance.of_loop(unrollable, output, operands, line))
        return leaves

    def _leaves(self, positions: Sequence[int]) -> list[Node]:
        return [self._graph.leaves[i] for i in positions]


def _evaluate_invariant(roots: Sequence[Node], updated: Sequence[Node], first: int) -> None:
    """Compute loop-invariant expressions of arrays, and those that are defined outside the loop:
    before this sequence number.

    They are computed once, and gradients with respect to them go through their values.
    """
    varying: set[Node] = set(updated)
    order = topological(roots, pending=True)
    for node in order:
        unknown = node.value is None and node.name in ("variable", "scalar")
        if node.name == "variable" or unknown or not varying.isdisjoint(node.inputs):
            varying.add(node)
    read = {source for node in order if node in varying for source in node.inputs}
    read.update(roots)
    invariant = [
        node
        for node in order
        if node in read and node not in varying and node.value is None and node.inputs
        and node.dtype.kind in ("float", "complex")
        and (node.sequence_number < first or _reads_arrays(node))
    ]  # fmt: skip
    _evaluate(invariant)


def _reads_arrays(node: Node) -> bool:
    """Return True if an expression reads an evaluated array."""
    return any(
        x.name == "input" or (x.inputs and x.value) for x in topological((node,), pending=True)
    )
