"""The pool: the controller's one handle on its workers, whatever lies between.

It allots the numbers of arrays and programs, sends commands without waiting for them, and knows of
each command which workers have answered. What went wrong in a command that nobody waited for is
raised by the next call that waits.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple, NoReturn

import torch

from magmath.core.dtypes import DType
from magmath.errors import (
    DTypeError,
    LayoutError,
    MagmathError,
    MemoryLimitError,
    ShapeError,
    WorkerError,
    WorkerLost,
)
from magmath.files.formats import Place
from magmath.graph import Node
from magmath.layout import Layout, Mesh
from magmath.memory.tensors import from_torch, to_torch
from magmath.program.instructions import Program
from magmath.runtime import messages
from magmath.runtime.failures import note_line, rebuild
from magmath.runtime.interrupts import Interrupts
from magmath.runtime.messages import Command, Failure, Number, Reply
from magmath.runtime.pending import Pending, Report, Run
from magmath.runtime.tiles import Frame, cut, holders, paste
from magmath.runtime.transport.base import Payload, Traffic, Transport

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 256
"""Commands under way, not yet answered, before the next one waits."""
MAX_PENDING_BYTES: Final = 256 << 20
GRACE: Final = 2.0
"""Seconds in which, after a worker has failed, the others must have failed alike."""
INTERRUPT_TIME: Final = 5.0
"""Seconds that a running program gets to stop after Ctrl-C."""
_TURN: Final = 0.1
_OPEN: Final = nullcontext()
_numbers: Final = count(1)
"""Of arrays, programs and commands: no array has the number of one of another pool."""


@dataclass(frozen=True)
class Topology:
    """Where the workers are: the number of each one's host, and what each of them has."""

    hosts: tuple[int, ...]
    shares_memory: bool
    threads: int
    device: str


class _Defined(NamedTuple):
    """A program that the workers have: its outputs' layouts and types, and the inputs that it takes
    over."""

    program: Program
    results: list[tuple[Layout, DType]]
    donors: tuple[int, ...]


_EXPECTED: Final[dict[type, tuple[type, ...]]] = {
    messages.Put: (messages.Done,),
    messages.Get: (messages.Tile,),
    messages.Read: (messages.Done,),
    messages.Write: (messages.Done,),
    messages.Define: (messages.Done,),
    messages.Run: (messages.Done, messages.Values),
    messages.Stats: (messages.Counters,),
}

_Answered = (
    messages.Put | messages.Get | messages.Alone | messages.Define | messages.Run | messages.Stats
)


class Pool:
    """Workers, reached through `transport`, which this starts.

    workers, mesh   their number (1 for the worker in this process), and all of them in a line
    topology        where they are
    deterministic, seed, memory_limit   the settings of the pool, for those who build programs

    Any thread may call; calls take turns. Every call raises WorkerLost once the pool is closed.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        deterministic: bool = False,
        seed: int = 0,
        memory_limit: int | None = None,
    ) -> None:
        self.deterministic = deterministic
        self.seed = seed
        self.memory_limit = memory_limit
        self.direct = transport.direct
        """True if the one worker lives in this process, where `compute` reaches it."""
        self._transport = transport
        self._lock = threading.RLock()
        self._interrupts = Interrupts()
        self._numbers = _numbers
        self._arrays: dict[int, tuple[Layout, DType]] = {}
        self._failed: dict[int, Failure] = {}
        self._programs: dict[int, _Defined] = {}
        self._released: deque[int] = deque()
        self._pending: dict[int, Pending] = {}
        self._pending_bytes = 0
        self._failing: list[Pending] = []
        self._failing_since = 0.0
        self._ended: Exception | None = None
        self.closed = False
        """Whether the workers have ended, or been lost."""
        hellos = transport.start(self._deliver)
        self.workers = transport.size
        self.mesh = Mesh.line(self.workers)
        self._all = range(self.workers)
        hosts = list(dict.fromkeys(hello.host for hello in hellos))
        self.topology = Topology(
            hosts=tuple([hosts.index(hello.host) for hello in hellos]),
            shares_memory=all(hello.shares_memory for hello in hellos),
            threads=hellos[0].threads,
            device=hellos[0].device.partition(":")[0],
        )
        self._owner = os.getpid()
        atexit.register(self.close)

    def __repr__(self) -> str:
        place = self.topology
        hosts, threads = max(place.hosts) + 1, place.threads
        return (
            f"<Pool of {self.workers} worker{'s' * (self.workers > 1)} on {hosts} "
            f"host{'s' * (hosts > 1)}, {place.device}, {threads} thread{'s' * (threads > 1)} each"
            f"{', sharing memory' * (place.shares_memory and self.workers > 1)}"
            f"{', closed' * self.closed}>"
        )

    @property
    def traffic(self) -> Traffic:
        """What the controller has sent to the workers since the start."""
        return self._transport.traffic

    def put(self, tensor: torch.Tensor, layout: Layout) -> int:
        """Send a CPU tensor to the workers, to each its own tiles only; the array's number.

        Raises ShapeError, DTypeError or LayoutError where tensor, layout and pool do not fit.
        """
        dtype = self._check_put(tensor, layout)
        array, ticket = next(self._numbers), next(self._numbers)
        parts = [
            None if layout.shared and rank != layout.mesh.workers[0] else cut(tensor, layout, rank)
            for rank in self._all
        ]
        encoded = layout if self.direct else layout.encode()
        command = messages.Put(ticket, array, dtype.name, encoded)
        nbytes = sum(part.nbytes for part in parts if part is not None)
        self._arrays[array] = (layout, dtype)
        try:
            self._submit(command, self._all, parts, nbytes=nbytes)
        except BaseException:
            self.release(array)
            raise
        return array

    def get(self, array: int) -> torch.Tensor:
        """The whole array as a new CPU tensor, from as few workers as hold it together.

        Waits for all that was sent before. Raises LayoutError where a reduction is pending.
        """
        layout, dtype = self._known("get", array)
        _require_whole("get", layout)
        # Where there are no elements one worker is asked all the same: it may have failed.
        ranks = holders(layout) or [layout.mesh.workers[0]]
        with self._lock:
            pending = self._submit(messages.Get(next(self._numbers), array), ranks)
            self.wait(pending)
            self._known(
                "get", array
            )  # by now it is known if a worker that was not asked has failed
        whole = _new_tensor(layout.shape, dtype)
        for rank in ranks if whole.numel() else ():
            paste(whole, layout, rank, pending.tiles[rank])
        return whole

    def read(
        self,
        path: str,
        place: Place,
        layout: Layout,
        dtype: DType,
        progress: Report | None = None,
    ) -> int:
        """Have each worker read its own part of an array in a file; the array's number.

        `progress` is told how many bytes some worker has read since it told last. Waits, and raises
        what a worker raised: MissingDataError where one does not see the file.
        """
        array = next(self._numbers)
        encoded = layout if self.direct else layout.encode()
        command = messages.Read(
            next(self._numbers), array, dtype.name, encoded, path, place, progress is not None
        )
        self._arrays[array] = (layout, dtype)
        try:
            self._long(command, self._all, progress)
        except BaseException:
            self.release(array)
            raise
        return array

    def write(self, array: int, path: str, place: Place, progress: Report | None = None) -> None:
        """Have the workers write an array into a file that is there already, each its own part.

        As `read`. Raises LayoutError where a reduction is pending.
        """
        layout, _ = self._known("write", array)
        _require_whole("write", layout)
        ranks = holders(layout) or [layout.mesh.workers[0]]
        command = messages.Write(next(self._numbers), array, path, place, progress is not None)
        self._long(command, ranks, progress)
        self._known("write", array)

    def _long(self, command: messages.Alone, ranks: Sequence[int], progress: Report | None) -> None:
        """Carry out a command that takes long and may be interrupted."""
        run = Run(self, [], 1, progress)
        self._submit(command, ranks, run=run)
        run.values()

    @property
    def held_bytes(self) -> int:
        """The bytes that the arrays take on a worker, at most."""
        return sum([x.max_local_size * dtype.itemsize for x, dtype in self._arrays.values()])

    def release(self, array: int) -> None:
        """Let go of an array. Any thread and finalisers may call; sent with the next command."""
        if self._ended is None and self._arrays.pop(array, None) is not None:
            self._failed.pop(array, None)
            self._released.append(array)

    def define(self, program: Program) -> int:
        """Send a program to the workers, once; its number."""
        if program.workers != self.workers:
            raise LayoutError(
                f"define: the program is planned for {program.workers} workers, "
                f"the pool has {self.workers}; plan it for this pool"
            )
        number = next(self._numbers)
        self._submit(messages.Define(next(self._numbers), number), self._all, [program])
        results = [program.slots[output] for output in program.outputs]
        self._programs[number] = _Defined(
            program,
            [(slot.layout, slot.dtype) for slot in results],
            tuple(program.donated.values()),
        )
        return number

    def forget(self, program: int) -> None:
        """Drop a program."""
        if self._programs.pop(program, None) is not None:
            with self._lock, self._interrupts:
                self._send(messages.Forget(program), self._all)

    def run(
        self,
        program: int,
        inputs: Sequence[int],
        parameters: Sequence[Number] = (),
        steps: int = 1,
        wait: bool = False,
        progress: Report | None = None,
        timed: bool = False,
        beside: bool = False,
    ) -> Run:
        """Run a program `steps` times on arrays, without waiting for it unless told to.

        Inputs that the program takes over (`Program.donated`) are no longer known afterwards.
        `progress` is called while the pool waits: within `Run.values` or any other waiting call.
        A `timed` run makes its steps one instruction at a time and fills `Run.timings`. What only
        moves data may run `beside` later runs, until one of them uses its outputs.
        """
        self._check_open()
        known = self._programs.get(program)
        if known is None:
            raise WorkerError(f"run: program {program} is not defined in this pool; define it")
        for array in inputs:
            if array not in self._arrays or self._failed:
                self._known("run", array)
        outputs = []
        for result in known.results:
            number = next(self._numbers)
            outputs.append(number)
            self._arrays[number] = result
        run = Run(self, outputs, steps, progress, known.program, beside and not timed)
        try:
            if self.direct and steps == 1 and not timed:
                with self._lock:
                    released = self._take_released() if self._released else ()
                    values = self._transport.run(program, inputs, outputs, parameters, released)
                run.finish(values, 1)
            else:
                self._send_run(run, program, inputs, parameters, timed, beside)
            for donor in known.donors:
                self._arrays.pop(inputs[donor], None)
            if wait:
                run.values()
        except BaseException:
            # Nobody will use them, whoever holds the memory. The worker of this process has given
            # back what it would have taken over.
            donors = () if self.direct else known.donors
            for array in (*outputs, *[inputs[donor] for donor in donors]):
                self.release(array)
            raise
        return run

    def ready(
        self, program: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """A call for `again`: runs a program from arrays into those of an earlier run of it.

        For the worker of this process, and programs that emit nothing and take over no input.
        """
        with self._lock:
            self._check_open()
            return self._transport.ready(program, inputs, outputs)

    def again(
        self,
        call: Callable[[Sequence[Number]], object],
        inputs: Sequence[int],
        parameters: Sequence[Number],
    ) -> None:
        """Make a call that `ready` has made from these inputs. Raises as `run`."""
        with self._lock:
            for array in inputs:
                if array not in self._arrays:
                    self._known("run", array)
            self._transport.traffic.messages += 1
            try:
                call(parameters)
            except Exception as error:
                note_line(error)
                raise

    def _send_run(
        self,
        run: Run,
        program: int,
        inputs: Sequence[int],
        parameters: Sequence[Number],
        timed: bool,
        beside: bool,
    ) -> None:
        """Have the workers run a program."""
        wire, report = messages.wire_numbers(list(parameters)), run.progress is not None
        ticket = next(self._numbers)
        command = messages.Run(
            ticket, program, list(inputs), run.outputs, wire, run.steps, report, timed, beside
        )
        self._submit(command, self._all, run=run)

    def compute(
        self, order: Sequence[Node], wanted: Sequence[Node], array_of: Callable[[Node], int]
    ) -> list[int]:
        """Compute `wanted` at once, without a program, on the worker of this process.

        `order` has everything they need, each after its inputs; `array_of` gives the number of
        the array behind a leaf or a known node. Returns the numbers of the new arrays.
        """
        outputs = [next(self._numbers) for _ in wanted]
        with self._lock:
            self._check_open()
            released = self._take_released() if self._released else []
            stored = self._transport.compute(order, wanted, array_of, outputs, released)
            for output, data in zip(outputs, stored, strict=True):
                self._arrays[output] = data.layout, data.dtype
        return outputs

    def stats(self) -> list[dict[str, int | float | str]]:
        """Each worker's counters: its arrays, programs and memory."""
        with self._lock:
            pending = self._submit(messages.Stats(next(self._numbers)), self._all)
            self.wait(pending)
        return [pending.counters[rank] for rank in self._all]

    def close(self) -> None:
        """End the workers, in good order if they can be; nothing of them stays behind."""
        if os.getpid() != self._owner:  # a fork of the controller
            return
        with self._lock, self._interrupts:
            if self._ended is None:
                if self._pending:
                    with suppress(MagmathError):
                        self._send(messages.Interrupt(next(self._numbers)), [0])
                self._end(WorkerLost("the pool has been closed; start a new one"), force=False)

    def wait(self, pending: Pending) -> None:
        """Wait until this command and every earlier one has been answered by all of its workers.

        Raises what went wrong in any of them. On Ctrl-C, stops what runs and raises
        KeyboardInterrupt; a second Ctrl-C meanwhile ends the pool.
        """
        if self.direct:  # it has been answered, or has raised
            self._deliver_interrupt()
            return
        with self._lock, self._interrupts:
            while self._failing or self._waits_for(pending):
                self._raise_failure()
                self._deliver_interrupt()
                self._pump()
        self._deliver_interrupt()
        if pending.failures:
            raise rebuild(pending.failures[0])

    # Sending.

    def _submit(
        self,
        command: _Answered,
        ranks: Sequence[int],
        payloads: Sequence[Payload] = (),
        *,
        nbytes: int = 0,
        run: Run | None = None,
    ) -> Pending:
        """Send a command that will be answered; waits only where too many are under way."""
        expected = _EXPECTED[type(command)]
        alone = isinstance(command, messages.Alone)
        pending = Pending(command.ticket, ranks, expected, set(ranks), nbytes, run, alone)
        if run is not None:
            run.pending = pending
        at_once = self.direct and run is None  # Ctrl-C may come at any point
        with self._lock:
            with _OPEN if at_once else self._interrupts:
                self._pending[pending.ticket] = pending
                self._pending_bytes += nbytes
                try:
                    self._send(command, ranks, payloads)
                except BaseException:
                    self._settle(pending)
                    raise
            if not self.direct:
                self._interrupts.deliver()
                while len(self._pending) > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES:
                    self.wait(next(iter(self._pending.values())))
        return pending

    def _send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        self._check_open()
        try:
            if self._released:
                self._transport.send(messages.Free(self._take_released()), self._all)
            self._transport.send(command, ranks, payloads)
        except WorkerLost as lost:
            self._lose(lost)

    def _take_released(self) -> list[int]:
        arrays, released = [], self._released
        while released:  # a finaliser may add to it at any moment
            arrays.append(released.popleft())
        return arrays

    @property
    def any_failed(self) -> bool:
        """True if an array is known to have failed."""
        return bool(self._failed)

    def has_failed(self, array: int) -> bool:
        """True if the run that was to make the array is known to have failed."""
        return array in self._failed

    def _check_open(self) -> None:
        if self._ended is not None:
            raise WorkerLost(str(self._ended)) from self._ended

    def _known(self, what: str, array: int) -> tuple[Layout, DType]:
        self._check_open()
        known = self._arrays.get(array)
        if known is None:
            raise WorkerError(
                f"{what}: array {array} is not in this pool: it was released, a run has taken over "
                f"its memory, or it belongs to another pool"
            )
        if array in self._failed:
            raise rebuild(self._failed[array])
        return known

    def _check_put(self, tensor: torch.Tensor, layout: Layout) -> DType:
        if tuple(tensor.shape) != layout.shape:
            raise ShapeError(
                f"put: the layout is for shape {layout.shape}, the array has shape "
                f"{tuple(tensor.shape)}; bind the layout to this shape"
            )
        if max(layout.mesh.workers) >= self.workers:
            raise LayoutError(
                f"put: layout {layout} needs worker {max(layout.mesh.workers)}, the pool has "
                f"workers 0 to {self.workers - 1}; use a mesh of the pool's workers"
            )
        if layout.is_partial:
            raise LayoutError(
                f"put: layout {layout} has a pending reduction; put the array replicated or split "
                f"and redistribute it"
            )
        try:
            return from_torch(tensor.dtype)
        except KeyError:
            raise DTypeError(
                f"put: arrays of {tensor.dtype} cannot be sent to the workers; convert the array "
                f"to one of magmath's dtypes"
            ) from None

    # Receiving.

    def _pump(self) -> None:
        self._check_open()
        try:
            self._transport.pump(_TURN)
        except WorkerLost as lost:
            self._lose(lost)

    def _deliver(self, rank: int, reply: Reply, frame: Frame | None) -> bool:
        """Take a worker's reply; true where a run in this process should stop."""
        ticket = getattr(reply, "ticket", 0)
        pending = self._pending.get(ticket)
        if pending is None or rank not in pending.waiting:
            if isinstance(reply, Failure) and ticket == 0:
                lost = WorkerLost(f"worker {rank} failed: {reply.message}; start a new pool")
                lost.add_note(reply.traceback)
                raise lost
            logger.warning("dropped %s of worker %d: nothing waits for it", type(reply), rank)
            return False
        if isinstance(reply, messages.Progress):
            return self._report(pending.run, reply)
        pending.take(rank, reply, frame)
        if isinstance(reply, Failure) and pending.run is not None:
            self._failed.update({a: reply for a in pending.run.outputs if a in self._arrays})
        if isinstance(reply, Failure) and not reply.secondary and pending not in self._failing:
            self._failing.append(pending)
            self._failing_since = time.monotonic()
        if not pending.waiting:
            self._settle(pending)
        return False

    def _report(self, run: Run | None, reply: messages.Progress) -> bool:
        if run is None:
            return False
        if run.progress is not None and run.error is None:
            try:
                run.progress(reply.steps, reply.values)
            except BaseException as error:
                run.error = error
                self._send(messages.Interrupt(reply.ticket), [0])
        return run.error is not None or self._interrupts.count > 0

    def _settle(self, pending: Pending) -> None:
        """Nothing more is expected of this command."""
        if self._pending.pop(pending.ticket, None) is not None:
            self._pending_bytes -= pending.nbytes

    def _waits_for(self, pending: Pending) -> bool:
        """Whether this command, or one that was sent before it, has not been answered."""
        return bool(pending.waiting) or next(iter(self._pending), pending.ticket) < pending.ticket

    # When something goes wrong.

    def _raise_failure(self) -> None:
        """Raise the first failure, once it is known whether the workers are in step.

        They are if those that failed went on to the end of the command, or if all failed alike, so
        that none went further than another: then the pool goes on. Else some may wait for ever for
        those that failed, and the pool is closed.
        """
        if not self._failing:
            return
        first = self._failing[0]
        primary = [failure for failure in first.failures if not failure.secondary]
        error = rebuild(min(primary, key=lambda failure: failure.rank))
        goes_on = first.alone or first.in_step
        if goes_on or first.failed_alike:
            if first.waiting:
                return
            del self._failing[0]
            if not goes_on:
                self._send(messages.Resume(), self._all)
            raise error
        if not first.waiting or time.monotonic() > self._failing_since + GRACE:
            error.add_note(
                "The workers did not all fail alike: the pool is closed, start a new one."
            )
            self._end(
                WorkerLost(
                    f"the pool was closed because a worker failed: {error}; start a new one"
                ),
                force=True,
            )
            raise error

    def _deliver_interrupt(self) -> None:
        """Raise a held Ctrl-C, once what runs has stopped."""
        try:
            self._interrupts.deliver()
        except BaseException:
            # The interrupt is what the caller hears of, whatever else goes wrong.
            with self._lock, self._interrupts, suppress(Exception):
                self._stop_runs()
            self._interrupts.count = 0
            raise

    def _stop_runs(self) -> None:
        """Stop what runs at a step that all workers share; a second Ctrl-C ends the pool."""
        if self._pending:
            self._send(messages.Interrupt(max(self._pending)), self._all)
        deadline = time.monotonic() + INTERRUPT_TIME
        while self._pending and time.monotonic() < deadline:
            if self._interrupts.count:
                closed = WorkerLost("the pool was closed by a second Ctrl-C; start a new one")
                self._end(closed, force=True)
                return
            self._pump()

    def _lose(self, lost: WorkerLost) -> NoReturn:
        """Close the pool, and raise why: an exception of the lost worker if it left one."""
        self._end(lost, force=True)
        primary = [f for pending in self._failing for f in pending.failures if not f.secondary]
        if primary:
            error = rebuild(primary[0])
            error.add_note(str(lost))
            raise error from None
        raise lost

    def _end(self, reason: WorkerLost, *, force: bool) -> None:
        self._ended, self.closed = reason, True
        atexit.unregister(self.close)
        self._transport.close(force=force)
        self._pending.clear()
        self._arrays.clear()
        self._failed.clear()
        self._programs.clear()
        self._released.clear()


def _new_tensor(shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    try:
        return torch.empty(shape, dtype=to_torch(dtype))
    except RuntimeError as error:
        raise MemoryLimitError(
            f"get: this process has no memory for all of an array of {shape} {dtype}; ask for "
            f"parts of it, or save it to a file"
        ) from error


def _require_whole(operation: str, layout: Layout) -> None:
    if layout.is_partial:
        raise LayoutError(
            f"{operation} needs an array without pending reductions, this one is {layout}; "
            f"redistribute it first"
        )
