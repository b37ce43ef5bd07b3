"""Executors of a program's steps, and the selection of the fastest.

The executors are bound calls, one native function, segments, and, if one worker has several
threads, a team of them (`executor/thread_team.py`). All work on the same memory and leave it in the
same state, so the steps of one run can change between them. Native code is compiled in the
background.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, final

import numpy as np

from magmath.errors import WorkerLost
from magmath.executor.bind import Binding
from magmath.executor.call_list import CallList
from magmath.executor.context import Context
from magmath.executor.failure_report import take_errors
from magmath.executor.fastest_selector import CandidateExecutor, FastestSelector
from magmath.executor.native_forms import NativeForms
from magmath.executor.native_segments import NativeSegments
from magmath.executor.native_source import NativeSource
from magmath.kernels.thread_count import single_threaded

if TYPE_CHECKING:
    from magmath.executor.native_build import NativeBuild


class Executor(CandidateExecutor):
    """Executes the steps of a program on bound arrays."""

    @abstractmethod
    def start(self) -> None:
        """Prepare a run: execute the prologue, which its steps share."""

    @abstractmethod
    def run(self, steps: int) -> list[float]:
        """Execute some steps; return the scalars that they emit."""


@final
class Replay(Executor):
    """Bound calls, one after the other."""

    name = "replay"

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def is_ready(self) -> bool:
        return True

    def start(self) -> None:
        self._binding.run_prologue()

    def run(self, steps: int) -> list[float]:
        return self._binding.replay(steps, self._binding.step)

    def close(self) -> None:
        pass


@final
class NativeLoop(Executor):
    """One compiled function for the whole loop; the prologue is replayed."""

    name = "native"

    def __init__(self, source: NativeSource, context: Context, binding: Binding) -> None:
        from magmath.executor.native_build import NativeBuild

        self._binding = binding
        self._source = source
        self._context = context
        self._build: NativeBuild = NativeBuild(source.source)
        comm = context.comm
        self._flags = comm.flags if comm.shares_memory else np.zeros(1, dtype=np.uint64)
        first = [0, self._flags.ctypes.data, comm.rank, comm.size, 0]
        self._words = np.array([*first, *source.addresses(binding.tensors)], dtype=np.int64)

    def is_ready(self) -> bool:
        return self._build.function() is not None

    def error(self) -> str:
        """Return the compiler's error if it has failed, otherwise an empty string."""
        return self._build.error()

    def start(self) -> None:
        self._binding.run_prologue()

    def run(self, steps: int) -> list[float]:
        function = self._build.function()
        assert function is not None
        emitted = np.empty((steps, max(self._source.emits, 1)), dtype=np.float64)
        self._words[0], self._words[4] = steps, emitted.ctypes.data
        status = function(self._words.ctypes.data)
        if status:
            raise WorkerLost("another worker failed in the middle of a step")
        for segment in self._source.segments:
            self._context.failures.errors += take_errors(segment.reports)
        values: list[float] = emitted[:, : self._source.emits].reshape(-1).tolist()
        return values

    def close(self) -> None:
        self._build.close()


@final
class Segmented(Executor):
    """Compiled functions for the runs of instructions that have a native form, and bound calls for
    the others; a worker without native forms replays."""

    name = "segments"

    def __init__(self, segments: NativeSegments | None, binding: Binding) -> None:
        self._binding = binding
        self._segments = segments
        self._calls: CallList | None = None

    def is_ready(self) -> bool:
        return self._segments is None or self._segments.is_ready()

    def start(self) -> None:
        self._binding.run_prologue()

    def run(self, steps: int) -> list[float]:
        binding = self._binding
        if self._calls is None:
            segments = {} if self._segments is None else self._segments.bind(binding.tensors)
            self._calls = binding.with_segments(segments)
        return binding.replay(steps, self._calls)

    def close(self) -> None:
        pass


@final
class ExecutorSelector(FastestSelector[Executor]):
    """Executes a run's steps by the fastest executor so far."""

    _started: set[int]

    def start(self) -> None:
        """Begin a run."""
        self._started = set()

    def run(self, steps: int) -> list[float]:
        """Execute some steps."""
        try:
            return self._run(steps)
        except BaseException:
            self._current = 0  # a team that has failed cannot execute other steps
            raise

    def _run(self, steps: int) -> list[float]:
        executor = self.current
        if self._current not in self._started:
            executor.start()
            self._started.add(self._current)
        if all(self._ready):
            return executor.run(steps)
        with single_threaded():  # the compiler uses the other processors until it ends
            return executor.run(steps)


def native_executors(binding: Binding, context: Context, forms: NativeForms) -> list[Executor]:
    """Return one native function for the loop if every worker can write it, otherwise native
    segments if any worker has some.

    In deterministic mode, only segments are used, with instructions that give the bits of the
    kernels.
    """
    if not context.native:
        return []
    if not context.deterministic:
        loop = forms.loop(binding)
        if not context.comm.allreduce_max(int(loop is None)):
            assert loop is not None
            return [NativeLoop(loop, context, binding)]
    segments = forms.segments(binding)
    if not context.comm.allreduce_max(int(segments is not None)):
        return []
    return [Segmented(segments, binding)]
