"""Loops outside of compiled functions: the body is traced once, and its steps run at once, on the
workers.

A step that assigns no variables and draws no random numbers is the body of a node of the graph,
through which gradients pass. The program of another loop has the variables among its targets; the
provenance of its results stores the structure of the body, and gradients unroll it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from magmath.api.creation import asarray, zeros
from magmath.arrays.array import Array, copy_of
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.variables.variable import overwrite
from magmath.core.dtypes import int64
from magmath.engine import session
from magmath.engine.evaluation.loop_rows import next_counter, row_number, row_of, with_row
from magmath.engine.lifetimes.retained_expressions import keep_expression, keeps_expressions
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
    weak_operand,
)
from magmath.graph.provenance.rebuild import rebuilt
from magmath.ops.counted_loops import ScanBody, is_short, scan_results, unrolled
from magmath.ops.leaves import input_leaf
from magmath.passes.subgraphs import frontier
from magmath.transform.loop_provenance import LoopProvenance
from magmath.transform.traced_function import placeholder

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle

Body = Callable[[Sequence[Array], Sequence[Array], Node], tuple[Sequence[Node], Sequence[Node]]]
"""States, rows and the number of the step → the next states, and values to collect."""


def run_loop(
    name: str,
    states: Sequence[Array],
    rows: Sequence[Array],
    steps: int,
    body: Body,
    *,
    reverse: bool = False,
) -> tuple[list[Array], list[Array]]:
    """Run a loop; return its final states and the stacked collected values.

    A step reads a row of each array in `rows`; with `reverse` the last row comes first. `name` is
    the public name of the loop, for errors.
    """
    inputs = [x.node for x in (*states, *rows)]  # as expressions, for gradients
    step = _TracedStep(name, states, rows, body)
    results = step.results(inputs, steps, reverse=reverse)
    if results is not None and keeps_expressions():
        loop = results[0].inputs[0]  # one program computes it with its gradient
        arrays = [Array(x) for x in (unrolled(loop) if is_short(loop) else results)]
        return arrays[: len(states)], arrays[len(states) :]
    for node in inputs:
        keep_expression(node)
    evaluate(*states, *rows)
    if results is not None:
        leaves = _recorded(results)
    else:
        leaves = _EffectfulLoop(step, inputs[: len(states)], rows, steps, reverse=reverse).run()
    arrays = [Array(leaf) for leaf in leaves]
    return arrays[: len(states)], arrays[len(states) :]


def _recorded(results: Sequence[Node]) -> list[Node]:
    """Return leaves with the results of a loop, from which gradients pass to its inputs."""
    _evaluate(results[0].inputs[0].inputs)
    leaves = session.engine().loops.recorded_results(results)
    for provenance in map(provenance_of, leaves):
        assert provenance is not None
        provenance.keep_arrays()
    return leaves


@final
class _TracedStep:
    """The step of a loop, as expressions of placeholders."""

    def __init__(
        self, name: str, states: Sequence[Array], rows: Sequence[Array], body: Body
    ) -> None:
        self.states = [placeholder(x.shape, x.dtype) for x in states]
        self.rows = [placeholder(x.shape[1:], x.dtype) for x in rows]
        self.number = placeholder((), int64)
        with tracing.tracing(Trace(step=self.number)) as self.trace:
            read = [Array(x) for x in self.rows]
            values = [Array(x) for x in self.states]
            self.following, self.collected = body(values, read, self.number)
        del values, read
        self.trace.check_updates(name)

    def results(self, inputs: Sequence[Node], steps: int, *, reverse: bool) -> list[Node] | None:
        """Return the results of the loop as nodes of the graph; None if the step assigns variables
        or draws random numbers.

        `inputs` are the initial states and the arrays of rows.
        """
        trace = self.trace
        outputs = [*self.following, *self.collected]
        if trace.assigned or not (outputs and trace.is_same_in_each_run):
            return None
        starts = [*self.states, *self.rows, self.number]
        read = frontier(outputs, starts)
        inner = [placeholder(x.shape, x.dtype) for x in read]
        images = rebuilt(outputs, dict(zip(read, inner, strict=True)))
        following, collected = images[: len(self.states)], images[len(self.states) :]
        body = ScanBody(self.states, self.rows, inner, self.number, following, collected)
        if not body.is_plain:
            return None
        values = {leaf: variable.current_version for leaf, variable in trace.read.items()}
        captured = rebuilt(read, values)
        return scan_results(body, steps, [*inputs, *captured], user_line(), reverse=reverse)


def _evaluate(nodes: Sequence[Node]) -> None:
    """Compute expressions once; gradients with respect to them go through their values."""
    pending = [x for x in dict.fromkeys(nodes) if x.value is None and not x.is_leaf]
    for node, leaf in zip(pending, session.engine().evaluate(pending), strict=True):
        keep_expression(node)
        set_value(node, leaf)


@final
class _EffectfulLoop:
    """The program of a loop that assigns variables or draws random numbers, for the layouts of its
    states."""

    def __init__(
        self,
        step: _TracedStep,
        start: Sequence[Node],
        rows: Sequence[Array],
        steps: int,
        *,
        reverse: bool,
    ) -> None:
        self._engine, self._trace = session.engine(), step.trace
        self._start, self._steps = start, steps
        copies = [*map(Array, start), asarray(0, dtype=int64)]
        self._data = [remote_array_of(copy_of(x).evaluated()) for x in copies]
        self._placeholders = [input_leaf(d.shape, d.dtype, d.layout, None) for d in self._data]
        *self._states, self._counter = self._placeholders
        number = row_number(self._counter, steps, reverse=reverse)
        images = dict(zip((*step.states, step.number), self._placeholders, strict=True))
        images |= {x: row_of(of.node, number) for x, of in zip(step.rows, rows, strict=True)}
        assigned = self._trace.assigned
        outputs = rebuilt([*step.following, *step.collected, *assigned.values()], images)
        self._assigned = list(assigned)
        _evaluate_invariant(outputs, self._placeholders)
        count, last = len(start), len(outputs) - len(assigned)
        following, collected, values = outputs[:count], outputs[count:last], outputs[last:]
        written = [self._collector(y, number) for y in collected]
        traced = Graph(
            (*following, *written, next_counter(self._counter), *values),
            (*self._states, *self._placeholders[count + 1 :], self._counter, *assigned),
        )
        self._graph = self._engine.cut(traced)
        self._compiled = self._engine.compile(self._graph)
        self._traced = Graph(tuple(outputs))
        self._collected = [(y.shape, y.dtype) for y in collected]
        self._reverse = reverse

    def _collector(self, value: Node, number: Node) -> Node:
        """Return the array that collects a value of each step, with this step's row written."""
        values = zeros((self._steps, *value.shape), dtype=value.dtype)
        data = remote_array_of(values.evaluated())
        rows = input_leaf(data.shape, data.dtype, data.layout, None)
        self._data.append(data)
        self._placeholders.append(rows)
        return with_row(rows, number, value)

    def run(self) -> list[Node]:
        """Run all steps; return the leaves of the states and of the collected values."""
        compiled = self._compiled
        variables = [self._trace.read[leaf] for leaf in self._assigned]
        numbers = self._trace.numbers_of_run(self._steps)
        unrollable = LoopProvenance(
            self._traced, self._states, self._counter, self._assigned, self._collected,
            range(self._steps), numbers, reverse=self._reverse,
        )  # fmt: skip
        operands = [*map(weak_operand, self._start), *unrollable.captured(self._trace.read)]
        values: dict[Node, Any] = dict(zip(self._placeholders, self._data, strict=True))
        self._data = []
        values |= numbers

        def start() -> tuple[list[RemoteArray], RunHandle]:
            inputs, scalars = self._leaves(compiled.inputs), self._leaves(compiled.scalars)
            arrays = [values.get(x) or remote_array_of(x) for x in inputs]
            numbers_of_run = [values.get(x, x.value) for x in scalars]
            return self._engine.runs.start(compiled, arrays, numbers_of_run, steps=self._steps)

        results, run = overwrite(variables, start, is_fallible=compiled.is_fallible)
        run.values()
        line = user_line()
        leaves = [leaf_of(data) for data in results[:-1]]  # the last one is the counter
        for output, leaf in enumerate(leaves):
            set_provenance(leaf, Provenance.of_loop(unrollable, output, operands, line))
        return leaves

    def _leaves(self, positions: Sequence[int]) -> list[Node]:
        return [self._graph.leaves[i] for i in positions]


def _evaluate_invariant(roots: Sequence[Node], placeholders: Sequence[Node]) -> None:
    """Compute loop-invariant expressions of arrays, which may be defined outside the loop.

    They are computed once, and gradients with respect to them go through their values.
    """
    varying: set[Node] = set(placeholders)
    order = topological(roots, cut=True)
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
        and node.dtype.kind in ("float", "complex") and _reads_arrays(node)
    ]  # fmt: skip
    _evaluate(invariant)


def _reads_arrays(node: Node) -> bool:
    """Return True if an expression reads an evaluated array."""
    return any(x.name == "input" or (x.inputs and x.value) for x in topological((node,), cut=True))
