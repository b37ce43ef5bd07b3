"""The pool: the controller's handle on its workers, for any transport.

It assigns the ids of arrays and programs, and records the arrays (`runtime/array_registry.py`).
The workers store the data; a `CommandQueue` sends them commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import count
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch

from magmath.core.dtypes import DTYPES, DType
from magmath.core.thread_placement import release_threads
from magmath.core.type_aliases import Number
from magmath.errors import LayoutError, WorkerError, WorkerLost
from magmath.files.formats import StorageSpec
from magmath.layout import Layout, Mesh
from magmath.program.instructions import Program
from magmath.runtime import messages
from magmath.runtime.array_registry import ArrayRegistry, OwnerReference
from magmath.runtime.command_queue import CommandQueue
from magmath.runtime.failures import add_user_line
from magmath.runtime.run_handle import ProgressCallback, RunHandle
from magmath.runtime.tiles import covering_workers, extract_tile, insert_tile
from magmath.runtime.topology import Topology
from magmath.runtime.transfer_checks import check_put, new_tensor, require_complete
from magmath.runtime.transport_interface import ControlTraffic, Expression, Transport

_LARGE_SHARE: Final = 64
"""The part of a worker's memory that an array must exceed for its transfer to be checked."""
_ids: Final = count(1)
"""Ids of arrays and programs, unique across pools."""


@final
class _DefinedProgram(NamedTuple):
    """A program that the workers have: layouts and types of its outputs, and donated inputs."""

    program: Program
    results: list[tuple[Layout, DType]]
    donors: tuple[int, ...]


def _ranks_to_ask(layout: Layout) -> list[int]:
    """Return workers that store all of an array: for an empty array one of them, whose run may have
    failed."""
    return covering_workers(layout) or [layout.mesh.workers[0]]


@final
class Pool:
    """The workers, through `transport`, which the constructor starts.

    workers, mesh   the number of workers (1 for the worker in this process), and a mesh of one axis
                    of all workers
    topology        their hosts and resources
    deterministic, seed, memory_limit, fold_bias
                    the settings of the pool, for planners: see `mm.init`
    worker_options  the start options of the workers
    memory_bound    bytes that the arrays of a worker may take: `memory_limit`, or its share of the
                    memory of its host; None on GPUs, whose allocator raises by itself

    Thread-safe: calls of several threads are serialized. Every call raises WorkerLost once the pool
    is closed.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        deterministic: bool = False,
        seed: int = 0,
        memory_limit: int | None = None,
        fold_bias: str = "auto",
    ) -> None:
        self.deterministic = deterministic
        self.seed = seed
        self.memory_limit = memory_limit
        self.fold_bias = fold_bias
        self._ids = _ids
        self._registry = ArrayRegistry(lambda array_id: self._queue.release(array_id))
        self._programs: dict[int, _DefinedProgram] = {}
        self._transport = transport
        transport.describe_memory_use = self._describe_memory_use
        self.closed = False
        """True after the workers have ended, or were lost."""
        self._queue = CommandQueue(transport, self._registry, on_end=self._forget_all)
        self.interrupts = self._queue.interrupts
        self.is_inline = transport.is_inline
        """True if the only worker is in this process, so that `compute` is available."""
        self.workers = transport.size
        self.worker_options = transport.options
        self.mesh = Mesh.line(self.workers)
        self.topology = Topology.of(self._queue.hellos)
        self.is_on_cpu = self.topology.device == "cpu"
        self.memory_bound = self._queue.hellos[0].memory_bound or None

    def __repr__(self) -> str:
        topology = self.topology
        hosts, threads, device = max(topology.hosts) + 1, topology.threads, topology.device
        return (
            f"<Pool of {self.workers} worker{'s' * (self.workers > 1)} on {hosts} "
            f"host{'s' * (hosts > 1)}, {device}, {threads} thread{'s' * (threads > 1)} each"
            f"{', sharing memory' * (topology.shares_memory and self.workers > 1)}"
            f"{', closed' * self.closed}>"
        )

    @property
    def traffic(self) -> ControlTraffic:
        """The messages and bytes that the controller has sent since the start."""
        return self._transport.traffic

    @property
    def end_reason(self) -> str | None:
        """The reason why the workers are unreachable; None while the pool is open."""
        return self._queue.end_reason

    def put(self, tensor: torch.Tensor, layout: Layout, line: str = "") -> int:
        """Send each worker its tile of a CPU tensor; return the id of the array.

        Raises MemoryLimitError, with the user's `line`, if it probably does not fit into memory and
        the workers refuse it; otherwise its first use raises the failure. Raises ShapeError,
        DTypeError or LayoutError if tensor, layout and pool do not match.
        """
        self._registry.release_collected()
        dtype = check_put(tensor, layout, self.workers)
        array_id = next(self._ids)
        parts = [
            None
            if layout.shared and rank != layout.mesh.workers[0]
            else extract_tile(tensor, layout, rank)
            for rank in range(self.workers)
        ]
        encoded = layout if self.is_inline else layout.encode()
        command = messages.Put(self._queue.next_ticket(), array_id, dtype.name, encoded, line)
        nbytes = sum(part.nbytes for part in parts if part is not None)
        self._registry.known[array_id] = (layout, dtype)
        try:
            pending = self._queue.submit(command, payloads=parts, nbytes=nbytes, array_id=array_id)
            if self._can_exceed_memory(nbytes):
                self._queue.wait(pending)
        except BaseException:
            self.release(array_id)
            raise
        return array_id

    def _can_exceed_memory(self, nbytes: int) -> bool:
        """Return True for a large array (of `nbytes`) if the arrays exceed the memory of a worker,
        unless it can free temporary memory."""
        bound = self.memory_bound
        return bound is not None and nbytes > bound // _LARGE_SHARE and self.array_bytes > bound

    def store(self, values: np.ndarray[Any, Any], layout: Layout, line: str = "") -> int:
        """Store a NumPy array in a layout and return its id, as `put`; on the worker of this
        process without a message."""
        if not (self.is_inline and self.is_on_cpu):
            return self.put(torch.from_numpy(values), layout, line)
        array_id, dtype = next(self._ids), DTYPES[values.dtype.name]
        self._queue.store(array_id, values, layout, dtype)
        self._registry.known[array_id] = (layout, dtype)
        return array_id

    def get(self, array_id: int) -> torch.Tensor:
        """Return the whole array as a new CPU tensor, from a minimal set of workers.

        Waits for all earlier commands. Raises LayoutError if a reduction is pending.
        """
        layout, dtype = self._require_array("get", array_id)
        require_complete("get", layout)
        if self.is_inline:
            whole = new_tensor(layout.shape, dtype)
            insert_tile(whole, layout, 0, self._queue.get(array_id).tensor)
            return whole
        ranks = _ranks_to_ask(layout)
        pending = self._queue.request(messages.Get(self._queue.next_ticket(), array_id), ranks)
        self._require_array("get", array_id)  # another worker may have failed in the meantime
        whole = new_tensor(layout.shape, dtype)
        for rank in ranks if whole.numel() else ():
            insert_tile(whole, layout, rank, pending.tiles[rank])
        return whole

    def local_tensor(self, array_id: int) -> torch.Tensor | None:
        """Return the memory of an array that the worker of this process stores, for reading; None
        in other pools, or if the memory has another order."""
        if not self.is_inline:
            return None
        layout, _ = self._require_array("get", array_id)
        tensor = self._queue.get(array_id).tensor
        plain = layout.boxes is None and tuple(tensor.shape) == layout.shape
        return tensor if plain else None

    def local_array(self, array_id: int) -> np.ndarray[Any, Any] | None:
        """Return the values of an array that the worker of this process stores, for reading; None
        if NumPy has no such type, or if they are on a GPU or in boxes."""
        layout, _ = self._require_array("get", array_id)
        values = self._queue.get(array_id).view.array
        plain = values is not None and layout.boxes is None and values.shape == layout.shape
        return values if plain else None

    def read(
        self,
        path: str,
        storage: StorageSpec,
        layout: Layout,
        dtype: DType,
        progress: ProgressCallback | None = None,
    ) -> int:
        """Make each worker read its own part of an array in a file; return the id of the array.

        `progress` gets the bytes that a worker has read since its last report. Waits, and raises
        the failure of a worker: MissingDataError if it cannot access the file.
        """
        self._registry.release_collected()
        array_id = next(self._ids)
        encoded = layout if self.is_inline else layout.encode()
        ticket, reports = self._queue.next_ticket(), progress is not None
        command = messages.Read(ticket, array_id, dtype.name, encoded, path, storage, reports)
        self._registry.known[array_id] = (layout, dtype)
        try:
            self._run_file_command(command, None, progress)
        except BaseException:
            self.release(array_id)
            raise
        return array_id

    def write(
        self,
        array_id: int,
        path: str,
        storage: StorageSpec,
        progress: ProgressCallback | None = None,
    ) -> None:
        """Make each worker write its own part of an array into an existing file; see `read`. Raises
        LayoutError if a reduction is pending.
        """
        layout, _ = self._require_array("write", array_id)
        require_complete("write", layout)
        ranks = _ranks_to_ask(layout)
        ticket, reports = self._queue.next_ticket(), progress is not None
        command = messages.Write(ticket, array_id, path, storage, reports)
        self._run_file_command(command, ranks, progress)
        self._require_array("write", array_id)

    def _run_file_command(
        self,
        command: messages.FileCommand,
        ranks: Sequence[int] | None,
        progress: ProgressCallback | None,
    ) -> None:
        """Execute a long, interruptible command."""
        run = RunHandle(self._queue, [], 1, progress)
        self._queue.submit(command, ranks, run=run)
        run.values()

    @property
    def array_bytes(self) -> int:
        """The maximal bytes that the arrays use on a worker."""
        self._registry.release_collected()
        return self._registry.nbytes

    def track_owner(self, owner: object, array_id: int) -> OwnerReference:
        """Release an array when its owner is collected."""
        return self._registry.track_owner(owner, array_id)

    def swap_owners(self, owner: OwnerReference, other: OwnerReference) -> None:
        """Swap the arrays of two owners."""
        self._registry.swap_owners(owner, other)

    def _describe_memory_use(self) -> str:
        bound = f", of {self.memory_bound / 1e6:,.0f} MB allowed" if self.memory_bound else ""
        return f"its arrays took {self.array_bytes / 1e6:,.0f} MB{bound}"

    def release(self, array_id: int) -> None:
        """Release an array with the next command. Thread-safe, also in finalizers."""
        self._registry.release(array_id)

    def define(self, program: Program) -> int:
        """Send a program to the workers; return its id."""
        if program.workers != self.workers:
            raise LayoutError(
                f"define: the program is planned for {program.workers} workers, "
                f"the pool has {self.workers}; plan it for this pool"
            )
        program_id = next(self._ids)
        command = messages.Define(self._queue.next_ticket(), program_id)
        try:
            self._queue.submit(command, payloads=[program])
        except BaseException:  # Ctrl-C, or an earlier failure, after it was sent
            with suppress(WorkerLost):
                self._queue.notify(messages.Forget(program_id))
            raise
        results = [program.slots[output] for output in program.outputs]
        self._programs[program_id] = _DefinedProgram(
            program,
            [(slot.layout, slot.dtype) for slot in results],
            tuple(program.donated.values()),
        )
        return program_id

    def forget(self, program_id: int) -> None:
        """Drop a program."""
        if self._programs.pop(program_id, None) is not None:
            self._queue.notify(messages.Forget(program_id))

    def run(
        self,
        program_id: int,
        inputs: Sequence[int],
        scalars: Sequence[Number] = (),
        steps: int = 1,
        wait: bool = False,
        progress: ProgressCallback | None = None,
        timed: bool = False,
        concurrent: bool = False,
    ) -> RunHandle:
        """Run a program `steps` times on arrays, asynchronously unless `wait`.

        Donated inputs (`Program.donated`) are invalid afterwards. `progress` is called while the
        pool waits for a run of several steps: within `RunHandle.values` or any other waiting call.
        A `timed` run executes its steps one instruction at a time and fills `RunHandle.timings`. An
        `concurrent` run of a program that only moves data overlaps later runs, until one of them
        uses its outputs.
        """
        self._queue.check_open()
        registry = self._registry
        if registry.gone:
            registry.release_collected()
        defined = self._programs.get(program_id)
        if defined is None:
            raise WorkerError(f"run: program {program_id} is not defined in this pool; define it")
        for array_id in inputs:
            if array_id not in registry.known or registry.failures:
                self._require_array("run", array_id)
        outputs = [next(self._ids) for _ in defined.results]
        registry.known.update(zip(outputs, defined.results, strict=True))
        run = RunHandle(
            self._queue, outputs, steps, progress, defined.program, concurrent and not timed
        )
        try:
            if self.is_inline and steps == 1 and not timed:
                run.finish(self._queue.run(program_id, inputs, outputs, scalars), 1)
            else:
                self._send_run(run, program_id, inputs, scalars, timed, concurrent)
            for donor in defined.donors:
                registry.known.pop(inputs[donor], None)
            if wait:
                run.values()
        except BaseException:
            # The outputs are unusable in any case. The inline worker has restored donated inputs.
            donors = () if self.is_inline else defined.donors
            for array_id in (*outputs, *[inputs[donor] for donor in donors]):
                self.release(array_id)
            raise
        return run

    def prepare_run(
        self, program_id: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call for `run_prepared`: it runs a program into the arrays of an earlier run.

        For the inline worker, and programs that emit nothing and donate no input.
        """
        with self._queue.lock:
            self._queue.check_open()
            return self._transport.prepare_run(program_id, inputs, outputs)

    def run_prepared(
        self,
        call: Callable[[Sequence[Number]], object],
        inputs: Sequence[int],
        scalars: Sequence[Number],
    ) -> None:
        """Execute a call that `prepare_run` returned for these inputs. Raises as `run`."""
        known = self._registry.known
        with self._queue.lock:
            for array_id in inputs:
                if array_id not in known:
                    self._require_array("run", array_id)
            self._transport.traffic.messages += 1
            try:
                call(scalars)
            except Exception as error:
                add_user_line(error)
                raise

    def _send_run(
        self,
        run: RunHandle,
        program_id: int,
        inputs: Sequence[int],
        scalars: Sequence[Number],
        timed: bool,
        concurrent: bool,
    ) -> None:
        """Send a run to the workers."""
        encoded, report = messages.encode_scalars(list(scalars)), run.progress is not None
        ticket = self._queue.next_ticket()
        command = messages.Run(
            ticket,
            program_id,
            list(inputs),
            run.outputs,
            encoded,
            run.steps,
            report,
            timed,
            concurrent,
        )
        self._queue.submit(command, run=run)

    def compute(
        self,
        order: Sequence[Expression],
        requested: Sequence[Expression],
        array_ids: Mapping[Expression, int],
    ) -> list[tuple[int, Layout]]:
        """Compute `requested` immediately, without a program, on the inline worker.

        `order`: all required nodes, each after its inputs; `array_ids`: the id of the array of each
        leaf and known node. Returns the ids and layouts of the new arrays.
        """
        if self._registry.gone:
            self._registry.release_collected()
        outputs = [next(self._ids) for _ in requested]
        stored = self._queue.compute(order, requested, array_ids, outputs)
        for output, data in zip(outputs, stored, strict=True):
            self._registry.known[output] = data.layout, data.dtype
        return [(output, data.layout) for output, data in zip(outputs, stored, strict=True)]

    def interrupt_point(self) -> None:
        """Deliver a deferred Ctrl-C here, after the caller has stored its results."""
        self._queue.interrupt_point()

    def defer_interrupts(self) -> AbstractContextManager[None]:
        """Defer Ctrl-C until the end of the context, for work that must not be separated: a run
        that overwrites arrays, and the use of its results."""
        return self._queue.deferred_interrupts

    def stats(self) -> list[dict[str, int | float | str]]:
        """Return the counters of each worker: arrays, programs and memory. Devices have finished
        all earlier commands then."""
        self._registry.release_collected()
        pending = self._queue.request(messages.Stats(self._queue.next_ticket()))
        return [pending.counters[rank] for rank in range(self.workers)]

    def finish(self) -> None:
        """Wait for all commands.

        Raises the first failure that has not been raised.
        """
        self._queue.finish()

    def close(self) -> None:
        """Stop the workers, orderly if possible, and remove their processes and files."""
        self._queue.close()

    @property
    def has_failures(self) -> bool:
        """True if the run of any array is known to have failed."""
        return bool(self._registry.failures)

    def raise_failure(self, array_id: int) -> None:
        """Raise the failure of the run that produces the array, if it is known to have failed."""
        if self._registry.failures:
            self._require_array("evaluate", array_id)

    def has_failed(self, array_id: int) -> bool:
        """Return True if the run that produces the array is known to have failed."""
        return array_id in self._registry.failures

    def has_been_abandoned(self, array_id: int) -> bool:
        """Return True if the run that produces the array was interrupted between two
        instructions."""
        failure = self._registry.failures.get(array_id)
        return failure is not None and failure.kind == "InterruptedError"

    def _forget_all(self) -> None:
        """Clear all state after the workers have ended."""
        self.closed = True
        self._registry.clear()
        self._programs.clear()
        release_threads()

    def _require_array(self, operation: str, array_id: int) -> tuple[Layout, DType]:
        """Return layout and type of an array; raises as `ArrayRegistry.require`, or WorkerLost.

        A failure that is raised here must not be raised again by the next command that waits.
        """
        self._queue.check_open()
        if array_id in self._registry.failures:
            self._queue.raise_failure()
        return self._registry.require(operation, array_id)
