"""Compilation of a loop to one program: its body is traced once, and its steps run on the workers.

The states of the loop, the arrays in which it collects a value of each step, and the variables that
it assigns are targets of the program, computed in place. The provenance of the results stores the
structure of the body; gradients unroll the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from magmath.api.creation import asarray, zeros
from magmath.arrays.array import Array, copy_of
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.variable import overwrite
from magmath.core.dtypes import int64
from magmath.engine import session, tracing
from magmath.engine.remote_array import RemoteArray, leaf_of, remote_array_of
from magmath.engine.retained_expressions import keep_expression
from magmath.engine.tracing import Trace
from magmath.engine.user_line import user_line
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    make_node,
    set_provenance,
    set_value,
    topological,
    weak_operand,
)
from magmath.ops import elementwise as e
from magmath.ops.indexing.dynamic_slice import SET_WINDOW, WINDOW
from magmath.ops.leaves import constant, input_leaf
from magmath.transform.loop_provenance import LoopProvenance

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle

ROW: Mapping[str, Any] = MappingProxyType({"axes": (0,), "extents": (None,), "steps": (1,)})
Body = Callable[[Sequence[Array], Node], tuple[Sequence[Node], Sequence[Node]]]
"""States and step number → the next states, and values to collect."""


def row_of(x: Node, number: Node) -> Node:
    """Return a row of an array by its number, which may be computed at run time."""
    return make_node(WINDOW, (x, number), ROW, x.shape[1:], x.dtype, line=user_line())


def with_row(x: Node, number: Node, value: Node) -> Node:
    """Return an array with a value in place of a row, given by its number."""
    return make_node(SET_WINDOW, (x, value, number), ROW, x.shape, x.dtype, line=user_line())


def run_loop(
    name: str, states: Sequence[Array], lower: int, steps: int, body: Body, *, reverse: bool = False
) -> tuple[list[Array], list[Array]]:
    """Run a loop; return its final states and the collected values.

    The first step has the number `lower`. The arrays of collected values have a row for each step,
    in reverse order if `reverse`. `name` is the public name of the loop, for errors.
    """
    program = _LoopProgram(name, states, lower, steps, body, reverse)
    leaves = program.run()
    arrays = [Array(leaf) for leaf in leaves]
    return arrays[: len(states)], arrays[len(states) :]


@final
class _LoopProgram:
    """The program of a loop, compiled for the layouts of its states."""

    def __init__(
        self,
        name: str,
        states: Sequence[Array],
        lower: int,
        steps: int,
        body: Body,
        reverse: bool,
    ) -> None:
        self.engine = session.engine()
        self._lower, self._steps = lower, steps
        self._start = [state.node for state in states]  # as expressions, for gradients
        for node in self._start:
            keep_expression(node)
        evaluate(*states)
        copies = [*states, asarray(lower, dtype=int64)]
        self._data = [remote_array_of(copy_of(state).evaluated()) for state in copies]
        self._placeholders = [input_leaf(d.shape, d.dtype, d.layout, None) for d in self._data]
        *values, index = self._placeholders
        with tracing.tracing(Trace(step=index)) as self.trace:
            arrays = [Array(value) for value in values]
            following, collected = body(arrays, index)
        del arrays
        self.trace.check_updates(name)
        assigned = self.trace.assigned
        _evaluate_invariant([*following, *collected, *assigned.values()], self._placeholders)
        number = _last_first(index, 2 * lower + steps - 1) if reverse else index
        if lower:
            number = e.subtract(number, constant(lower, int64))
        rows = [self._collector(y, number) for y in collected]
        counted = e.add(index, constant(1, int64))
        traced = Graph(
            (*following, *rows, counted, *assigned.values()),
            (*values, *self._placeholders[len(values) + 1 :], index, *assigned),
        )
        self.graph = self.engine.cut(traced)
        self.compiled = self.engine.compile(self.graph)
        self._traced = Graph((*following, *collected, *assigned.values()))
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
        variables = [self.trace.read[leaf] for leaf in self.trace.assigned]
        numbers = self.trace.numbers_of_run(self._steps, self._lower)
        states = self._placeholders[: len(self._start)]
        unrollable = LoopProvenance(
            self._traced, states, self._placeholders[len(states)], list(self.trace.assigned),
            self._collected, range(self._lower, self._lower + self._steps), numbers,
            reverse=self._reverse,
        )  # fmt: skip
        operands = [*map(weak_operand, self._start), *unrollable.captured(self.trace.read)]
        values: dict[Node, Any] = dict(zip(self._placeholders, self._data, strict=True))
        self._data = []
        values |= numbers

        def start() -> tuple[list[RemoteArray], RunHandle]:
            given = [
                values.get(x) or remote_array_of(x) for x in self._leaves(self.compiled.inputs)
            ]
            given_numbers = [values.get(x, x.value) for x in self._leaves(self.compiled.scalars)]
            return self.engine.start(self.compiled, given, given_numbers, steps=self._steps)

        made, run = overwrite(variables, start, is_fallible=self.compiled.is_fallible)
        run.values()
        line = user_line()
        leaves = [leaf_of(one) for one in made[:-1]]
        for output, leaf in enumerate(leaves):
            set_provenance(leaf, Provenance.of_loop(unrollable, output, operands, line))
        return leaves

    def _leaves(self, positions: Sequence[int]) -> list[Node]:
        return [self.graph.leaves[i] for i in positions]


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
    found = [
        node
        for node in order
        if node in read and node not in varying and node.value is None and node.inputs
        and node.dtype.kind in ("float", "complex") and _reads_arrays(node)
    ]  # fmt: skip
    if found:
        for node, leaf in zip(found, session.engine().evaluate(found), strict=True):
            keep_expression(node)
            set_value(node, leaf)


def _reads_arrays(node: Node) -> bool:
    """Return True if an expression reads an evaluated array."""
    return any(x.name == "input" or (x.inputs and x.value) for x in topological((node,), cut=True))


def _last_first(index: Node, total: int) -> Node:
    return e.subtract(constant(total, int64), index)
