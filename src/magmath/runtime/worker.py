"""The worker: one device, its arrays and its programs, and one handler for each command.

A `Worker` does not know what carries its commands: direct calls within the controller's process,
queues between threads, or sockets. Every worker of a pool gets the same sequence of commands that
allocate, so the heap stays symmetric without talk. `python -m magmath.runtime.worker` is the
process that a launcher starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import msgspec
import torch

from magmath.comm import Communicator
from magmath.comm.courier import Courier
from magmath.core.dtypes import as_dtype
from magmath.core.resources import memory_share
from magmath.errors import WorkerError
from magmath.graph import Node
from magmath.layout import Layout
from magmath.memory.heap import Heap, PrivateSource, View, WindowSource
from magmath.memory.stored import Piece, Stored, piece
from magmath.program.instructions import Program, decode
from magmath.runtime import messages
from magmath.runtime.beside import MOST
from magmath.runtime.device import HOST, choose_device
from magmath.runtime.executable import Bind, Executable, Poll, bind_program
from magmath.runtime.failures import describe
from magmath.runtime.file import ArrayFile, transfer
from magmath.runtime.holdings import Holdings
from magmath.runtime.marks import Marks
from magmath.runtime.messages import Command, Failure, Number, Reply
from magmath.runtime.tiles import Frame, fill
from magmath.runtime.transport.base import Payload, WorkerOptions

_UNBOUNDED = 1 << 62

Answer = tuple[Reply, Frame | None]
Compute = Callable[[Sequence[Node], Sequence[Node], dict[Node, View]], list[Stored]]


@dataclass(slots=True)
class _Bound:
    program: Program
    executable: Executable
    results: list[Piece]  # its outputs


class Worker:
    """A device with its arrays and programs; `comm` reaches the other workers of the pool.

    Failures leave marks (`Marks`): the worker stays in step with the others, and what is computed
    from what has failed has failed.
    """

    def __init__(
        self, comm: Communicator, options: WorkerOptions, bind: Bind = bind_program
    ) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.options = options
        self.device = choose_device(options.device)
        windows = self.device.type == "cpu" and comm.shares_memory and comm.size > 1
        source = WindowSource(comm) if windows else PrivateSource(self.device, self.rank, comm.size)
        self.memory_bound = self._agreed_bound()
        self.heap = Heap(source, limit=self.memory_bound)
        self.holdings = Holdings(
            comm,
            self.heap,
            moves_beside=self.device.type == "cpu",
            sparing=options.memory_limit is not None,
        )
        self.poll: Callable[[messages.Long, int, list[float]], bool] = _never
        self.is_abandoned: Callable[[], bool] = bool
        """Between two instructions of a run: whether its results are not wanted any more."""
        self._bind = bind
        self._programs: dict[int, _Bound] = {}
        self._marks = Marks()
        self._handlers: dict[type, Callable[[Any, Any], Answer | None]] = {
            messages.Put: self._put,
            messages.Get: self._get,
            messages.Read: self._read,
            messages.Write: self._write,
            messages.Free: self._free,
            messages.Define: self._define,
            messages.Forget: self._forget,
            messages.Run: self._run,
            messages.Interrupt: self._nothing,
            messages.Resume: self._resume,
            messages.Stats: self._stats,
            messages.Stop: self._nothing,
        }

    def hello(self) -> messages.Hello:
        """What the worker says of itself when it is ready."""
        return messages.Hello(
            rank=self.rank,
            host=HOST,
            pid=os.getpid(),
            device=str(self.device),
            threads=torch.get_num_threads(),
            shares_memory=self.comm.shares_memory,
            memory_bound=self.memory_bound or 0,
        )

    def _agreed_bound(self) -> int | None:
        """The bytes that the arrays of a worker may take, the same on all: the user's limit, or
        the least share of a host's memory. None on a GPU, which refuses by itself."""
        own = self.options.memory_limit
        if own is None:
            on_cpu = self.device.type == "cpu"
            own = memory_share(self.comm.on_host) if on_cpu else _UNBOUNDED
        least = _UNBOUNDED - self.comm.agree(_UNBOUNDED - min(own, _UNBOUNDED))
        return None if least == _UNBOUNDED else least

    def handle(self, command: Command, payload: Payload) -> Answer | None:
        """Carry out a command; its reply, if it has one. Raises whatever goes wrong."""
        return self._handlers[type(command)](command, payload)

    def answer(self, command: Command, payload: Payload) -> Answer | None:
        """Carry out a command that came from afar; whatever goes wrong is its reply."""
        ticket = getattr(command, "ticket", 0)
        earlier = self._marks.earlier(command)
        if earlier is not None:
            earlier = msgspec.structs.replace(earlier, ticket=ticket, secondary=True)
            if not (earlier.in_step and isinstance(command, messages.Run)):
                self._give_up(command, earlier)
                return earlier, None
        try:
            answer = self.handle(command, payload)
        except Exception as error:
            failure = describe(error, ticket, self.rank, HOST)
            if failure.in_step and earlier is not None:
                failure = earlier
            self._give_up(command, failure)
            if not failure.in_step and not isinstance(command, messages.Alone):
                self._marks.halt(failure)
            return failure, None
        if earlier is None:
            return answer
        self._give_up(command, earlier)
        return earlier, None

    def compute(
        self,
        order: Sequence[Node],
        wanted: Sequence[Node],
        given: Mapping[Node, int],
        outputs: Sequence[int],
        released: Sequence[int],
    ) -> list[Stored]:
        """Compute `wanted` without a program; only for a controller in the same process."""
        if released:
            self.drop(released)
        views = {node: self.holdings.get(array).view for node, array in given.items()}
        made = self._compute(order, wanted, views)
        for output, array in zip(outputs, made, strict=True):
            self.holdings.add(output, array)
        return made

    @cached_property
    def _compute(self) -> Compute:
        from magmath.program.execute import Context  # loads the kernels: on first use
        from magmath.program.immediate import compute

        context = Context(self.comm, self.heap, self.device, self.options.deterministic)
        return partial(compute, context)

    def close(self) -> None:
        """Give back programs, arrays and the connection to the other workers. Collective."""
        self.holdings.close()
        for bound in self._programs.values():
            bound.executable.close()
        self._programs.clear()
        self.heap.close()
        self.comm.close()

    def _put(self, command: messages.Put, payload: Frame | None) -> Answer:
        stored = self._allocated(command)
        layout = stored.layout
        if layout.shared:  # its memory may be what a slower worker still computes in
            self.comm.barrier()
        try:
            if not layout.shared or self.rank == layout.mesh.workers[0]:  # one writes for all
                fill(stored.tensor, b"" if payload is None else payload)
        except BaseException:
            stored.free(self.heap)
            raise
        self.holdings.add(command.array, stored)
        if layout.shared:
            self.comm.barrier()
        return messages.Done(command.ticket), None

    def _allocated(self, command: messages.Put | messages.Read) -> Stored:
        """Memory for the array that a command makes."""
        layout = command.layout
        if not isinstance(layout, Layout):
            layout = Layout.decode(layout)
        return Stored.allocate(self.heap, layout, as_dtype(command.dtype), self.rank)

    def _get(self, command: messages.Get, payload: Payload) -> Answer:
        return messages.Tile(command.ticket), self.holdings.get(command.array).tensor

    def _read(self, command: messages.Read, payload: Payload) -> Answer:
        stored = self._allocated(command)
        self.holdings.add(command.array, stored)  # also where reading fails: heaps stay equal
        self._transfer(command, stored, writing=False)
        return messages.Done(command.ticket), None

    def _write(self, command: messages.Write, payload: Payload) -> Answer:
        self._transfer(command, self.holdings.get(command.array), writing=True)
        return messages.Done(command.ticket), None

    def _transfer(self, command: messages.Alone, stored: Stored, *, writing: bool) -> None:
        file = ArrayFile(command.path, command.place, f"worker {self.rank} on {HOST}")
        transfer(file, stored, self.rank, partial(self.poll, command), writing=writing)

    def _free(self, command: messages.Free, payload: Payload) -> None:
        self.drop(command.arrays)

    def drop(self, arrays: Sequence[int]) -> None:
        """Let go of arrays."""
        self._marks.forget_arrays(arrays)
        self.holdings.drop(arrays)

    def _define(self, command: messages.Define, payload: Payload) -> Answer:
        program = payload if isinstance(payload, Program) else decode(bytes(payload or b""))
        slots = [program.slots[output] for output in program.outputs]
        results = [piece(slot.layout, slot.dtype, self.rank) for slot in slots]
        self._programs[command.program] = _Bound(program, self._bind(program, self), results)
        return messages.Done(command.ticket), None

    def _forget(self, command: messages.Forget, payload: Payload) -> None:
        self._marks.forget_program(command.program)
        self.holdings.end_transfers(program=command.program)
        bound = self._programs.pop(command.program, None)
        if bound is not None:
            bound.executable.close()

    def run(
        self,
        program: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        parameters: Sequence[Number],
        steps: int = 1,
        poll: Poll | None = None,
    ) -> list[float]:
        """Run a program on arrays, named by their numbers; the scalars that its steps emit."""
        bound, given, made = self._taken_up(program, inputs, outputs)
        try:
            values = bound.executable.run(given, made, parameters, steps, poll)
        except BaseException:
            if bound.program.donated:  # what fails does so before anything is overwritten
                self.holdings.hand_back(bound.program, inputs, outputs)
            raise
        if self.holdings.beside is not None:
            self.holdings.beside.note_run()
        return values

    def ready(
        self, program: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """A call that runs a program again, from arrays into arrays that are there."""
        arrays = [[self.holdings.get(array) for array in names] for names in (inputs, outputs)]
        return self._programs[program].executable.ready(*arrays)

    def _taken_up(
        self, program: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[_Bound, list[Stored], list[Stored]]:
        """A program with the arrays that it reads and those that it will fill."""
        bound = self._programs.get(program)
        if bound is None:
            raise WorkerError(f"run names program {program}, which is not defined here")
        given = self.holdings.inputs(bound.program, inputs)
        made = self.holdings.outputs(bound.program, bound.results, inputs, outputs, given)
        return bound, given, made

    def _run(self, command: messages.Run, payload: Payload) -> Answer:
        numbers = messages.numbers(command.parameters)
        if command.timed:
            return self._timed(command, numbers), None
        if command.beside and (courier := self.holdings.courier()) is not None:
            self._start(command, courier)
            return self._ran(command, [], 1)
        stopped_at = command.steps

        def poll(steps: int, values: list[float]) -> bool:
            nonlocal stopped_at
            stop = self.poll(command, steps, values)
            if stop:
                stopped_at = steps
            return stop

        several = poll if command.steps > 1 else None
        values = self.run(
            command.program, command.inputs, command.outputs, numbers, command.steps, several
        )
        return self._ran(command, values, stopped_at)

    def _ran(self, command: messages.Run, values: list[float], steps: int) -> Answer:
        """The answer to a run: worker 0 says what came of it."""
        if self.rank == 0:
            return messages.Values(command.ticket, values, steps), None
        return messages.Done(command.ticket), None

    def _start(self, command: messages.Run, courier: Courier) -> None:
        """Let a program that only moves data run beside what follows."""
        bound, given, made = self._taken_up(command.program, command.inputs, command.outputs)
        beside = self.holdings.beside
        assert beside is not None
        self.holdings.end_transfers(most=MOST - 1)
        errand = bound.executable.start(given, made, courier)
        beside.add(errand, command.program, command.inputs, command.outputs)

    def _timed(self, command: messages.Run, numbers: Sequence[Number]) -> messages.Values:
        bound, given, made = self._taken_up(command.program, command.inputs, command.outputs)
        values, seconds = bound.executable.timed(given, made, numbers, command.steps)
        blocks = {stored.block for stored in (*given, *made)}
        memory = bound.executable.nbytes + sum(block.nbytes for block in blocks)
        return messages.Values(command.ticket, values, command.steps, seconds, memory)

    def _resume(self, command: messages.Resume, payload: Payload) -> None:
        self._marks.resume()

    def _stats(self, command: messages.Stats, payload: Payload) -> Answer:
        counters: dict[str, int | float | str] = {
            "rank": self.rank,
            "host": HOST,
            "pid": os.getpid(),
            "device": str(self.device),
            "arrays": len(self.holdings),
            "programs": len(self._programs),
        }
        if (beside := self.holdings.beside) is not None:
            counters |= {"beside": beside.begun, "meanwhile": beside.meanwhile}
        return messages.Counters(command.ticket, counters | self.heap.statistics()), None

    def _nothing(self, command: Command, payload: Payload) -> None:
        """Whoever carries the commands acts on this one."""

    def _give_up(self, command: Command, failure: Failure) -> None:
        """Mark what the command should have made with the failure."""
        if isinstance(command, messages.Run):
            bound = self._programs.get(command.program)
            if bound is not None:
                self.holdings.take_over(bound.program, command.inputs, command.outputs)
        self._marks.mark(command, failure)


def _never(command: messages.Long, steps: int, values: list[float]) -> bool:
    return False


if __name__ == "__main__":
    from magmath.runtime.process import main

    sys.exit(main())
