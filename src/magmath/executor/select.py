"""Alternative executors of a program's steps, and the selection of the fastest.

The alternatives are ready calls, one native function, segments, and, if one worker has several
threads, a team of them. All work on the same memory and leave it in the same state, so the steps of
one run can change between them. Native code is compiled in the background. When every worker has
it, it is timed on the current steps, and the fastest alternative continues. No run waits for a
compiler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

import numpy as np

from magmath.core.options import COMPILE_AFTER
from magmath.errors import WorkerLost
from magmath.executor.bind import Binding, Calls
from magmath.executor.context import Context
from magmath.executor.native_forms import NativeForms
from magmath.executor.native_segments import NativeSegments
from magmath.executor.native_source import NativeSource
from magmath.kernels.thread_count import single_threaded

if TYPE_CHECKING:
    from magmath.codegen.background_build import BackgroundBuild

TRIALS = 3  # timed chunks per alternative, after one to warm up
RECHECK = 40  # chunks before the others are timed again; the interval then doubles each time
RETRIAL_LIMIT = 2.0  # alternatives never within this factor of the fastest are not timed again
# Seconds of steps before anything is compiled for them; "inf" compiles nothing.
WORTH_SECONDS = float(COMPILE_AFTER.read())


class Alternative(ABC):
    """One of several executors of a program, of which the fastest is selected."""

    name: str

    @abstractmethod
    def is_ready(self) -> bool:
        """Return True once it can execute."""

    @abstractmethod
    def close(self) -> None:
        """Release its resources."""


AlternativeType = TypeVar("AlternativeType", bound=Alternative)


class Executor(Alternative):
    """Executes the steps of a program on bound arrays."""

    @abstractmethod
    def start(self) -> None:
        """Prepare a run: execute the prologue, which its steps share."""

    @abstractmethod
    def replay(self, steps: int) -> list[float]:
        """Execute some steps; return the scalars that they emit."""


@final
class Replay(Executor):
    """Ready calls, one after the other."""

    name = "replay"

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def is_ready(self) -> bool:
        return True

    def start(self) -> None:
        self._binding.run_prologue()

    def replay(self, steps: int) -> list[float]:
        return self._binding.replay(steps, self._binding.step)

    def close(self) -> None:
        pass


@final
class NativeAlternative(Executor):
    """One compiled function for the whole loop; the prologue is replayed."""

    name = "native"

    def __init__(self, source: NativeSource, context: Context, binding: Binding) -> None:
        from magmath.codegen.background_build import BackgroundBuild

        self._binding = binding
        self._source = source
        self._context = context
        self._build: BackgroundBuild = BackgroundBuild(source.source)
        comm = context.comm
        self._flags = comm.flags if comm.shares_memory else np.zeros(1, dtype=np.uint64)
        self._offsets = np.array(source.offsets or [0], dtype=np.int64)
        first = [0, self._flags.ctypes.data, comm.rank, comm.size, 0, self._offsets.ctypes.data]
        self._words = np.array([*first, *source.addresses(binding.tensors)], dtype=np.int64)

    def is_ready(self) -> bool:
        return self._build.function() is not None

    def error(self) -> str:
        """Return the compiler's error if it has failed, otherwise an empty string."""
        return self._build.error()

    def start(self) -> None:
        self._binding.run_prologue()

    def replay(self, steps: int) -> list[float]:
        function = self._build.function()
        assert function is not None
        emitted = np.empty((steps, max(self._source.emits, 1)), dtype=np.float64)
        self._words[0], self._words[4] = steps, emitted.ctypes.data
        status = function(self._words.ctypes.data)
        if status:
            raise WorkerLost("another worker failed in the middle of a step")
        found = [fault.take() for x in self._source.segments for fault in x.faults]
        self._context.failures += [error for error in found if error is not None]
        values: list[float] = emitted[:, : self._source.emits].reshape(-1).tolist()
        return values

    def close(self) -> None:
        self._build.close()


@final
class Segmented(Executor):
    """Compiled functions for the runs of instructions that have a native form, and ready calls for
    the others; a worker without native forms replays."""

    name = "segments"

    def __init__(self, segments: NativeSegments | None, binding: Binding) -> None:
        self._binding = binding
        self._segments = segments
        self._calls: Calls | None = None

    def is_ready(self) -> bool:
        return self._segments is None or self._segments.is_ready()

    def start(self) -> None:
        self._binding.run_prologue()

    def replay(self, steps: int) -> list[float]:
        binding = self._binding
        if self._calls is None:
            found = {} if self._segments is None else self._segments.bind(binding.tensors)
            self._calls = binding.with_segments(found)
        return binding.replay(steps, self._calls)

    def close(self) -> None:
        pass


class Workers(Protocol):
    """The workers that select collectively."""

    @property
    def rank(self) -> int:
        """The number of this worker."""

    def allreduce_max(self, value: int, /) -> int:
        """Return the largest of the workers' values."""


class FastestSelector(Generic[AlternativeType]):
    """Selects the fastest alternative so far; each is timed when it becomes ready.

    `others` creates the alternatives that need a compiler; it is called once the first one has
    taken `compile_after` seconds, so that short runs compile nothing. The times that a `former`
    choice has measured for the same program on other arrays are used until new times exist. An
    alternative counts by the least of its last `history` times.
    """

    def __init__(
        self,
        workers: Workers,
        first: AlternativeType,
        others: Callable[[], list[AlternativeType]],
        compile_after: float = WORTH_SECONDS,
        former: FastestSelector[AlternativeType] | None = None,
        history: int = TRIALS,
    ) -> None:
        self._comm = workers
        self._compile_after = compile_after
        self._history = history
        self._others: Callable[[], list[AlternativeType]] | None = others
        self._alternatives = [first]
        self._known = {} if former is None else former._latest_paces()
        self._paces: list[deque[float]] = []  # the latest times of each alternative
        self._least: list[float] = []  # the least time of each alternative so far
        self._trials: list[int] = []
        self._current = 0
        self._ready: list[bool] = []
        self._chunks, self._recheck = 0, RECHECK
        self._spent, self._steps = 0.0, 0

    @property
    def current_name(self) -> str:
        """The name of the alternative in use."""
        return self.current.name

    @property
    def current(self) -> AlternativeType:
        """The alternative in use."""
        return self._alternatives[self._current]

    @property
    def is_undecided(self) -> bool:
        """True if only the first alternative was used so far."""
        return self._others is not None

    @property
    def has_one_alternative(self) -> bool:
        """True if only one alternative exists."""
        return self._others is None and len(self._alternatives) == 1

    @property
    def paces(self) -> dict[str, float]:
        """The best seconds per step of each timed alternative."""
        timed = zip(self._alternatives, self._paces, strict=False)
        return {e.name: min(paces) for e, paces in timed if paces}

    def note(self, seconds: float, steps: int) -> None:
        """Record the seconds of the last steps, and select the alternative for the next ones.

        Every worker calls it after each chunk; all change at the same time, by the clock of worker
        0.
        """
        if self._others is not None:
            self._spent += seconds
            self._steps += steps
            if not self._comm.allreduce_max(
                int(self._comm.rank == 0 and self._spent > self._compile_after)
            ):
                return
            self._alternatives += self._others()
            self._others = None
            known = [self._known.get(e.name, ()) for e in self._alternatives]
            self._paces = [deque(paces, maxlen=self._history) for paces in known]
            self._trials = [TRIALS + 1 if paces else 0 for paces in known]
            self._paces[0].append(self._spent / self._steps)
            self._least = [min(paces, default=inf) for paces in self._paces]
        else:
            self._trials[self._current] += 1
            if self._trials[self._current] > 1:  # the first chunk warms up
                self._paces[self._current].append(seconds / steps)
                self._least[self._current] = min(self._least[self._current], seconds / steps)
        if len(self._alternatives) > 1:
            ready = [
                not self._comm.allreduce_max(int(not e.is_ready())) for e in self._alternatives
            ]
            self._reconsider(ready)
            following = self._comm.allreduce_max(self._next(ready) if self._comm.rank == 0 else 0)
            if following != self._current and self._trials[self._current] > TRIALS + 1:
                # The fastest has become slow, perhaps because the machine is busy: time the others
                # soon.
                self._chunks, self._recheck = 0, RECHECK
            self._current = following

    def _reconsider(self, ready: list[bool]) -> None:
        """Time alternatives again whose recorded times may be outdated.

        Times are too high while a compiler runs concurrently. A machine that was busy then may be
        idle now, so the other alternatives are timed again at increasing intervals.
        """
        self._chunks += 1
        if self._ready and ready != self._ready:
            timed = zip(self._paces, self._trials, strict=True)
            self._trials = [0 if paces else trials for paces, trials in timed]
        elif self._chunks == self._recheck:
            self._chunks, self._recheck = 0, 2 * self._recheck
            best = min((min(paces) for paces in self._paces if paces), default=0.0)
            for i, paces in enumerate(self._paces):
                if i != self._current and paces and self._least[i] < RETRIAL_LIMIT * best:
                    self._trials[i] = 0
        self._ready = ready

    def _latest_paces(self) -> dict[str, deque[float]]:
        """Return the latest seconds per step of each alternative, by name; those of the former
        choice where no new ones exist."""
        timed = zip(self._alternatives, self._paces, strict=False)
        return self._known | {e.name: paces for e, paces in timed if paces}

    def _next(self, ready: list[bool]) -> int:
        """Return an alternative that has not been timed yet, otherwise the fastest by the latest
        times.

        An alternative that becomes slow on a busy machine is replaced by the next best.
        """
        for i, trials in enumerate(self._trials):
            if ready[i] and trials <= TRIALS and (i > 0 or not any(ready[1:])):
                return i
        timed = [i for i, paces in enumerate(self._paces) if paces and ready[i]]
        return min(timed, key=lambda i: min(self._paces[i]), default=0)

    def close(self) -> None:
        """Stop running compilations."""
        for executor in self._alternatives:
            executor.close()


@final
class ExecutorSelector(FastestSelector[Executor]):
    """Executes a run's steps by the fastest executor so far."""

    _started: set[int]

    def start(self) -> None:
        """Begin a run."""
        self._started = set()

    def replay(self, steps: int) -> list[float]:
        """Execute some steps."""
        try:
            return self._replay(steps)
        except BaseException:
            self._current = 0  # a team that has failed cannot execute other steps
            raise

    def _replay(self, steps: int) -> list[float]:
        if self._current not in self._started:
            self._alternatives[self._current].start()
            self._started.add(self._current)
        if all(self._ready):
            return self._alternatives[self._current].replay(steps)
        with single_threaded():  # the compiler uses the other processors until it ends
            return self._alternatives[self._current].replay(steps)


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
            return [NativeAlternative(loop, context, binding)]
    segments = forms.segments(binding)
    if not context.comm.allreduce_max(int(segments is not None)):
        return []
    return [Segmented(segments, binding)]
