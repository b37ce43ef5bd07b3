"""The program of a loop with a fixed number of steps, which run on the workers without the
controller.

The states of the loop and the arrays of collected values are targets of the program, computed in
place.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.dtypes import int64
from magmath.engine.evaluation.loop_rows import row_number, row_of, step_graph
from magmath.engine.evaluation.result_provenance import record_provenance
from magmath.engine.programs.program_modes import ProgramModes
from magmath.engine.remote_array import leaf_of, remote_array_of
from magmath.graph import Graph, Node, Shape, apply
from magmath.graph.graph import substituted
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout
from magmath.ops import elementwise as e
from magmath.ops.counted_loops import SCAN, ScanBody
from magmath.ops.creation import full
from magmath.ops.leaves import constant, input_leaf
from magmath.ops.redistribute import redistribute
from magmath.passes.loop_layouts import loop_layouts
from magmath.passes.subgraphs import subgraphs, with_shared_loops

if TYPE_CHECKING:
    from magmath.engine.programs.program_build import CompiledProgram
    from magmath.engine.programs.program_runs import ProgramRuns
    from magmath.passes.environment import Environment
    from magmath.program.instructions import Program

MAX_PROGRAMS = 64


class ProgramEngine(Protocol):
    """The attributes of the engine that loops use."""

    environment: Environment

    @property
    def modes(self) -> ProgramModes:
        """The modes of programs that are compiled now."""

    def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Return input leaves with the values of nodes."""

    def pending_graph(self, graph: Graph) -> Graph:
        """Return the graph with leaves in place of evaluated nodes."""

    def compile(self, graph: Graph) -> CompiledProgram:
        """Return the program of a graph."""

    @property
    def runs(self) -> ProgramRuns:
        """The runs of programs."""


@final
class LoopPrograms:
    """The programs of loops, by their bodies and the layouts of their arrays."""

    def __init__(self, engine: ProgramEngine) -> None:
        self._engine = engine
        self._programs: RecentlyUsed[Hashable, _LoopProgram] = RecentlyUsed(MAX_PROGRAMS)
        self.last: Program | None = None
        """The program of the loop that ran last."""

    def clear(self) -> None:
        """Drop all programs."""
        self._programs.clear()

    def results(self, loop: Node, inputs: Sequence[Node]) -> list[Node]:
        """Run a loop on leaves; return leaves with its results: the final states and the stacked
        collected values."""
        body, steps = loop.attributes["body"], loop.attributes["steps"]
        reverse = loop.attributes["reverse"]
        layouts = [x.layout for x in inputs]
        key = body, steps, reverse, tuple(layouts), self._engine.modes
        program = self._programs.find(key)
        if program is None:
            program = _LoopProgram(self._engine, body, steps, layouts, reverse=reverse)
            self._programs.store(key, program)
        self.last = program.program
        return program.run(inputs)

    def without_loops(self, outputs: Sequence[Node]) -> list[Node]:
        """Return expressions with leaves in place of the results of loops, which are run."""
        outputs = with_shared_loops(outputs)
        leaves: dict[Node, Node] = {}
        for part in subgraphs(outputs, ()):
            if part.loop is None:
                break
            needed = dict.fromkeys([*part.outputs, *part.loop.inputs])
            images = substituted(list(needed), leaves)
            leaves |= zip(needed, self._engine.evaluate(images), strict=True)
            results = self.results(part.loop, [leaves[x] for x in part.loop.inputs])
            leaves |= {x: results[x.attributes["index"]] for x in part.results}
        return substituted(outputs, leaves)

    def recorded_results(self, results: Sequence[Node]) -> list[Node]:
        """Return leaves with all results of a loop of evaluated arrays, from which gradients pass
        to its inputs."""
        loop = results[0].inputs[0]
        leaves = self.results(loop, [x.leaf_or_self for x in loop.inputs])
        order = [*dict.fromkeys(loop.inputs), loop, *results]
        record_provenance(dict(zip(results, leaves, strict=True)), order, ())
        return leaves


def has_counted_loop(nodes: Sequence[Node]) -> bool:
    """Return True if one of the nodes is a loop with a fixed number of steps."""
    return any(node.operation is SCAN for node in nodes)


@final
class _LoopProgram:
    """The program of all steps of a loop, for inputs with certain layouts.

    Several workers move the inputs to the layouts in which the steps are fastest. The states, the
    arrays that collect values, and the counter of the steps are updated in place (`_updated`).
    """

    def __init__(
        self,
        engine: ProgramEngine,
        body: ScanBody,
        steps: int,
        input_layouts: Sequence[Any],
        *,
        reverse: bool,
    ) -> None:
        self._engine, self._body, self._steps = engine, body, steps
        self._layouts = layouts = loop_layouts(body, steps, input_layouts, engine.environment)
        self._states = _leaves([x.shape for x in body.states], body.states, layouts.states)
        rows, stacked = [[(steps, *x.shape) for x in y] for y in (body.rows, body.collected)]
        self._rows = _leaves(rows, body.rows, layouts.rows)
        self._collectors = _leaves(stacked, body.collected, layouts.collected)
        shapes = [x.shape for x in body.captured]
        self._captured = _leaves(shapes, body.captured, layouts.captured)
        self._counter = counter = input_leaf((), int64, engine.environment.replicated(()), None)
        number = row_number(counter, steps, reverse=reverse)
        read = [row_of(x, number) for x in self._rows]
        outputs = body.applied(self._states, read, self._captured, number)
        following, values = outputs[: len(self._states)], outputs[len(self._states) :]
        self._updated = (*self._states, *self._collectors, counter)
        next_states = dict(zip(self._states, following, strict=True))
        collected = dict(zip(self._collectors, values, strict=True))
        self._graph = engine.pending_graph(step_graph(next_states, collected, counter, number))
        self._compiled = engine.compile(self._graph)

    @property
    def program(self) -> Program:
        """The program that the workers run."""
        return self._compiled.program

    def run(self, inputs: Sequence[Node]) -> list[Node]:
        """Return leaves with the final states and the collected values, for leaves of the loop's
        inputs."""
        values = dict(zip(self._updated, self._start(inputs), strict=True))
        _, scanned, captured = self._body.divided(inputs)
        for own_leaf, x in zip((*self._rows, *self._captured), (*scanned, *captured), strict=True):
            values[own_leaf] = self._moved(x, own_leaf)
        leaves, compiled = self._graph.leaves, self._compiled
        operands = [remote_array_of(values.get(leaves[i], leaves[i])) for i in compiled.inputs]
        del values
        scalars = [leaves[i].value for i in compiled.scalars]
        results, run = self._engine.runs.start(compiled, operands, scalars, steps=self._steps)
        run.values()  # Ctrl-C may stop the run at any step, so results exist after its end only
        return [leaf_of(data) for data in results[:-1]]  # the last one is the counter

    def _start(self, inputs: Sequence[Node]) -> list[Node]:
        """Return leaves of new arrays that the program updates."""
        states = self._body.divided(inputs)[0]
        initial = [apply(e.ASTYPE, x, dtype=x.dtype) for x in states]
        initial += [full(x.shape, constant(0, x.dtype)) for x in (*self._collectors, self._counter)]
        pairs = zip(initial, self._updated, strict=True)
        leaves = self._engine.evaluate(
            [redistribute(x, layout_of(own_leaf)) for x, own_leaf in pairs]
        )
        for leaf, own_leaf in zip(leaves, self._updated, strict=True):
            assert leaf.layout == own_leaf.layout, (leaf.layout, own_leaf.layout)
        return leaves

    def _moved(self, x: Node, own_leaf: Node) -> Node:
        """Return the leaf of an array in the layout that the program's own leaf has."""
        if x.layout == own_leaf.layout:
            return x
        (leaf,) = self._engine.evaluate([redistribute(x, layout_of(own_leaf))])
        assert leaf.layout == own_leaf.layout, (leaf.layout, own_leaf.layout)
        return leaf


def _leaves(shapes: Sequence[Shape], like: Sequence[Node], layouts: Sequence[Layout]) -> list[Node]:
    """Return leaves of these shapes and layouts, with the types of the nodes `like`."""
    rows = zip(shapes, like, layouts, strict=True)
    return [input_leaf(shape, x.dtype, layout, None) for shape, x, layout in rows]
