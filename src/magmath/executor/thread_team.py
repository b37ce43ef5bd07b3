"""Runs a program on a team of threads of one worker; each thread acts as a worker of its own, which
is called a lane.

The program is planned a second time, for as many lanes as the worker has threads, all on the same
memory. The lanes share inputs and targets, each lane has a private part of the arena, and they
synchronize at barriers of a few hundred nanoseconds. One thread computes a small product faster
than two threads compute half of it each, so a team is faster than a BLAS that divides every
product. A lane executes native code as far as its program has some, and bound calls with one thread
otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, final
from weakref import WeakSet

import torch

from magmath.comm.local_group import LocalGroup
from magmath.core.resources import usable_memory
from magmath.errors import MemoryLimitError, WorkerLost
from magmath.executor.bind import Binding, bind
from magmath.executor.context import Context, no_progress_thread
from magmath.executor.native_forms import NativeForms
from magmath.executor.step_executors import Executor, NativeLoop, Segmented
from magmath.kernels.denormals import flushed_here, is_flushing
from magmath.kernels.thread_count import single_threaded
from magmath.memory.heap import Block, Heap
from magmath.memory.local_array import LocalArray
from magmath.program.arena import arrange
from magmath.program.instructions import Program

Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class LaneMemory:
    """The worker's heap as the lanes use it: one arena for each lane, all other blocks shared."""

    heap: Heap
    arena: Block | None
    nbytes: int

    def peer(self, block: Block, lane: int) -> torch.Tensor:
        """Return a block's memory; of the arena, the part of lane `lane`."""
        memory = self.heap.local(block)
        if block is not self.arena:
            return memory
        return memory[lane * self.nbytes : (lane + 1) * self.nbytes]

    def shared_memory_of(self, block: Block) -> torch.Tensor:
        """Return the memory in which a shared array is stored: that of the first lane."""
        return self.peer(block, 0)


MEMORY_SHARE = 8
"""The temporaries of all lanes, which are allocated in addition to those of the program for one
worker, need at most this fraction of the memory."""


@final
class Lanes:
    """The memory, the threads and the native forms of the lanes of a program, which its teams use
    in turn: there is a team for each set of arrays to which the program is bound."""

    def __init__(self, program: Program, context: Context) -> None:
        self.program, self.context = program, context
        self.arena = arrange(program)
        self.threads = _thread_pool(program.workers)
        self.forms = [NativeForms(exact=False) for _ in range(program.workers)]
        nbytes = self.arena.nbytes * program.workers
        self.block: Block | None = None
        """The temporaries of all lanes; None if they are too large."""
        if nbytes <= usable_memory() // MEMORY_SHARE:
            with suppress(MemoryLimitError):
                self.block = context.heap.allocate(nbytes, "the temporaries of a team")
        _all_lanes.add(self)

    def replace_threads(self) -> None:
        """Create new threads, in a forked process, which has none of its parent's."""
        self.threads = _thread_pool(self.program.workers)

    def close(self) -> None:
        """End the threads and compilations, and free the memory."""
        self.threads.shutdown()
        for forms in self.forms:
            forms.close()
        if self.block is not None:
            self.context.heap.free(self.block)


@final
class Team(Executor):
    """Lanes that execute a program on certain arrays, in step."""

    name = "team"

    def __init__(
        self,
        lanes: Lanes,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Mapping[int, torch.Tensor],
    ) -> None:
        self._shared, program, context = lanes, lanes.program, lanes.context
        self._group = LocalGroup(program.workers)
        memory = LaneMemory(context.heap, lanes.block, lanes.arena.nbytes)
        common = replace(context, lanes=memory, progress_thread=no_progress_thread)
        contexts = [
            replace(common, comm=self._group.communicator(lane)) for lane in range(program.workers)
        ]
        offsets = lanes.arena.offsets
        with single_threaded():  # kernels are chosen for one thread
            self._bindings = [
                bind(program, lane_context, inputs, outputs, scalars, lanes.block, offsets)
                for lane_context in contexts
            ]
        self._lanes = _executors(lanes.forms, contexts, self._bindings)
        self._failed = False  # lanes that have failed are not in step

    def is_ready(self) -> bool:
        return not self._failed and all(lane.is_ready() for lane in self._lanes)

    def error(self) -> str:
        """Return the compiler's error if it has failed, otherwise an empty string."""
        errors = [lane.error() for lane in self._lanes if isinstance(lane, NativeLoop)]
        return next(filter(None, errors), "")

    def start(self) -> None:
        with single_threaded():
            self._in_lanes([binding.run_prologue for binding in self._bindings])

    def run(self, steps: int) -> list[float]:
        with single_threaded():
            return self._in_lanes([partial(lane.run, steps) for lane in self._lanes])

    def _in_lanes(self, work: Sequence[Callable[[], Result]]) -> Result:
        """Run one function in each lane; return the result of lane 0, which is this thread.

        The lanes treat denormal numbers as this thread does.
        """
        flush = is_flushing()

        def lane(function: Callable[[], Result]) -> Result:
            with flushed_here(flush):
                return self._run_lane(function)

        threads = self._shared.threads
        futures = [threads.submit(lane, function) for function in work[1:]]
        errors: list[BaseException] = []
        try:
            result = self._run_lane(work[0])
        except BaseException as error:
            errors.append(error)
        errors += [failure for future in futures if (failure := future.exception()) is not None]
        if errors:  # the lanes that waited for the one that has failed have WorkerLost
            raise min(errors, key=lambda error: isinstance(error, WorkerLost))
        return result

    def _run_lane(self, function: Callable[[], Result]) -> Result:
        try:
            return function()
        except BaseException:
            self._failed = True
            self._group.abort()  # the other lanes stop waiting for this one
            raise

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()


def _executors(
    forms: Sequence[NativeForms], contexts: Sequence[Context], bindings: Sequence[Binding]
) -> list[Executor]:
    """Return the executors of the lanes: native code for the whole loop if every lane has it,
    otherwise for its segments."""
    pairs = list(zip(forms, bindings, strict=True))
    loops = [form.loop(binding) for form, binding in pairs]
    if None in loops:
        return [Segmented(form.segments(binding), binding) for form, binding in pairs]
    return [
        NativeLoop(loop, context, binding)
        for loop, context, binding in zip(loops, contexts, bindings, strict=True)
        if loop is not None
    ]


def _thread_pool(lanes: int) -> ThreadPoolExecutor:
    """Return threads for all lanes but the first, which is the caller's thread."""
    initializer = partial(torch.set_num_threads, 1)
    return ThreadPoolExecutor(lanes - 1, thread_name_prefix="lane", initializer=initializer)


_all_lanes: WeakSet[Lanes] = WeakSet()


def _replace_threads_of_fork() -> None:
    for lanes in _all_lanes:
        lanes.replace_threads()


os.register_at_fork(after_in_child=_replace_threads_of_fork)
