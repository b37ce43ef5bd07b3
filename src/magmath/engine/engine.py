"""The engine of one pool: it compiles graphs, runs programs and evaluates expressions.

Its parts are in the packages: `programs/` (programs and their runs), `eager/` (small arrays, which
this process computes), `evaluation/` (values of expressions) and `lifetimes/` (what is kept).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, final

from magmath.core.scoped_value import ScopedValue
from magmath.engine.array_sizes import SmallSizes
from magmath.engine.eager.eager_computation import EagerComputation
from magmath.engine.eager.gradient_calls import EagerGradients
from magmath.engine.evaluation.evaluator import Evaluator
from magmath.engine.evaluation.interpreter import Interpreter
from magmath.engine.evaluation.loop_runs import LoopPrograms
from magmath.engine.evaluation.redistributed_copies import RedistributedCopies
from magmath.engine.lifetimes.loop_parts import LoopParts
from magmath.engine.lifetimes.pending_memory import PendingMemory
from magmath.engine.lifetimes.redistribution_cache import RedistributionCache
from magmath.engine.programs.pending_graph import pending_graph
from magmath.engine.programs.program_build import CompiledProgram, environment_of
from magmath.engine.programs.program_modes import ProgramModes
from magmath.engine.programs.program_runs import ProgramRuns
from magmath.engine.programs.program_table import ProgramTable
from magmath.engine.programs.step_split import AsynchronousDivision
from magmath.engine.traces.stream_ranges import INITIAL_STREAMS
from magmath.engine.traces.stream_state import StreamState
from magmath.graph import Graph, Node
from magmath.passes.environment import Environment

if TYPE_CHECKING:
    from magmath.runtime.pool import Pool
    from magmath.runtime.run_handle import RunHandle


@final
class Engine:
    """The engine of one pool.

    runs                  the runs of programs: started and waited for
    evaluator             the values of expressions and of variables
    eager_computation     small arrays, computed at their line in this process
    eager_gradients       their gradients
    interpreter           small expressions, computed node by node by the worker in this process
    redistributed_copies  copies of arrays in other layouts
    redistribution_cache  the cache of these copies
    loops                 the programs of loops with a fixed number of steps
    pending_memory        the memory that pending expressions hold
    block_stream          the state of random numbers that replaces that of the pool in a block
    block_initial_stream  the state that replaces that of initial values of parameters in a block
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        environment = environment_of(pool)
        self.eager_computation = EagerComputation(pool, environment.replicated)
        self.eager_gradients = EagerGradients(self.eager_computation)
        self._stream_state = StreamState(pool.seed)
        self._initial_stream_state = StreamState(pool.seed, INITIAL_STREAMS)
        self.block_stream = ScopedValue[StreamState | None](None)
        self.block_initial_stream = ScopedValue[StreamState | None](None)
        self.redistribution_cache = RedistributionCache(pool.workers, pool.memory_limit)
        self.pending_memory = PendingMemory(self)
        self.runs = runs = ProgramRuns(pool, self.redistribution_cache, self.pending_memory)
        self._programs = programs = ProgramTable(pool, environment, self.redistribution_cache)
        self.interpreter = Interpreter(runs, deterministic=environment.deterministic)
        self.redistributed_copies = RedistributedCopies(programs, runs, self.redistribution_cache)
        self.loops = LoopPrograms(self)
        self.loop_parts = LoopParts()
        self.evaluator = Evaluator(
            programs,
            runs,
            self.redistributed_copies,
            self.eager_computation,
            self.interpreter,
            self.loops,
        )
        self.small_sizes = SmallSizes.of(pool)

    @property
    def stream_state(self) -> StreamState:
        """The state of random numbers in this thread."""
        return self.block_stream.value or self._stream_state

    @property
    def initial_stream_state(self) -> StreamState:
        """The state that draws initial values of parameters in this thread."""
        return self.block_initial_stream.value or self._initial_stream_state

    @property
    def environment(self) -> Environment:
        """What the passes know of the pool and its hardware."""
        return self._programs.environment

    @environment.setter
    def environment(self, environment: Environment) -> None:
        self._programs.environment = environment

    @property
    def small_sizes(self) -> SmallSizes:
        """The sizes of the largest arrays that are computed without a program."""
        return self._small_sizes

    @small_sizes.setter
    def small_sizes(self, sizes: SmallSizes) -> None:
        self._small_sizes = sizes
        self.interpreter.max_bytes = sizes.interpreted
        self.eager_computation.max_eager_bytes = sizes.eager if self.profiler is None else 0

    @property
    def profiler(self) -> Callable[[RunHandle], object] | None:
        """What receives each run after its end, or None. While there is one, programs compute small
        arrays too."""
        return self.runs.profiler

    @profiler.setter
    def profiler(self, profiler: Callable[[RunHandle], object] | None) -> None:
        self.runs.profiler = profiler
        self.small_sizes = self._small_sizes  # which arrays are eager depends on it

    def compile(
        self,
        graph: Graph,
        *,
        modes: ProgramModes | None = None,
        division: AsynchronousDivision | None = None,
        in_range: Collection[Node] = (),
        later: Collection[Node] = (),
    ) -> CompiledProgram:
        """Return the program of a graph whose leaves all have layouts; builds it on a miss.

        `modes`: by default those of the block (`in_modes`). `division`: each worker runs it on its
        own. `in_range`: leaves whose values are in range as indices. `later`: leaves
        whose arrays are not on the workers yet.
        """
        return self._programs.program_of(
            graph, modes=modes, division=division, in_range=in_range, later=later
        )

    @property
    def modes(self) -> ProgramModes:
        """The modes of the programs that this thread compiles now."""
        return self._programs.modes

    def in_modes(self, modes: ProgramModes) -> AbstractContextManager[object]:
        """Compile programs with these modes within a block of this thread."""
        return self._programs.in_modes(modes)

    def forget_programs(self) -> None:
        """Drop all programs, here and on the workers: expressions and functions that are compiled
        later are planned again. Those that were compiled before cannot run any more."""
        for memo in (self._programs, self.evaluator, self.loops):
            memo.clear()

    def pending_graph(self, graph: Graph) -> Graph:
        """Return the graph with leaves in place of evaluated nodes."""
        return pending_graph(graph)

    def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Return input leaves with the values of `nodes`.

        Raises TracingError for nodes that depend on arguments of a function that is being traced.
        """
        return self.evaluator.evaluate(nodes)
