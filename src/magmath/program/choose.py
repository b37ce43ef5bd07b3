"""The ways to execute a program's steps, and the fastest of them.

Ready calls, one native function, and, where one worker has several threads, a team of them: all
work on the same memory and leave it in the same state, so one run's steps can change between them.
Native code is compiled in the background; when every worker has it, it is timed on the steps at
hand, and the fastest way goes on. Nothing waits for a compiler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

import numpy as np

from magmath.errors import WorkerLost
from magmath.program.bind import Binding
from magmath.program.native import NativeSource, write

if TYPE_CHECKING:
    from magmath.program.execute import Context
    from magmath.program.native_build import Build

TRIALS = 3  # chunks by which a way is judged, after one to warm up


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
    """One compiled function for the whole loop. It continues what `Replay.start` has prepared."""

    name = "native"

    def __init__(self, source: NativeSource, context: Context) -> None:
        from magmath.program.native_build import Build

        self._source = source
        self._comm = context.comm
        self._build: Build = Build(source.source)

    def ready(self) -> bool:
        return self._build.function() is not None

    def start(self) -> None:
        pass

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
    """Executes a run's steps by the fastest way known so far, trying each as it becomes ready."""

    def __init__(self, context: Context, executors: list[Executor]) -> None:
        self._comm = context.comm
        self._executors = executors
        self._paces: list[list[float]] = [[] for _ in executors]
        self._current = 0
        self._decided = len(executors) == 1

    @property
    def executor(self) -> str:
        """The name of the way in use."""
        return self._executors[self._current].name

    @property
    def paces(self) -> dict[str, float]:
        """The best seconds a step of each way that was timed."""
        timed = zip(self._executors, self._paces, strict=True)
        return {e.name: min(paces[1:]) for e, paces in timed if len(paces) > 1}

    def start(self) -> None:
        """Begin a run."""
        for executor in self._executors:
            if executor.ready():
                executor.start()

    def replay(self, steps: int) -> list[float]:
        """Execute some steps."""
        return self._executors[self._current].replay(steps)

    def note(self, pace: float) -> None:
        """Take the seconds a step of the chunk just run, and choose the way of the next one.

        Called by every worker after each chunk; all change together, as worker 0's clock says.
        """
        if self._decided:
            return
        self._paces[self._current].append(pace)
        ready = [not self._comm.agree(int(not e.ready())) for e in self._executors]
        self._current = self._comm.agree(self._next(ready) if self._comm.rank == 0 else 0)
        self._decided = all(len(paces) > TRIALS for paces in self._paces)

    def _next(self, ready: list[bool]) -> int:
        for i, paces in enumerate(self._paces):
            if ready[i] and len(paces) <= TRIALS and (i > 0 or not any(ready[1:])):
                return i
        tried = [i for i, paces in enumerate(self._paces) if len(paces) > 1]
        return min(tried, key=lambda i: min(self._paces[i][1:]), default=0)

    def close(self) -> None:
        """Stop compilations that are under way."""
        for executor in self._executors:
            executor.close()


def choices(binding: Binding, context: Context) -> list[Executor]:
    """Replay, and the native function where every worker can write one."""
    found: list[Executor] = [Replay(binding)]
    if not context.native or context.deterministic:
        return found
    source = write(binding.tensors.program, binding.tensors)
    if not context.comm.agree(int(source is None)):
        assert source is not None
        found.append(Native(source, context))
    return found
