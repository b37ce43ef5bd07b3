"""The ways to execute a program's steps, and the fastest of them.

Ready calls, one native function, and, where one worker has several threads, a team of them: all
work on the same memory and leave it in the same state, so one run's steps can change between them.
Native code is compiled in the background; when every worker has it, it is timed on the steps at
hand, and the fastest way goes on. Nothing waits for a compiler.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

import numpy as np

from magmath.errors import WorkerLost
from magmath.executor.bind import Binding, Calls
from magmath.executor.context import Context
from magmath.executor.native import NativeSource, write_loop, write_segments
from magmath.executor.segments import Segments
from magmath.kernels.threads import single_threaded

if TYPE_CHECKING:
    from magmath.codegen.background_build import BackgroundBuild

TRIALS = 3  # chunks by which a way is judged, after one to warm up
RECHECK = 40  # chunks after which the others are judged again; then twice as many, and so on
HOPELESS = 2.0  # times slower than the fastest: not judged again
# Seconds of steps before anything is compiled for them; "inf" compiles nothing.
WORTH_SECONDS = float(os.environ.get("MAGMATH_COMPILE_AFTER", "0.3"))


class Alternative(ABC):
    """A way to execute a program, among several whose speed is measured."""

    name: str

    @abstractmethod
    def ready(self) -> bool:
        """True once it can execute."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""


Kind = TypeVar("Kind", bound=Alternative)


class Executor(Alternative):
    """A way to execute the steps of a program on bound arrays."""

    @abstractmethod
    def start(self) -> None:
        """Prepare a run: what its steps have in common."""

    @abstractmethod
    def replay(self, steps: int) -> list[float]:
        """Execute some steps; the scalars they emit."""


@final
class Replay(Executor):
    """Ready calls, one after the other."""

    name = "replay"

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def ready(self) -> bool:
        return True

    def start(self) -> None:
        self._binding.start()

    def replay(self, steps: int) -> list[float]:
        return self._binding.replay(steps, self._binding.step)

    def close(self) -> None:
        pass


@final
class Native(Executor):
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

    def ready(self) -> bool:
        return self._build.function() is not None

    def error(self) -> str:
        """Why it will never be ready; empty as long as it may be."""
        return self._build.error()

    def start(self) -> None:
        self._binding.start()

    def replay(self, steps: int) -> list[float]:
        function = self._build.function()
        assert function is not None
        emitted = np.empty((steps, max(self._source.emits, 1)), dtype=np.float64)
        self._words[0], self._words[4] = steps, emitted.ctypes.data
        status = function(self._words.ctypes.data)
        if status:
            raise WorkerLost("another worker failed in the middle of a step")
        found = [fault.take() for faults in self._source.faults for fault in faults]
        self._context.failures += [error for error in found if error is not None]
        values: list[float] = emitted[:, : self._source.emits].reshape(-1).tolist()
        return values

    def close(self) -> None:
        self._build.close()


@final
class Segmented(Executor):
    """Compiled functions for the runs of instructions that have a native form, ready calls for the
    others; a worker on which no instruction has one replays."""

    name = "segments"

    def __init__(self, segments: Segments | None, binding: Binding) -> None:
        self._binding = binding
        self._segments = segments
        self._calls: Calls | None = None

    def ready(self) -> bool:
        return self._segments is None or self._segments.ready()

    def start(self) -> None:
        self._binding.start()

    def replay(self, steps: int) -> list[float]:
        binding = self._binding
        if self._calls is None:
            found = {} if self._segments is None else self._segments.bind(binding.tensors)
            self._calls = binding.with_segments(found)
        return binding.replay(steps, self._calls)

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()


class Workers(Protocol):
    """Those that decide together."""

    @property
    def rank(self) -> int:
        """The number of this worker."""

    def allreduce_max(self, value: int, /) -> int:
        """The largest of the workers' values."""


class Choice(Generic[Kind]):
    """The fastest alternative known so far; each is tried as it becomes ready.

    `others` makes the alternatives that need a compiler; it is asked once the first one has taken
    `patience` seconds, so that short runs compile nothing. What a `former` choice has learned of
    the same program on other arrays is believed until the new figures are in. The least of the
    last figures of an alternative counts, `history` of them.
    """

    def __init__(
        self,
        workers: Workers,
        first: Kind,
        others: Callable[[], list[Kind]],
        patience: float = WORTH_SECONDS,
        former: Choice[Kind] | None = None,
        history: int = TRIALS,
    ) -> None:
        self._comm = workers
        self._patience = patience
        self._history = history
        self._others: Callable[[], list[Kind]] | None = others
        self._executors = [first]
        self._known = {} if former is None else former._judged()
        self._paces: list[deque[float]] = []  # the latest of each way
        self._trials: list[int] = []
        self._current = 0
        self._ready: list[bool] = []
        self._chunks, self._recheck = 0, RECHECK
        self._spent, self._steps = 0.0, 0

    @property
    def executor(self) -> str:
        """The name of the alternative in use."""
        return self.current.name

    @property
    def current(self) -> Kind:
        """The alternative in use."""
        return self._executors[self._current]

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to choose from."""
        return self._others is None and len(self._executors) == 1

    @property
    def paces(self) -> dict[str, float]:
        """The best seconds a step of each way that was timed."""
        timed = zip(self._executors, self._paces, strict=False)
        return {e.name: min(paces) for e, paces in timed if paces}

    def note(self, seconds: float, steps: int) -> None:
        """Take the seconds that the steps just run have taken, and choose the way of the next ones.

        Called by every worker after each chunk; all change together, as worker 0's clock says.
        """
        if self._others is not None:
            self._spent += seconds
            self._steps += steps
            if not self._comm.allreduce_max(
                int(self._comm.rank == 0 and self._spent > self._patience)
            ):
                return
            self._executors += self._others()
            self._others = None
            known = [self._known.get(e.name, ()) for e in self._executors]
            self._paces = [deque(paces, maxlen=self._history) for paces in known]
            self._trials = [TRIALS + 1 if paces else 0 for paces in known]
            self._paces[0].append(self._spent / self._steps)
        else:
            self._trials[self._current] += 1
            if self._trials[self._current] > 1:  # the first chunk warms up
                self._paces[self._current].append(seconds / steps)
        if len(self._executors) > 1:
            ready = [not self._comm.allreduce_max(int(not e.ready())) for e in self._executors]
            self._reconsider(ready)
            self._current = self._comm.allreduce_max(
                self._next(ready) if self._comm.rank == 0 else 0
            )

    def _reconsider(self, ready: list[bool]) -> None:
        """Have ways judged again whose figures may no longer hold.

        Figures are too high where a compiler was running beside; and a machine that was busy then
        may be calm now, so the others have another chance from time to time, ever more seldom.
        """
        self._chunks += 1
        if self._ready and ready != self._ready:
            judged = zip(self._paces, self._trials, strict=True)
            self._trials = [0 if paces else trials for paces, trials in judged]
        elif self._chunks == self._recheck:
            self._chunks, self._recheck = 0, 2 * self._recheck
            best = min((min(paces) for paces in self._paces if paces), default=0.0)
            for i, paces in enumerate(self._paces):
                if i != self._current and paces and min(paces) < HOPELESS * best:
                    self._trials[i] = 0
        self._ready = ready

    def _judged(self) -> dict[str, deque[float]]:
        """The latest seconds a step of each way, by name; those of a former chooser where new."""
        timed = zip(self._executors, self._paces, strict=False)
        return self._known | {e.name: paces for e, paces in timed if paces}

    def _next(self, ready: list[bool]) -> int:
        """An executor that has not been judged yet, else the fastest by the latest figures.

        One that has become slow, because the machine is busy now, is left for the next best.
        """
        for i, trials in enumerate(self._trials):
            if ready[i] and trials <= TRIALS and (i > 0 or not any(ready[1:])):
                return i
        judged = [i for i, paces in enumerate(self._paces) if paces and ready[i]]
        return min(judged, key=lambda i: min(self._paces[i]), default=0)

    def close(self) -> None:
        """Stop compilations that are under way."""
        for executor in self._executors:
            executor.close()


@final
class ExecutorSelector(Choice[Executor]):
    """Executes a run's steps by the fastest way known so far."""

    _started: set[int]

    def start(self) -> None:
        """Begin a run."""
        self._started = set()

    def replay(self, steps: int) -> list[float]:
        """Execute some steps."""
        if self._current not in self._started:
            self._executors[self._current].start()
            self._started.add(self._current)
        if all(self._ready):
            return self._executors[self._current].replay(steps)
        with single_threaded():  # the other processors are the compiler's, which is soon done
            return self._executors[self._current].replay(steps)


def native_executors(binding: Binding, context: Context) -> list[Executor]:
    """One native function for the loop where every worker can write it, else native segments where
    any worker has some; in deterministic mode only segments that give the bits of the kernels."""
    if not context.native:
        return []
    program, tensors = binding.tensors.program, binding.tensors
    if not context.deterministic:
        loop = write_loop(program, tensors)
        if not context.comm.allreduce_max(int(loop is None)):
            assert loop is not None
            return [Native(loop, context, binding)]
    source = write_segments(program, tensors, exact=context.deterministic)
    if not context.comm.allreduce_max(int(source is not None)):
        return []
    segments = None if source is None else Segments(source, exact=context.deterministic)
    return [Segmented(segments, binding)]
