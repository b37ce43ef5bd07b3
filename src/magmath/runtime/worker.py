"""The worker: one device, its arrays and its programs, and one handler for each command.

A `Worker` does not know what carries its commands: direct calls within the controller's process,
queues between threads, or sockets. Every worker of a pool gets the same sequence of commands that
allocate, so the heap stays symmetric without talk. `python -m magmath.runtime.worker` is the
process that a launcher starts.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Protocol

import msgspec
import torch

from magmath.comm import Communicator
from magmath.comm.courier import Courier, Errand
from magmath.core.dtypes import as_dtype
from magmath.errors import DeviceError, WorkerError
from magmath.graph import Node
from magmath.layout import Layout
from magmath.memory.heap import Heap, PrivateSource, WindowSource
from magmath.memory.stored import Piece, Stored, piece
from magmath.program.instructions import Program, decode
from magmath.runtime import messages
from magmath.runtime.beside import MOST, Beside
from magmath.runtime.failures import describe
from magmath.runtime.file import ArrayFile, transfer
from magmath.runtime.messages import Command, Failure, Number, Reply
from magmath.runtime.tiles import Frame, fill
from magmath.runtime.transport.base import Payload, WorkerOptions

HOST: Final = socket.gethostname()

Poll = Callable[[int, list[float]], bool]
"""Called between the chunks of a run: steps done, and what they emitted; true asks it to stop."""

Answer = tuple[Reply, Frame | None]
Compute = Callable[[Sequence[Node], Sequence[Node], Callable[[Node], Stored]], list[Stored]]


class Executable(Protocol):
    """A program, bound to a worker."""

    def run(
        self,
        inputs: Sequence[Stored],
        outputs: Sequence[Stored],
        parameters: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Run the program `steps` times; the scalars that the steps emitted."""

    def ready(
        self, inputs: Sequence[Stored], outputs: Sequence[Stored]
    ) -> Callable[[Sequence[Number]], object]:
        """A call that runs the program once on these arrays, given its numbers."""

    def timed(
        self,
        inputs: Sequence[Stored],
        outputs: Sequence[Stored],
        parameters: Sequence[Number],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """The same, and the seconds that each instruction took in all steps together."""

    def start(
        self, inputs: Sequence[Stored], outputs: Sequence[Stored], courier: Courier
    ) -> Errand:
        """Have the courier run the program once, beside what this worker does meanwhile."""

    @property
    def nbytes(self) -> int:
        """The bytes that the binding holds."""

    def close(self) -> None:
        """Give back what the binding holds."""


Bind = Callable[[Program, "Worker"], Executable]


def bind_program(program: Program, worker: Worker) -> Executable:
    """The program as the executor runs it."""
    from magmath.program.execute import Context, Executable  # loads the kernels: on first use

    context = Context(
        worker.comm,
        worker.heap,
        worker.device,
        worker.options.deterministic,
        courier=worker.courier,
    )
    return Executable(program, context)


@dataclass(slots=True)
class _Bound:
    program: Program
    executable: Executable
    results: list[Piece]  # its outputs


class Worker:
    """A device with its arrays and programs; `comm` reaches the other workers of the pool.

    A failed command leaves the arrays that it should have made marked with its failure. Where a
    kernel has failed, on data that only this worker has perhaps, the worker has gone through the
    program all the same, and goes through every later one too, so that the others, which know
    nothing of it, meet it at each barrier; what is computed from marked arrays is marked. After any
    other failure no run is executed until the controller knows that all workers failed alike
    (`Resume`): a worker that went on alone would meet the others at the wrong barrier.
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
        self.heap = Heap(source, limit=options.memory_limit)
        self.arrays: dict[int, Stored] = {}
        self.poll: Callable[[messages.Long, int, list[float]], bool] = _never
        self._bind = bind
        self._programs: dict[int, _Bound] = {}
        self._failed_arrays: dict[int, Failure] = {}
        self._failed_programs: dict[int, Failure] = {}
        self._halted: Failure | None = None
        self._beside: Beside | None = None
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
        )

    def handle(self, command: Command, payload: Payload) -> Answer | None:
        """Carry out a command; its reply, if it has one. Raises whatever goes wrong."""
        return self._handlers[type(command)](command, payload)

    def answer(self, command: Command, payload: Payload) -> Answer | None:
        """Carry out a command that came from afar; whatever goes wrong is its reply."""
        ticket = getattr(command, "ticket", 0)
        earlier = self._earlier_failure(command)
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
                self._halted = failure
            return failure, None
        if earlier is None:
            return answer
        self._give_up(command, earlier)
        return earlier, None

    def compute(
        self,
        order: Sequence[Node],
        wanted: Sequence[Node],
        array_of: Callable[[Node], int],
        outputs: Sequence[int],
        released: Sequence[int],
    ) -> list[Stored]:
        """Compute `wanted` without a program; only for a controller in the same process."""

        def stored(leaf: Node) -> Stored:
            return self._stored(array_of(leaf))

        self.drop(released)
        made = self._compute(order, wanted, stored)
        self.arrays.update(zip(outputs, made, strict=True))
        return made

    @cached_property
    def _compute(self) -> Compute:
        from magmath.program.execute import Context  # loads the kernels: on first use
        from magmath.program.immediate import compute

        context = Context(self.comm, self.heap, self.device, self.options.deterministic)
        return partial(compute, context)

    def courier(self) -> Courier | None:
        """Who moves data beside this worker's own work; made when first asked for. Collective.

        None where there is nobody to exchange data with, or on a GPU, whose streams are not made to
        be used by two threads.
        """
        if self._beside is None and self.comm.size > 1 and self.device.type == "cpu":
            comm = self.comm.beside()
            self._beside = None if comm is None else Beside(Courier(comm))
        return None if self._beside is None else self._beside.courier

    def close(self) -> None:
        """Give back programs, arrays and the connection to the other workers. Collective."""
        if self._beside is not None:
            self._beside.courier.close()
        for bound in self._programs.values():
            bound.executable.close()
        self._programs.clear()
        self.arrays.clear()
        self.heap.close()
        self.comm.close()

    def _put(self, command: messages.Put, payload: Frame | None) -> Answer:
        layout = command.layout
        if not isinstance(layout, Layout):
            layout = Layout.decode(layout)
        stored = Stored.allocate(self.heap, layout, as_dtype(command.dtype), self.rank)
        if layout.shared:  # its memory may be what a slower worker still computes in
            self.comm.barrier()
        try:
            if not layout.shared or self.rank == layout.mesh.workers[0]:  # one writes for all
                fill(stored.tensor, b"" if payload is None else payload)
        except BaseException:
            stored.free(self.heap)
            raise
        self.arrays[command.array] = stored
        if layout.shared:
            self.comm.barrier()
        return messages.Done(command.ticket), None

    def _get(self, command: messages.Get, payload: Payload) -> Answer:
        return messages.Tile(command.ticket), self._stored(command.array).tensor

    def _read(self, command: messages.Read, payload: Payload) -> Answer:
        layout = command.layout
        if not isinstance(layout, Layout):
            layout = Layout.decode(layout)
        stored = Stored.allocate(self.heap, layout, as_dtype(command.dtype), self.rank)
        self.arrays[command.array] = stored  # also where reading fails: heaps stay equal
        self._transfer(command, stored, writing=False)
        return messages.Done(command.ticket), None

    def _write(self, command: messages.Write, payload: Payload) -> Answer:
        self._transfer(command, self._stored(command.array), writing=True)
        return messages.Done(command.ticket), None

    def _transfer(self, command: messages.Alone, stored: Stored, *, writing: bool) -> None:
        file = ArrayFile(command.path, command.place, f"worker {self.rank} on {HOST}")
        transfer(file, stored, self.rank, partial(self.poll, command), writing=writing)

    def _free(self, command: messages.Free, payload: Payload) -> None:
        self.drop(command.arrays)

    def drop(self, arrays: Sequence[int]) -> None:
        """Let go of arrays."""
        if self.options.memory_limit is not None:  # the memory is wanted now
            self._end_transfers(writes=arrays)
        found: list[Stored] = []
        for array in arrays:
            stored = self.arrays.pop(array, None)
            if self._failed_arrays:
                self._failed_arrays.pop(array, None)
            if stored is None or (self._beside and self._beside.release(array, stored)):
                continue
            found.append(stored)
        self._give_back(found)

    def _end_transfers(
        self,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        program: int | None = None,
        most: int | None = None,
    ) -> None:
        """Wait for the transfers that stand in the way; see `Beside.ended`."""
        if self._beside is not None:
            self._give_back(self._beside.ended(reads, writes, program, most))

    def _give_back(self, released: Sequence[Stored]) -> None:
        if self.comm.size > 1 and any(stored.layout.shared for stored in released):
            self.comm.barrier()  # a peer may still read it
        for stored in released:
            self.heap.free(stored.block)

    def _define(self, command: messages.Define, payload: Payload) -> Answer:
        program = payload if isinstance(payload, Program) else decode(bytes(payload or b""))
        slots = [program.slots[output] for output in program.outputs]
        results = [piece(slot.layout, slot.dtype, self.rank) for slot in slots]
        self._programs[command.program] = _Bound(program, self._bind(program, self), results)
        return messages.Done(command.ticket), None

    def _forget(self, command: messages.Forget, payload: Payload) -> None:
        self._failed_programs.pop(command.program, None)
        self._end_transfers(program=command.program)
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
                self._hand_back(bound.program, inputs, outputs)
            raise
        if self._beside is not None:
            self._beside.note_run()
        return values

    def ready(
        self, program: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """A call that runs a program again, from arrays into arrays that are there."""
        arrays = [[self._stored(array) for array in names] for names in (inputs, outputs)]
        return self._programs[program].executable.ready(*arrays)

    def _taken_up(
        self, program: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[_Bound, list[Stored], list[Stored]]:
        """A program with the arrays that it reads and those that it will fill."""
        bound, arrays = self._programs.get(program), self.arrays
        if bound is None:
            raise WorkerError(f"run names program {program}, which is not defined here")
        if self._beside is not None:
            self._end_transfers(inputs, [inputs[x] for x in bound.program.donated.values()])
        given = [arrays.get(array) or self._stored(array) for array in inputs]
        return bound, given, self._outputs(bound, inputs, outputs, given)

    def _run(self, command: messages.Run, payload: Payload) -> Answer:
        numbers = messages.numbers(command.parameters)
        if command.timed:
            return self._timed(command, numbers), None
        if command.beside and (courier := self.courier()) is not None:
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
        assert self._beside is not None
        self._end_transfers(most=MOST - 1)
        errand = bound.executable.start(given, made, courier)
        self._beside.add(errand, command.program, command.inputs, command.outputs)

    def _timed(self, command: messages.Run, numbers: Sequence[Number]) -> messages.Values:
        bound, given, made = self._taken_up(command.program, command.inputs, command.outputs)
        values, seconds = bound.executable.timed(given, made, numbers, command.steps)
        blocks = {stored.block for stored in (*given, *made)}
        memory = bound.executable.nbytes + sum(block.nbytes for block in blocks)
        return messages.Values(command.ticket, values, command.steps, seconds, memory)

    def _resume(self, command: messages.Resume, payload: Payload) -> None:
        self._halted = None

    def _stats(self, command: messages.Stats, payload: Payload) -> Answer:
        counters: dict[str, int | float | str] = {
            "rank": self.rank,
            "host": HOST,
            "pid": os.getpid(),
            "device": str(self.device),
            "arrays": len(self.arrays),
            "programs": len(self._programs),
        }
        if self._beside is not None:
            counters |= {"beside": self._beside.begun, "meanwhile": self._beside.meanwhile}
        return messages.Counters(command.ticket, counters | self.heap.statistics()), None

    def _nothing(self, command: Command, payload: Payload) -> None:
        """Whoever carries the commands acts on this one."""

    def _stored(self, array: int) -> Stored:
        if self._beside is not None:
            self._beside.wait_for(array)
        stored = self.arrays.get(array)
        if stored is None:
            raise WorkerError(
                f"array {array} is not on worker {self.rank}: it was released, or a run has taken "
                f"over its memory"
            )
        return stored

    def _outputs(
        self,
        bound: _Bound,
        inputs: Sequence[int],
        outputs: Sequence[int],
        given: Sequence[Stored],
    ) -> list[Stored]:
        """The run's outputs: inputs that it takes over under their new number, else new memory."""
        made: list[Stored] = []
        donated = bound.program.donated
        try:
            for position, result in enumerate(bound.results):
                taken = position in donated
                made.append(given[donated[position]] if taken else result.allocate(self.heap))
        except Exception as error:
            from magmath.program.bind import blame

            for position, stored in enumerate(made):
                if position not in donated:
                    stored.free(self.heap)
            blame(error, bound.program.writer(bound.program.outputs[len(made)]))
            raise
        if donated:
            self._take_over(bound.program, inputs, outputs)
        for array, stored in zip(outputs, made, strict=True):
            self.arrays[array] = stored
        return made

    def _take_over(self, program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Move donated inputs to their new numbers, under which the controller knows them now."""
        for position, donor in program.donated.items():
            stored = self.arrays.pop(inputs[donor], None)
            if stored is not None:
                self.arrays[outputs[position]] = stored

    def _hand_back(self, program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Move what was taken over to the numbers that it had before."""
        for position, donor in program.donated.items():
            self.arrays[inputs[donor]] = self.arrays.pop(outputs[position])

    def _earlier_failure(self, command: Command) -> Failure | None:
        """The failure because of which a command cannot be carried out, if there is one.

        One that is the same on all workers comes before one that the others know nothing of.
        """
        if isinstance(command, (messages.Get, messages.Write)):
            return self._failed_arrays.get(command.array)
        if not isinstance(command, messages.Run):
            return None
        failed = self._halted or self._failed_programs.get(command.program)
        for array in command.inputs:
            if failed is None or failed.in_step:
                failed = self._failed_arrays.get(array, failed)
        return failed

    def _give_up(self, command: Command, failure: Failure) -> None:
        """Mark what the command should have made with the failure."""
        if isinstance(command, messages.Run):
            bound = self._programs.get(command.program)
            if bound is not None:
                self._take_over(bound.program, command.inputs, command.outputs)
            self._failed_arrays.update(dict.fromkeys(command.outputs, failure))
        elif isinstance(command, (messages.Put, messages.Read)):
            self._failed_arrays[command.array] = failure
        elif isinstance(command, messages.Define):
            self._failed_programs[command.program] = failure


def choose_device(name: str) -> torch.device:
    """The device of this process: "auto" takes a GPU where there is one, each worker its own.

    Raises DeviceError where the machine has no such device.
    """
    gpus = torch.cuda.device_count() if name != "cpu" else 0
    if name == "cpu" or (name == "auto" and not gpus):
        return torch.device("cpu")
    try:
        device = torch.device("cuda" if name == "auto" else name)
    except RuntimeError as error:
        raise DeviceError(f'device must be "auto", "cpu" or "cuda", not {name!r}') from error
    if device.type != "cuda":
        raise DeviceError(f'device must be "auto", "cpu" or "cuda", not {name!r}')
    index = _local_rank() % max(gpus, 1) if device.index is None else device.index
    if index >= gpus:
        raise DeviceError(
            f"device {name!r} was asked for, this machine ({HOST}) has "
            f'{gpus or "no"} CUDA device{"" if gpus == 1 else "s"}; use device="cpu"'
        )
    return torch.device("cuda", index)


def _local_rank() -> int:
    """The number of this process among those of its host, as launchers tell it."""
    for variable in ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"):
        if variable in os.environ:
            return int(os.environ[variable])
    return 0


def _never(command: messages.Long, steps: int, values: list[float]) -> bool:
    return False


if __name__ == "__main__":
    from magmath.runtime.process import main

    sys.exit(main())
