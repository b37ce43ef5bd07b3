"""Runs of a program on the progress thread, concurrently with the worker's own work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, final

from magmath.executor.bind import Binding, blocks_of
from magmath.executor.bindings import ArrayBlocks, Bindings
from magmath.executor.bound_calls import synchronization
from magmath.executor.context import Context, no_progress_thread
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program

if TYPE_CHECKING:
    from magmath.comm.progress_thread import ProgressThread, Task


@final
class ConcurrentRun:
    """Runs of a program that only moves data: kernels do not support two threads."""

    def __init__(self, program: Program, context: Context, progress_thread: ProgressThread) -> None:
        context = replace(
            context,
            comm=progress_thread.comm,
            progress_thread=no_progress_thread,
            temporaries=None,
        )
        self._bindings = Bindings(program, context, _ignore_dropped)
        self._synchronize = synchronization(program, context)
        self._progress_thread = progress_thread

    def start(self, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]) -> Task:
        """Let the progress thread run the program once. The arrays must not change until the task
        is done."""
        binding = self._bindings.find(blocks_of(inputs, outputs), inputs, outputs)
        binding.prepare()
        return self._progress_thread.submit(partial(self._run, binding))

    def _run(self, binding: Binding) -> None:
        self._synchronize()
        without_fp_warnings(binding.run_once, binding.step)
        self._synchronize()

    def close(self) -> None:
        """Free the memory."""
        self._bindings.close()


def _ignore_dropped(blocks: ArrayBlocks) -> None: ...
