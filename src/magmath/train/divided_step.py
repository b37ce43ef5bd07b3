"""Training steps that contain long loops: several programs, which the controller starts in order.

A step is divided at its loops, as a compiled function is (`transform/subgraph_programs.py`), so
planning takes the same time for loops of any number of steps. The last program updates the
variables in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.engine import session
from magmath.engine.programs.program_build import CompiledProgram
from magmath.engine.programs.program_modes import RESTORED_TRAINING
from magmath.engine.run_numbers import rollback_on_failure
from magmath.engine.traces.tracing import Trace
from magmath.graph import Graph, Node
from magmath.passes.expand import expand
from magmath.passes.subgraphs import without_versions
from magmath.transform.compiled import compile
from magmath.transform.subgraph_programs import RepeatedProgram, SubgraphPrograms

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation
    from magmath.runtime.run_handle import ProgressCallback
    from magmath.train.step_programs import Explain


@final
class DividedStep:
    """The programs of a traced step.

    trace   the variables and the random numbers of the step
    graph   its targets are variables; it emits numbers
    """

    def __init__(self, trace: Trace, graph: Graph) -> None:
        self._trace, self._graph, self._draws = trace, graph, trace.computed_draws
        variables = {leaf: leaf.value() for leaf in graph.leaves if leaf.name == "variable"}
        numbers = [draws.number for draws in self._draws]
        roots = without_versions([*graph.outputs, *graph.emitted, *numbers], {})
        count, self._emitted = len(graph.outputs), len(graph.emitted)
        targets = [variables[leaf] for leaf in graph.targets if leaf is not None]
        assigned = dict(zip(targets, roots[:count], strict=True))
        self._programs = SubgraphPrograms(roots[count:], (), compile, variables, assigned)
        self.completed = 0
        """The number of steps that the last run has taken, also if it was stopped or has failed."""
        self.unfinished: None = None  # each step is several runs, and counted when they are started

    def run(
        self,
        data: Mapping[Node, Node],
        numbers: Mapping[Node, float],
        first: int,
        steps: int,
        progress: ProgressCallback | None,
    ) -> list[float]:
        """Run the steps one after the other."""
        emitted: list[float] = []
        self.completed = 0
        for i in range(steps):
            values = self._run_step(data, numbers, first + i)
            emitted += values
            if progress is not None:
                progress(i + 1, values)
        return emitted

    def _run_step(
        self, data: Mapping[Node, Node], numbers: Mapping[Node, float], step: int
    ) -> list[float]:
        """Run the step of this number; return what it emits."""
        with session.engine().in_modes(RESTORED_TRAINING), rollback_on_failure():
            numbers = {**numbers, **self._trace.numbers_of_run(origin=step)}
            operands = {x: Array(leaf) for x, leaf in data.items()}
            operands |= {x: asarray(value, dtype=x.dtype) for x, value in numbers.items()}
            emitted = self._programs.run(operands, self._deliver)
        return [float(x) for x in emitted]

    def _deliver(self, outputs: list[Array]) -> list[Array]:
        """Advance the generators and count the step; return what it emits."""
        for draws, number in zip(self._draws, outputs[self._emitted :], strict=True):
            draws.generator.skip_for_run(int(number) - draws.generator.next)
        self.completed += 1
        return outputs[: self._emitted]

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of the last step, in order; before the first one, the program in
        which the loops are unrolled."""
        return self._programs.programs() or [RepeatedProgram(self._unrolled()[0].program, 1)]

    def explain(self, explain: Explain) -> Explanation:
        """Return the explanation of the same programs."""
        if self._programs.programs():
            return self._programs.explain()
        return explain(*self._unrolled(), None)

    def _unrolled(self) -> tuple[CompiledProgram, Sequence[Node]]:
        """Return the program of a step in which loops are unrolled, and the leaves of its graph."""
        engine = session.engine()
        graph = expand(engine.pending_graph(self._graph))  # the numbers of the loops are leaves
        return engine.compile(graph), graph.leaves
