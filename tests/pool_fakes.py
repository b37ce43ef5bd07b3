"""A small substitute for the executor, with which tests of pools inject failures.

A fake program has one input and one output of the same layout. Each step adds 1 and emits the
number of the step; its operation determines further effects.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from magmath.comm.barrier import CODE
from magmath.comm.communicator import Communicator
from magmath.comm.futex_wait import DONE
from magmath.comm.shared_counters import set_counter, wait_for_counter
from magmath.core.cpu import CACHE_LINE
from magmath.core.dtypes import float32
from magmath.layout import Layout, Mesh
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Call, Program, Slot
from magmath.runtime.executable_program import ProgramWorker


def fake_program(
    operation: str,
    workers: int,
    shape: tuple[int, ...] = (6,),
    *,
    donate: bool = False,
    **attributes: Any,
) -> Program:
    """A program of one fake operation on an array that is split over all workers."""
    layout = Layout.even(shape, Mesh.line(workers), 0)
    slots = [Slot(shape, float32, layout, kind) for kind in ("input", "output")]
    call = Call(operation, attributes, (0,), 1)
    donated = {0: 0} if donate else {}
    return Program(slots, [call], [0], [1], [], donated, workers)


class FakeExecutable:
    """Runs a fake program.

    count                 nothing else
    sleep (seconds, ranks) every step takes so long, on these workers or on all of them
    wait                  every step waits for all workers in compiled code
    wait_for_counter      every step waits until all workers have counted it
    wait_in_duplicate     every step waits for all workers in a duplicate of the communicator
    fail (ranks)          these workers raise ValueError, or all of them where `ranks` is empty
    fail_and_wait (ranks) as fail, while the others wait in a barrier
    undefined             cannot be bound
    """

    def __init__(self, program: Program, worker: ProgramWorker) -> None:
        call = program.instructions[0]
        assert isinstance(call, Call)
        self._operation, self._attributes = call.operation, call.attributes
        self._comm = worker.comm
        if self._operation == "undefined":
            raise LookupError("no such operation")
        self._duplicate: Communicator | None = None
        if self._operation == "wait_in_duplicate":
            self._duplicate = self._comm.duplicate()
        self._counters: list[torch.Tensor] = []
        if self._operation == "wait_for_counter":
            self._counters = self._comm.shared_window(CACHE_LINE)
            self._counters[self._comm.rank].zero_()
            self._comm.barrier()

    def run(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        parameters: Sequence[Any],
        steps: int,
        poll: Callable[[int, list[float]], bool] | None,
    ) -> list[float]:
        """Run all steps, or as many as `poll` allows."""
        values: list[float] = []
        outputs[0].tensor.copy_(inputs[0].tensor)
        for step in range(1, steps + 1):
            self._misbehave(step)
            outputs[0].tensor.add_(1)
            values.append(float(step))
            if poll is not None and self._comm.allreduce_max(int(poll(step, [float(step)]))):
                break
        return values

    def run_timed(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        parameters: Sequence[Any],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """Run all steps; a fake program has no instructions whose seconds could be measured."""
        return self.run(inputs, outputs, parameters, steps, None), []

    def close(self) -> None:
        """Nothing is held."""

    def _misbehave(self, step: int) -> None:
        if self._operation == "sleep":
            if self._comm.rank in (self._attributes.get("ranks") or range(self._comm.size)):
                time.sleep(self._attributes["seconds"])
        elif self._operation == "stall":
            _wait_in_the_kernel(self._attributes["pipe"])
        elif self._operation == "wait":
            wait = CODE.function("wait")
            assert wait(self._comm.flags.ctypes.data, self._comm.rank, self._comm.size) == DONE
        elif self._operation == "wait_for_counter":
            addresses = [counter.data_ptr() for counter in self._counters]
            set_counter(addresses[self._comm.rank], 0, step)
            for address in addresses:
                wait_for_counter(self._comm.flags.ctypes.data, address, 0, step)
        elif self._duplicate is not None:
            self._duplicate.barrier()
        elif self._operation.startswith("fail"):
            ranks = self._attributes.get("ranks") or range(self._comm.size)
            if self._comm.rank in ranks:
                error = ValueError("this operation fails")
                error.user_line = "script.py:7"  # type: ignore[attr-defined]
                raise error
            if self._operation == "fail_and_wait":
                self._comm.barrier()


def _wait_in_the_kernel(pipe: str) -> None:
    """Wait as for a disk that does not answer, until another process opens a named pipe to write: a new
    process opens it to read before its program begins, and until then the kernel suspends this thread."""
    c = ctypes.CDLL(None)
    actions = ctypes.create_string_buffer(1024)
    c.posix_spawn_file_actions_init(actions)
    c.posix_spawn_file_actions_addopen(actions, 0, pipe.encode(), os.O_RDONLY, 0)
    child, words = ctypes.c_int(), (ctypes.c_char_p * 2)(b"true", None)
    assert c.posix_spawnp(ctypes.byref(child), b"true", actions, None, words, None) == 0
    os.waitpid(child.value, 0)
