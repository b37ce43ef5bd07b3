"""The worker: one device, its arrays and programs, and one handler for each command.

A `Worker` is independent of the transport of its commands: direct calls in the controller's
process, queues between threads, or sockets. Every worker of a pool receives the same sequence of
allocating commands, so the heap stays symmetric without communication.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, final

import msgspec
import numpy as np
import torch

from magmath.comm import Communicator
from magmath.comm.progress_thread import ProgressThread
from magmath.core.debugging import debugging
from magmath.core.dtypes import DType, as_dtype
from magmath.core.resources import memory_share
from magmath.core.type_aliases import Number, Poll
from magmath.errors import MemoryLimitError, WorkerError
from magmath.layout import Layout
from magmath.memory.chunk_sources import PrivateSource, SharedWindowSource
from magmath.memory.heap import CHUNK_BYTES, Heap, View
from magmath.memory.local_array import LocalArray, TileSpec, tile_spec
from magmath.memory.temporaries import MIN_SHARED, Temporaries
from magmath.program.encoding import decode
from magmath.program.instructions import Program
from magmath.runtime import messages
from magmath.runtime.array_file import ArrayFile, transfer_tile
from magmath.runtime.array_table import ArrayTable
from magmath.runtime.async_transfers import MAX_TRANSFERS
from magmath.runtime.device import HOST, choose_device
from magmath.runtime.executable_program import ExecutableProgram, LoadProgram, load_program
from magmath.runtime.failures import failure_from
from magmath.runtime.messages import Command, Failure, Reply
from magmath.runtime.poison import PoisonTable
from magmath.runtime.tiles import TileData, fill_tensor
from magmath.runtime.transport_interface import Expression, Payload, WorkerOptions

_UNBOUNDED = 1 << 62
_CHUNKS = 64
"""The least number of chunks of a heap whose limit the user has set."""

ReplyWithData = tuple[Reply, TileData | None]
Compute = Callable[[Sequence[Any], Sequence[Any], dict[Any, View]], list[LocalArray]]
"""A type of the executor, which alone knows the type of the expressions."""


@final
@dataclass(slots=True)
class _Definition:
    """A program that a command has defined, its executable, and the tiles of its outputs."""

    program: Program
    executable: ExecutableProgram
    results: list[TileSpec]


@final
class _RunArrays(NamedTuple):
    """A program, the arrays that a run of it reads, and its allocated outputs."""

    definition: _Definition
    inputs: list[LocalArray]
    outputs: list[LocalArray]


@final
class Worker:
    """A device with its arrays and programs; `comm` reaches the other workers of the pool.

    Failures poison results (`PoisonTable`): the worker stays in step with the others, and results
    that depend on failed ones fail.
    """

    def __init__(
        self, comm: Communicator, options: WorkerOptions, load: LoadProgram = load_program
    ) -> None:
        switches = debugging()
        if switches.delays is not None:
            from magmath.comm.delayed import DelayedCommunicator

            comm = DelayedCommunicator(comm)
        self.comm = comm
        self.rank = comm.rank
        self.options = options
        self.device = choose_device(options.device)
        if self.device.type == "cuda":  # for libraries that use the current device of a thread
            torch.cuda.set_device(self.device)
        self.memory_bound = self._common_memory_bound()
        self.heap = self._new_heap(should_fill=switches.fill)
        is_limited = options.memory_limit is not None
        self.temporaries = Temporaries(self.heap, 1 if is_limited else MIN_SHARED)
        self.arrays = ArrayTable(
            comm,
            self.heap,
            transfers_async=self.device.type == "cpu",
            frees_at_once=is_limited,
        )
        self.poll: Callable[[messages.LongCommand, int, list[float]], bool] = _should_not_stop
        self.is_abandoned: Callable[[], bool] = bool
        """Called between two instructions of a run; returns whether the run is abandoned."""
        self._load = load
        self._programs: dict[int, _Definition] = {}
        self._poison = PoisonTable()
        self._handlers = self._command_handlers()

    def _command_handlers(self) -> Mapping[type, Callable[[Any, Any], ReplyWithData | None]]:
        """Return the methods that execute commands, by the types of these."""
        return {
            messages.Put: self._put,
            messages.Get: self._get,
            messages.Read: self._read,
            messages.Write: self._write,
            messages.Free: self._free,
            messages.Define: self._define,
            messages.Forget: self._forget,
            messages.Run: self._run,
            messages.Interrupt: self._ignore,
            messages.Resume: self._resume,
            messages.Stats: self._stats,
            messages.Stop: self._ignore,
        }

    def hello(self) -> messages.Hello:
        """Return the Hello message of this worker."""
        return messages.Hello(
            rank=self.rank,
            host=HOST,
            pid=os.getpid(),
            device=str(self.device),
            threads=torch.get_num_threads(),
            shares_memory=self.comm.shares_memory,
            memory_bound=self.memory_bound or 0,
            host_number=self.comm.hosts[self.rank],
        )

    def _common_memory_bound(self) -> int | None:
        """Return the memory limit of arrays in bytes, equal on all workers: the user's limit, or
        the smallest share of a host's memory. None on a GPU, whose allocator raises by itself."""
        limit = self.options.memory_limit
        if limit is None:
            on_cpu = self.device.type == "cpu"
            limit = memory_share(self.comm.ranks_on_host) if on_cpu else _UNBOUNDED
        smallest = _UNBOUNDED - self.comm.allreduce_max(_UNBOUNDED - min(limit, _UNBOUNDED))
        return None if smallest == _UNBOUNDED else smallest

    def _new_heap(self, *, should_fill: bool) -> Heap:
        """Return the heap: in shared windows, if the workers can share memory."""
        comm, limit = self.comm, self.options.memory_limit
        windows = self.device.type == "cpu" and comm.shares_memory and comm.size > 1
        source = (
            SharedWindowSource(comm)
            if windows
            else PrivateSource(self.device, self.rank, comm.size)
        )
        return Heap(
            source,
            chunk_bytes=CHUNK_BYTES if limit is None else min(CHUNK_BYTES, limit // _CHUNKS),
            limit=self.memory_bound,
            should_fill=should_fill,
        )

    def handle(self, command: Command, payload: Payload) -> ReplyWithData | None:
        """Execute a command; return its reply, if it has one. Raises its exceptions."""
        return self._handlers[type(command)](command, payload)

    def reply_to(self, command: Command, payload: Payload) -> ReplyWithData | None:
        """Execute a remote command; return its reply, a Failure for an exception."""
        ticket = getattr(command, "ticket", 0)
        earlier = self._poison.failure_of(command)
        if earlier is not None:
            earlier = msgspec.structs.replace(earlier, ticket=ticket, secondary=True)
            if not (earlier.is_in_step and self._is_executable(command)):
                self._poison_results(command, earlier)
                if isinstance(command, messages.Run):
                    self.drop(command.released)
                return earlier, None
        try:
            reply = self.handle(command, payload)
        except Exception as error:
            failure = failure_from(error, ticket, self.rank, HOST)
            if failure.is_in_step and earlier is not None:
                failure = earlier
            self._poison_results(command, failure)
            if not failure.is_in_step and not isinstance(command, messages.FileCommand):
                self._poison.halt(failure)
            return failure, None
        if earlier is None:
            return reply
        self._poison_results(command, earlier)
        return earlier, None

    def _is_executable(self, command: Command) -> bool:
        """Return True for a run whose inputs are stored, whatever their values: other workers may
        wait for it. An array that did not fit into memory is stored on no worker."""
        return isinstance(command, messages.Run) and self.arrays.has_all(command.inputs)

    def compute(
        self,
        order: Sequence[Expression],
        requested: Sequence[Expression],
        array_ids: Mapping[Expression, int],
        outputs: Sequence[int],
        released: Sequence[int],
    ) -> list[LocalArray]:
        """Compute `requested` without a program; only for an inline worker."""
        if released:
            self.drop(released)
        views = {node: self.arrays.get(array_id).view for node, array_id in array_ids.items()}
        results = self._compute(order, requested, views)
        for output, stored in zip(outputs, results, strict=True):
            self.arrays.add(output, stored)
        return results

    def store(
        self, array_id: int, values: np.ndarray[Any, Any], layout: Layout, dtype: DType
    ) -> None:
        """Copy an array of this process; only for an inline worker on the CPU."""
        stored = LocalArray.allocate(self.heap, layout, dtype, 0)
        if stored.view.array is not None:  # None: no elements
            np.copyto(stored.view.array, values)
        self.arrays.add(array_id, stored)

    @cached_property
    def _compute(self) -> Compute:
        from magmath.executor.context import Context
        from magmath.executor.interpret import interpret  # loads the kernels: on first use

        options = self.options
        context = Context(
            self.comm,
            self.heap,
            self.device,
            options.deterministic,
            options.winograd,
            options.workspace_limit,
        )
        return partial(interpret, context)

    def close(self) -> None:
        """Release programs, arrays and the communicator. Collective."""
        self.arrays.close()
        for definition in self._programs.values():
            definition.executable.close()
        self._programs.clear()
        self.heap.close()
        self.comm.close()

    def _put(self, command: messages.Put, payload: TileData | None) -> ReplyWithData:
        try:
            stored = self._allocate(command)
        except MemoryLimitError as error:
            if command.line:
                error.user_line = command.line  # type: ignore[attr-defined]
            if error.is_uniform:
                error.is_in_step = True  # type: ignore[attr-defined]
            raise
        layout = stored.layout
        if layout.shared:  # a slower worker may still use this memory
            self.comm.barrier()
        is_writer = not layout.shared or self.rank == layout.mesh.workers[0]  # one for all
        try:
            if is_writer:
                fill_tensor(stored.tensor, b"" if payload is None else payload)
        except BaseException:
            stored.free(self.heap)
            raise
        self.arrays.add(command.array_id, stored)
        if layout.shared:
            self.comm.barrier()
        return messages.Done(command.ticket), None

    def _allocate(self, command: messages.Put | messages.Read) -> LocalArray:
        """Allocate the array that a command creates."""
        layout = command.layout
        if not isinstance(layout, Layout):
            layout = Layout.decode(layout)
        return LocalArray.allocate(self.heap, layout, as_dtype(command.dtype), self.rank)

    def _get(self, command: messages.Get, payload: Payload) -> ReplyWithData:
        return messages.TileMessage(command.ticket), self.arrays.get(command.array_id).tensor

    def _read(self, command: messages.Read, payload: Payload) -> ReplyWithData:
        stored = self._allocate(command)
        self.arrays.add(command.array_id, stored)  # even if reading fails: heaps stay symmetric
        self._transfer(command, stored, writing=False)
        return messages.Done(command.ticket), None

    def _write(self, command: messages.Write, payload: Payload) -> ReplyWithData:
        self._transfer(command, self.arrays.get(command.array_id), writing=True)
        return messages.Done(command.ticket), None

    def _transfer(
        self, command: messages.FileCommand, stored: LocalArray, *, writing: bool
    ) -> None:
        file = ArrayFile(command.path, command.storage, f"worker {self.rank} on {HOST}")
        transfer_tile(file, stored, self.rank, partial(self.poll, command), writing=writing)

    def _free(self, command: messages.Free, payload: Payload) -> None:
        self.drop(command.array_ids)

    def drop(self, array_ids: Sequence[int]) -> None:
        """Release arrays."""
        self._poison.forget_arrays(array_ids)
        self.arrays.drop(array_ids)

    def _define(self, command: messages.Define, payload: Payload) -> ReplyWithData:
        program = payload if isinstance(payload, Program) else decode(bytes(payload or b""))
        slots = [program.slots[output] for output in program.outputs]
        results = [tile_spec(slot.layout, slot.dtype, self.rank) for slot in slots]
        executable = self._load(program, self)
        self._programs[command.program_id] = _Definition(program, executable, results)
        return messages.Done(command.ticket), None

    def _forget(self, command: messages.Forget, payload: Payload) -> None:
        self._poison.forget_program(command.program_id)
        self.arrays.finish_transfers(program_id=command.program_id)
        definition = self._programs.pop(command.program_id, None)
        if definition is not None:
            definition.executable.close()

    def run(
        self,
        program_id: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        scalars: Sequence[Number],
        steps: int = 1,
        poll: Poll | None = None,
    ) -> list[float]:
        """Run a program on arrays, given by id; return the emitted scalars.

        After an exception donated inputs have their old ids.
        """
        definition, read, results = self._arrays_of_run(program_id, inputs, outputs)
        try:
            values = definition.executable.run(read, results, scalars, steps, poll)
        except BaseException:
            self.arrays.restore_donated(definition.program, inputs, outputs)
            raise
        if self.arrays.transfers is not None:
            self.arrays.transfers.count_run()
        return values

    def prepare_run(
        self, program_id: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call that runs a program again, between existing arrays."""
        arrays = [[self.arrays.get(array_id) for array_id in ids] for ids in (inputs, outputs)]
        return self._programs[program_id].executable.prepare_run(*arrays)

    def _arrays_of_run(
        self, program_id: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> _RunArrays:
        """Return a program and the arrays of a run; allocates the outputs."""
        definition = self._programs.get(program_id)
        if definition is None:
            raise WorkerError(f"run names program {program_id}, which is not defined here")
        read = self.arrays.inputs(definition.program, inputs)
        results = self.arrays.outputs(definition.program, definition.results, inputs, outputs, read)
        return _RunArrays(definition, read, results)

    def _run(self, command: messages.Run, payload: Payload) -> ReplyWithData:
        self.drop(command.released)
        scalars = messages.decode_scalars(command.scalars)
        if command.timed:
            return self._run_timed(command, scalars), None
        if command.concurrent and (progress_thread := self.arrays.progress_thread()) is not None:
            self._start(command, progress_thread)
            return self._run_reply(command, [], 1)
        taken, is_stopped = command.steps, False

        def poll(steps: int, values: list[float]) -> bool:
            nonlocal taken, is_stopped
            is_stopped = self.poll(command, steps, values) or is_stopped
            if is_stopped:
                taken = steps  # perhaps again: steps that have begun elsewhere are completed
            return is_stopped

        several = poll if command.steps > 1 else None
        values = self.run(
            command.program_id, command.inputs, command.outputs, scalars, command.steps, several
        )
        return self._run_reply(command, values, taken)

    def _run_reply(self, command: messages.Run, values: list[float], steps: int) -> ReplyWithData:
        """Return the reply to a run: worker 0 sends the values."""
        if self.rank == 0:
            return messages.Values(command.ticket, values, steps), None
        return messages.Done(command.ticket), None

    def _start(self, command: messages.Run, progress_thread: ProgressThread) -> None:
        """Start a program that only moves data on the progress thread."""
        definition, read, results = self._arrays_of_run(
            command.program_id, command.inputs, command.outputs
        )
        transfers = self.arrays.transfers
        assert transfers is not None
        self.arrays.finish_transfers(max_transfers=MAX_TRANSFERS - 1)
        task = definition.executable.start(read, results, progress_thread)
        transfers.add(task, command.program_id, command.inputs, command.outputs)

    def _run_timed(self, command: messages.Run, scalars: Sequence[Number]) -> messages.Values:
        """Run a program as `run` does, and time its instructions; return the reply."""
        inputs, outputs = command.inputs, command.outputs
        definition, read, results = self._arrays_of_run(command.program_id, inputs, outputs)
        try:
            values, seconds = definition.executable.run_timed(read, results, scalars, command.steps)
        except BaseException:
            self.arrays.restore_donated(definition.program, inputs, outputs)
            raise
        blocks = {stored.block for stored in (*read, *results)}
        memory = definition.executable.nbytes + sum(block.nbytes for block in blocks)
        return messages.Values(command.ticket, values, command.steps, seconds, memory)

    def _resume(self, command: messages.Resume, payload: Payload) -> None:
        self._poison.resume()

    def _stats(self, command: messages.Stats, payload: Payload) -> ReplyWithData:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # started kernels belong to earlier commands
        counters: dict[str, int | float | str] = {
            "rank": self.rank,
            "host": HOST,
            "pid": os.getpid(),
            "device": str(self.device),
            "arrays": len(self.arrays),
            "programs": len(self._programs),
        }
        if (transfers := self.arrays.transfers) is not None:
            counters |= {
                "transfers": transfers.started,
                "overlapped_runs": transfers.overlapped_runs,
            }
        return messages.Counters(command.ticket, counters | self.heap.statistics()), None

    def _ignore(self, command: Command, payload: Payload) -> None:
        """Do nothing: the command loop handles this command."""

    def _poison_results(self, command: Command, failure: Failure) -> None:
        """Poison the outputs of a command with a failure."""
        if isinstance(command, messages.Run):
            definition = self._programs.get(command.program_id)
            if definition is not None:
                self.arrays.move_donated(definition.program, command.inputs, command.outputs)
        self._poison.poison(command, failure)


def _should_not_stop(command: messages.LongCommand, steps: int, values: list[float]) -> bool:
    return False
