"""The programs of a training step: one, which runs many steps by one message.

A step that contains long loops has several (`train/divided_step.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, final

from magmath.arrays.variables.variable import Variable, overwrite
from magmath.engine import session
from magmath.engine.programs.program_build import CompiledProgram
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.engine.traces.tracing import Trace
from magmath.graph import Graph, Node
from magmath.optim.step_count import UnfinishedRun
from magmath.transform.subgraph_programs import RepeatedProgram

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation
    from magmath.runtime.run_handle import ProgressCallback, RunHandle

    Explain = Callable[[CompiledProgram, Sequence[Node], RunHandle | None], Explanation]
    """Explains a program, given the leaves of its graph and a run with measurements, or None."""


class StepPrograms(Protocol):
    """The programs of a traced step."""

    def run(
        self,
        data: Mapping[Node, Node],
        numbers: Mapping[Node, float],
        first: int,
        steps: int,
        progress: ProgressCallback | None,
    ) -> list[float]:
        """Run steps from number `first` on, on these operands and numbers; return the values that
        they emit, in order."""

    @property
    def completed(self) -> int:
        """The number of steps that the last run has taken, also if it was stopped or has failed; 0
        if it goes on."""

    @property
    def unfinished(self) -> UnfinishedRun | None:
        """The last run, if it goes on after Ctrl-C until the end of a step."""

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of a step, in order."""

    def explain(self, explain: Explain) -> Explanation:
        """Return the explanation of the programs of the last step."""


@final
class SingleProgram:
    """The program of a step without long loops.

    compiled   the program of the graph
    variables  the variables that it updates
    """

    def __init__(
        self, trace: Trace, graph: Graph, compiled: CompiledProgram, variables: Sequence[Variable]
    ) -> None:
        self.compiled = compiled
        self._trace, self._leaves, self._variables = trace, graph.leaves, variables
        self._last: RunHandle | None = None
        self._profiled: RunHandle | None = None

    def run(
        self,
        data: Mapping[Node, Node],
        numbers: Mapping[Node, float],
        first: int,
        steps: int,
        progress: ProgressCallback | None,
    ) -> list[float]:
        """Run the steps by one message."""
        self._last = None
        runs, compiled, leaves = session.engine().runs, self.compiled, self._leaves
        numbers = {**numbers, **self._trace.numbers_of_run(steps, first)}

        scalars = [leaves[i] for i in compiled.scalars]
        values = [numbers.get(leaf, leaf.value) for leaf in scalars]

        def start() -> tuple[list[RemoteArray], RunHandle]:
            arrays = [leaves[i] for i in compiled.inputs]
            inputs = [remote_array_of(data.get(leaf, leaf)) for leaf in arrays]
            started = runs.start(compiled, inputs, values, steps=steps, progress=progress)
            self._last = started[1]
            return started

        _, run = overwrite(self._variables, start, can_fail=compiled.can_fail(values))
        emitted = run.values()
        if run.timings:
            self._profiled = run
        return emitted

    @property
    def completed(self) -> int:
        """The number of steps that the last run has taken, also if it was stopped or has failed; 0
        if it goes on."""
        return 0 if self._last is None else self._last.taken_steps

    @property
    def unfinished(self) -> UnfinishedRun | None:
        """The last run, if it goes on after Ctrl-C until the end of a step."""
        return self._last if self._last is not None and self._last.is_pending else None

    def programs(self) -> list[RepeatedProgram]:
        """Return the program, which a step runs once."""
        return [RepeatedProgram(self.compiled.program, 1)]

    def explain(self, explain: Explain) -> Explanation:
        """Return the explanation of the program, with the measurements of the last profiled run."""
        return explain(self.compiled, self._leaves, self._profiled)
