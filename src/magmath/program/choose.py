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
from typing import TYPE_CHECKING, final

import numpy as np

from magmath.errors import WorkerLost
from magmath.program.bind import Binding
from magmath.program.native import NativeSource, write

if TYPE_CHECKING:
    from magmath.program.execute import Context
    from magmath.program.native_build import Build

TRIALS = 3  # chunks by which a way is judged, after one to warm up
# Seconds of steps before anything is compiled for them; "inf" compiles nothing.
WORTH_SECONDS = float(os.environ.get("MAGMATH_COMPILE_AFTER", "0.3"))


class Executor(ABC):
    """A way to execute the steps of a program on bound arrays."""

    name: str

    @abstractmethod
    def ready(self) -> bool:
        """True once it can execute."""

    @abstractmethod
    def start(self) -> None:
        """Prepare a run: what its steps have in common."""

    @abstractmethod
    def replay(self, steps: int) -> list[float]:
        """Execute some steps; the scalars they emit."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""


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
        return self._binding.replay(steps)

    def close(self) -> None:
        pass


@final
class Native(Executor):
    """One compiled function for the whole loop; the prologue is replayed."""

    name = "native"

    def __init__(self, source: NativeSource, context: Context, binding: Binding) -> None:
        from magmath.program.native_build import Build

        self._binding = binding
        self._source = source
        self._comm = context.comm
        self._build: Build = Build(source.source)

    def ready(self) -> bool:
        return self._build.function() is not None

    def start(self) -> None:
        self._binding.start()

    def replay(self, steps: int) -> list[float]:
        function = self._build.function()
        assert function is not None
        source, comm = self._source, self._comm
        emitted = np.empty((steps, max(source.emits, 1)), dtype=np.float64)
        flags = comm.flags if comm.shares_memory else np.zeros(1, dtype=np.uint64)
        status = function(
            steps, flags, comm.rank, comm.size, emitted, source.offsets, *source.arrays
        )
        if status:
            raise WorkerLost("another worker failed in the middle of a step")
        values: list[float] = emitted[:, : source.emits].reshape(-1).tolist()
        return values

    def close(self) -> None:
        self._build.close()


@final
class Chooser:
    """Executes a run's steps by the fastest way known so far, trying each as it becomes ready.

    `others` makes the ways that need a compiler; it is asked once the steps have taken `patience`
    seconds, so that short runs compile nothing.
    """

    def __init__(
        self,
        context: Context,
        replay: Executor,
        others: Callable[[], list[Executor]],
        patience: float = WORTH_SECONDS,
    ) -> None:
        self._comm = context.comm
        self._patience = patience
        self._others: Callable[[], list[Executor]] | None = others
        self._executors = [replay]
        self._paces: list[deque[float]] = []  # the latest of each way
        self._trials: list[int] = []
        self._current = 0
        self._started: set[int] = set()
        self._spent = 0.0

    @property
    def executor(self) -> str:
        """The name of the way in use."""
        return self._executors[self._current].name

    @property
    def paces(self) -> dict[str, float]:
        """The best seconds a step of each way that was timed."""
        timed = zip(self._executors, self._paces, strict=False)
        return {e.name: min(paces) for e, paces in timed if paces}

    def start(self) -> None:
        """Begin a run."""
        self._started.clear()

    def replay(self, steps: int) -> list[float]:
        """Execute some steps."""
        if self._current not in self._started:
            self._executors[self._current].start()
            self._started.add(self._current)
        return self._executors[self._current].replay(steps)

    def note(self, seconds: float, steps: int) -> None:
        """Take the seconds that the steps just run have taken, and choose the way of the next ones.

        Called by every worker after each chunk; all change together, as worker 0's clock says.
        """
        if self._others is not None:
            self._spent += seconds
            if self._comm.agree(int(self._comm.rank == 0 and self._spent > self._patience)):
                self._executors += self._others()
                self._paces = [deque(maxlen=TRIALS) for _ in self._executors]
                self._trials = [0 for _ in self._executors]
                self._others = None
        elif len(self._executors) > 1:
            self._trials[self._current] += 1
            if self._trials[self._current] > 1:  # the first chunk warms up
                self._paces[self._current].append(seconds / steps)
            ready = [not self._comm.agree(int(not e.ready())) for e in self._executors]
            self._current = self._comm.agree(self._next(ready) if self._comm.rank == 0 else 0)

    def _next(self, ready: list[bool]) -> int:
        """An executor that has not been judged yet, else the fastest by the latest figures.

        One that has become slow, because the machine is busy now, is left for the next best.
        """
        for i, trials in enumerate(self._trials):
            if ready[i] and trials <= TRIALS and (i > 0 or not any(ready[1:])):
                return i
        judged = [i for i, paces in enumerate(self._paces) if paces]
        return min(judged, key=lambda i: min(self._paces[i]), default=0)

    def close(self) -> None:
        """Stop compilations that are under way."""
        for executor in self._executors:
            executor.close()


def native_executors(binding: Binding, context: Context) -> list[Executor]:
    """The native function, where every worker can write one."""
    if not context.native or context.deterministic:
        return []
    source = write(binding.tensors.program, binding.tensors)
    if context.comm.agree(int(source is None)):
        return []
    assert source is not None
    return [Native(source, context, binding)]
