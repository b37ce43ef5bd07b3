"""Two ways to execute a program's steps, ready calls and one native function, and the faster one.

Both work on the same memory and leave it in the same state, so the steps of one run can change
between them. The native function is compiled in the background; when every worker has it, both are
timed on the steps at hand and the faster goes on. Nothing waits for a compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from magmath.errors import WorkerLost
from magmath.program.bind import Binding
from magmath.program.instructions import Program
from magmath.program.native import NativeSource, write

if TYPE_CHECKING:
    from magmath.program.execute import Context
    from magmath.program.native_build import Build, Native

TRIALS = 3  # chunks of each kind that are timed before one is chosen


class Chooser:
    """Replays the steps of a binding by the better of two executors."""

    def __init__(self, program: Program, context: Context, binding: Binding) -> None:
        self._context = context
        self._binding = binding
        self._source: NativeSource | None = None
        self._build: Build | None = None
        self._function: Native | None = None
        self._paces: dict[str, list[float]] = {"replay": [], "native": []}
        self.executor = "replay"
        self._decided = not context.native or context.deterministic
        if not self._decided:
            self._prepare(program)

    def _prepare(self, program: Program) -> None:
        self._source = write(program, self._binding.tensors)
        if self._context.comm.agree(int(self._source is None)):
            self._decided = True  # some worker cannot: all replay
            return
        from magmath.program.native_build import Build

        assert self._source is not None
        self._build = Build(self._source.source)

    def replay(self, steps: int) -> list[float]:
        """Run some steps; the scalars they emit."""
        if self.executor == "replay":
            return self._binding.replay(steps)
        assert self._function is not None and self._source is not None
        source, comm = self._source, self._context.comm
        emitted = np.empty((steps, max(source.emits, 1)), dtype=np.float64)
        flags = comm.flags if comm.shares_memory else np.zeros(1, dtype=np.uint64)
        status = self._function(
            steps, flags, comm.rank, comm.size, emitted, source.offsets, *source.arrays
        )
        if status:
            raise WorkerLost("another worker failed in the middle of a step")
        values: list[float] = emitted[:, : source.emits].reshape(-1).tolist()
        return values

    def note(self, pace: float) -> None:
        """Take the seconds a step of the chunk just run, and choose how the next one is run.

        Called by every worker after each chunk; all change together, as worker 0's clock says.
        """
        if self._decided:
            return
        self._paces[self.executor].append(pace)
        comm = self._context.comm
        if self._function is None:
            assert self._build is not None
            self._function = self._build.function()
            if comm.agree(int(self._function is None)):
                self._function = None if comm.size > 1 else self._function
                return
            self.executor = "native"
        elif len(self._paces["native"]) >= TRIALS + 1:
            slower = min(self._paces["native"][1:]) > min(self._paces["replay"])
            self.executor = "replay" if comm.agree(int(slower and comm.rank == 0)) else "native"
            self._decided = True

    def close(self) -> None:
        """Stop a compilation that is under way."""
        if self._build is not None:
            self._build.close()
