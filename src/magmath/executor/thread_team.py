"""Runs a program on a team of threads of one worker; each thread acts as a worker of its own, which
is called a lane.

The program is planned a second time, for as many lanes as the worker has threads, all on the same
memory. The lanes share inputs and targets, each lane has a private part of the arena, and they
synchronise at barriers of a few hundred nanoseconds. One thread computes a small product faster
than two threads compute half of it each, so a team is faster than a BLAS that divides every
product.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar, final
from weakref import WeakSet

import torch

from magmath.comm.local_group import LocalGroup
from magmath.executor.bind import Binding, bind
from magmath.executor.context import Context
from magmath.executor.native import write_loop
from magmath.executor.select import Executor, Native
from magmath.kernels.denormals import flushed_here, is_flushing
from magmath.kernels.thread_count import single_threaded_blas
from magmath.memory.heap import Block, Heap
from magmath.memory.local_array import LocalArray
from magmath.program.arena import arrange
from magmath.program.instructions import Program

Result = TypeVar("Result")


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

    def leader(self, block: Block) -> torch.Tensor:
        """Return the memory that stores shared arrays."""
        return self.peer(block, 0)


@final
class Team(Executor):
    """Lanes that run the native form of a program in step."""

    name = "team"

    def __init__(
        self,
        program: Program,
        context: Context,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        parameters: Mapping[int, torch.Tensor],
    ) -> None:
        self._context = context
        self._group = LocalGroup(program.workers)
        self._threads = _threads(program.workers)
        _teams.add(self)
        arena = arrange(program)
        self._block = context.heap.allocate(arena.nbytes * program.workers, "a team's temporaries")
        memory = LaneMemory(context.heap, self._block, arena.nbytes)
        self._bindings: list[Binding] = []
        self._lanes: list[Native] = []
        for lane in range(program.workers):
            own = replace(context, comm=self._group.communicator(lane), lanes=memory)
            binding = bind(program, own, inputs, outputs, parameters, self._block, arena.offsets)
            source = write_loop(program, binding.tensors)
            self._bindings.append(binding)
            if source is not None:
                self._lanes.append(Native(source, own, binding))

    def forked(self) -> None:
        """Create new threads: a forked process has none of its parent's."""
        self._threads = _threads(self._group.size)

    @property
    def possible(self) -> bool:
        """True if every lane's program has a native form."""
        return len(self._lanes) == len(self._bindings)

    def ready(self) -> bool:
        return all(lane.ready() for lane in self._lanes)

    def error(self) -> str:
        """Return the compiler's error if it has failed, otherwise an empty string."""
        return next(filter(None, (lane.error() for lane in self._lanes)), "")

    def start(self) -> None:
        self._in_lanes([binding.start for binding in self._bindings])

    def replay(self, steps: int) -> list[float]:
        def work(lane: Native) -> Callable[[], list[float]]:
            return lambda: lane.replay(steps)

        with single_threaded_blas():
            return self._in_lanes([work(lane) for lane in self._lanes])

    def _in_lanes(self, work: Sequence[Callable[[], Result]]) -> Result:
        """Run one function in each lane; return the result of lane 0, which is this thread.

        The lanes treat denormal numbers as this thread does.
        """
        flush = is_flushing()

        def lane(function: Callable[[], Result]) -> Result:
            with flushed_here(flush):
                return self._guarded(function)

        others = [self._threads.submit(lane, function) for function in work[1:]]
        result = self._guarded(work[0])
        for other in others:
            other.result()
        return result

    def _guarded(self, function: Callable[[], Result]) -> Result:
        try:
            return function()
        except BaseException:
            self._group.abort()  # the other lanes stop waiting for this one
            raise

    def close(self) -> None:
        self._threads.shutdown()
        for lane in self._lanes:
            lane.close()
        self._context.heap.free(self._block)


def _threads(lanes: int) -> ThreadPoolExecutor:
    """Return threads for all lanes but the first, which is the caller's thread."""
    return ThreadPoolExecutor(lanes - 1, thread_name_prefix="lane")


_teams: WeakSet[Team] = WeakSet()


def _forked() -> None:
    for team in _teams:
        team.forked()


os.register_at_fork(after_in_child=_forked)
