"""The queue of commands to the workers: sent asynchronously, with tickets; replies come later.

The next waiting call, at the latest `finish`, raises the failure of an asynchronous run
(`runtime/failing_commands.py`); the first use of an array, the failure of its transfer.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, NoReturn, final
from weakref import WeakSet

import msgspec
import numpy as np

from magmath.core.dtypes import DType
from magmath.core.type_aliases import Number
from magmath.errors import WorkerLost
from magmath.layout import Layout
from magmath.memory.local_array import LocalArray
from magmath.runtime import messages
from magmath.runtime.array_registry import ArrayRegistry
from magmath.runtime.failing_commands import FailingCommands, Outcome
from magmath.runtime.interrupts import DeferredInterrupts, Interrupts
from magmath.runtime.messages import Command, Failure, Reply
from magmath.runtime.queue_limit import MAX_COMMANDS, QueueLimit
from magmath.runtime.run_handle import PendingCommand, RunHandle
from magmath.runtime.tiles import TileData
from magmath.runtime.transport_interface import Expression, Payload, Transport

logger = logging.getLogger(__name__)

MAX_PENDING_BYTES: Final = 256 << 20
"""Maximum bytes of the data of commands whose replies are missing."""
INTERRUPT_SECONDS: Final = 5.0
"""Seconds that a running program has to stop after Ctrl-C."""
REPEATED_INTERRUPT_SECONDS: Final = 1.0
"""Seconds in which repeated Ctrl-C count as one."""
_CLOSED: Final = (
    "the pool has been closed; start a new one, and make its arrays again, which are lost with it"
)
_PUMP_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 1.0
"""Seconds of a wait for replies from which this process, and its workers with it, may have been
stopped."""


@final
class CommandQueue:
    """Sends commands to the workers through `transport`, which the constructor starts.

    registry    gets the failures of arrays
    on_end      called when the workers have ended

    Attributes:

    hellos      the Hello messages of the workers
    is_inline   True if the only worker is in this process, where `run` and `compute` call it
    lock        held while a thread sends or receives, so that several threads may send commands
    end_reason  the reason why the workers are unreachable; None while the pool is open
    """

    def __init__(
        self,
        transport: Transport,
        registry: ArrayRegistry,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self.is_inline = transport.is_inline
        self._transport = transport
        self._registry = registry
        self._on_end = on_end
        self.lock = threading.RLock()
        self.interrupts = Interrupts()
        self.deferred_interrupts = DeferredInterrupts(self.interrupts, self._deliver_interrupt)
        self._tickets = count(1)
        self._released: deque[int] = deque()
        self._pending: dict[int, PendingCommand] = {}
        self._pending_bytes = 0
        self._limit = QueueLimit()
        self._failing = FailingCommands()
        self.end_reason: str | None = None
        transport.is_interrupted = lambda: self.interrupts.is_due
        self.hellos = transport.start(self._handle_reply)
        self._all_ranks = range(transport.size)
        self._owner = os.getpid()
        atexit.register(self._close_at_exit)
        _queues.add(self)

    def check_open(self) -> None:
        """Raise WorkerLost, with the reason, if the workers have ended or are unreachable."""
        if self.end_reason is not None:
            raise WorkerLost(self.end_reason)

    def next_ticket(self) -> int:
        """Return the ticket of the next command with a reply."""
        return next(self._tickets)

    def submit(
        self,
        command: messages.CommandWithReply,
        ranks: Sequence[int] | None = None,
        payloads: Sequence[Payload] = (),
        *,
        nbytes: int = 0,
        run: RunHandle | None = None,
        array_id: int | None = None,
    ) -> PendingCommand:
        """Send a command with a reply to all or some workers.

        Waits only if too many commands are pending.
        """
        ranks = self._all_ranks if ranks is None else ranks
        expected = messages.EXPECTED_REPLIES[type(command)]
        is_independent = isinstance(command, messages.FileCommand)
        pending = PendingCommand(
            command.ticket, ranks, expected, set(ranks), nbytes, run, is_independent, array_id
        )
        if run is not None:
            run.pending = pending
        with self.lock:
            with self.interrupts:
                if not self._pending:
                    self._limit.restart()
                self._pending[pending.ticket] = pending
                self._pending_bytes += nbytes
                try:
                    self._send(command, ranks, payloads)
                except BaseException as error:
                    self._remove(pending)
                    if isinstance(error, InterruptedError):  # the inline worker has stopped
                        self._deliver_interrupt()
                    if run is None or run.error is None:  # `values` raises that of its progress
                        raise
            if not self.is_inline:
                if run is None:  # after a run, its caller does so, when it can repeat the run
                    self._deliver_interrupt()
                self._wait_for_room()  # raises nothing; the limit below, which is higher, may
                while self._is_full():
                    self.wait(next(iter(self._pending.values())))
        return pending

    def request(
        self, command: messages.CommandWithReply, ranks: Sequence[int] | None = None
    ) -> PendingCommand:
        """Send a command and wait for its replies."""
        with self.lock:
            pending = self.submit(command, ranks)
            self.wait(pending)
        return pending

    def notify(self, command: Command) -> None:
        """Send a command without a reply to all workers."""
        with self.lock, self.interrupts:
            self._send(command, self._all_ranks)

    def release(self, array_id: int) -> None:
        """Release an array with the next command. Safe in finalizers."""
        if self.end_reason is None:
            self._released.append(array_id)

    def run(
        self,
        program_id: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        scalars: Sequence[Number],
    ) -> list[float]:
        """Run one step of a program on the inline worker; return the scalars that it emits."""
        try:
            with self.lock, self.interrupts:
                released = self._take_released() if self._released else ()
                return self._transport.run(program_id, inputs, outputs, scalars, released)
        except InterruptedError:
            self._deliver_interrupt()
            raise

    def compute(
        self,
        order: Sequence[Expression],
        requested: Sequence[Expression],
        array_ids: Mapping[Expression, int],
        outputs: Sequence[int],
    ) -> list[LocalArray]:
        """Compute nodes on the inline worker; see `Pool.compute`."""
        with self.lock, self.interrupts:
            self.check_open()
            released = self._take_released() if self._released else ()
            return self._transport.compute(order, requested, array_ids, outputs, released)

    def store(
        self, array_id: int, values: np.ndarray[Any, Any], layout: Layout, dtype: DType
    ) -> None:
        """Copy an array into the memory of the inline worker."""
        with self.lock, self.interrupts:
            self.check_open()
            self._transport.store(array_id, values, layout, dtype)

    def get(self, array_id: int) -> LocalArray:
        """Return the array of this id on the inline worker."""
        with self.lock:
            self.check_open()
            return self._transport.get(array_id)

    def wait(self, pending: PendingCommand) -> None:
        """Wait until all workers of this command and of every earlier one have replied.

        Raises the first failure of these commands. On Ctrl-C, stops running programs and raises
        KeyboardInterrupt; a second Ctrl-C closes the pool.
        """
        if self.is_inline:  # inline commands have their replies, or have raised
            self._deliver_interrupt()
            return
        self._pump_while(lambda: self._failing or self._is_outstanding(pending))
        self._deliver_interrupt()
        if pending.failures:
            raise self._registry.reported_error(pending.failures[0])

    def raise_failure(self) -> None:
        """Raise the first failure that has arrived and was not raised yet, if there is one."""
        self._pump_while(lambda: self._failing)

    def wait_ignoring_failures(self, pending: PendingCommand) -> None:
        """Wait as `wait` does, but drop the failures of these commands unless the pool ends."""
        self._pump_while(
            lambda: self._failing or self._is_outstanding(pending), drops_failures=True
        )
        self._deliver_interrupt()

    def interrupt_point(self) -> None:
        """Deliver a Ctrl-C that arrived while the inline worker was running."""
        if self.interrupts.count:
            self._deliver_interrupt()

    def finish(self) -> None:
        """Wait for all commands. Raises the first failure that has not been raised."""
        self._pump_while(lambda: self.end_reason is None and (self._failing or self._pending))
        self._registry.raise_unreported()

    def close(self) -> None:
        """Stop the workers, orderly if possible, and remove their processes and files."""
        if self.end_reason is not None or os.getpid() != self._owner:  # in a fork of the controller
            return
        with self.lock, self.interrupts:
            if self._pending:
                with suppress(Exception):  # of a lost worker, which has ended the pool
                    self._send(messages.Interrupt(self.next_ticket()), [0])
            if self.end_reason is None:
                self._end(WorkerLost(_CLOSED), force=False)

    def adapt_to_fork(self) -> None:
        """Adapt this object in a fork of the process that started the workers.

        The fork has a working copy of an inline worker. Other workers reply only to the original
        controller. Threads that may have held the lock do not exist in the fork.
        """
        self.lock = threading.RLock()
        if not self.is_inline:
            self.end_reason = (
                "this process is a fork of the one whose pool it is, and cannot reach its workers; "
                "pass values to it (np.asarray(x)), or start other workers here with mm.init()"
            )

    def _close_at_exit(self) -> None:
        """Close the pool at exit; after an uncaught exception (in an interactive session: any), do
        not wait for pending commands."""
        try:
            if not hasattr(sys, "last_value") and os.getpid() == self._owner:
                self.finish()
        finally:
            self.close()

    # Sending.

    def _send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        """Send a command, after the releases that wait for one."""
        self.check_open()
        try:
            if self._released and isinstance(command, messages.Run):
                released = self._take_released()
                try:
                    run = msgspec.structs.replace(command, released=released)
                    self._transport.send(run, ranks, payloads)
                except Exception:
                    self._released.extend(released)
                    raise
                return
            if self._released:
                self._transport.send(messages.Free(self._take_released()), self._all_ranks)
            self._transport.send(command, ranks, payloads)
        except WorkerLost as lost:
            self._close_after_loss(lost)

    def _take_released(self) -> list[int]:
        """Return the ids of the released arrays, which then are no more in the queue."""
        array_ids, released = [], self._released
        while released:  # a finalizer may append at any time
            array_ids.append(released.popleft())
        return array_ids

    # Receiving.

    def _pump_while(self, condition: Callable[[], object], *, drops_failures: bool = False) -> None:
        """Handle replies and Ctrl-C while the condition holds. Raises the first failure, or drops
        the failures unless the pool ends."""
        with self.lock, self.interrupts:
            while condition():
                try:
                    self._raise_failure()
                except Exception:
                    if not drops_failures or self.end_reason is not None:
                        raise
                    continue
                self._deliver_interrupt()
                self._pump()

    def _pump(self) -> None:
        """Handle the replies that have arrived, or wait a moment for the first one."""
        self.check_open()
        start = time.monotonic()
        try:
            self._transport.pump(_PUMP_SECONDS)
        except WorkerLost as lost:
            self._close_after_loss(lost)
        pause = time.monotonic() - start
        if pause > _PAUSE_SECONDS:
            self._failing.extend_grace(pause)

    def _handle_reply(self, rank: int, reply: Reply, data: TileData | None) -> bool:
        """Process a worker's reply; return True if an inline run should stop."""
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
            return self._report_progress(pending.run, reply)
        pending.add_reply(rank, reply, data)
        if isinstance(reply, Failure):
            self._registry.mark_failed(pending.outputs, reply)
        if isinstance(reply, Failure) and not (reply.secondary or pending.is_cancelled):
            self._failing.add(pending)
        if not pending.waiting:
            self._remove(pending)
        return False

    def _report_progress(self, run: RunHandle | None, reply: messages.Progress) -> bool:
        """Call the progress function of a run; return True if the run should stop."""
        if run is None:
            return False
        if run.progress is not None and run.error is None:
            try:
                run.progress(reply.steps, reply.values)
            except BaseException as error:
                run.error = error
                self._send(messages.Interrupt(reply.ticket), self._all_ranks)
        return run.error is not None or self.interrupts.count > 0

    def _remove(self, pending: PendingCommand) -> None:
        """Remove a completed command."""
        if self._pending.pop(pending.ticket, None) is not None:
            self._limit.count_reply()
            self._pending_bytes -= pending.nbytes
        if pending.run is not None:
            pending.run.progress = None  # it may refer to the owner of the run's results
            if not pending.failures:
                pending.run.recovery = None
            pending.run = None

    def _wait_for_room(self) -> None:
        """Wait until the workers have no more than about a second of work. A failure or a Ctrl-C
        ends the wait, and is raised where the callers of this queue expect it."""
        with self.interrupts:
            while len(self._pending) > self._limit.commands:
                if self._failing or self.interrupts.is_due:
                    return
                self._pump()

    def _is_full(self) -> bool:
        """Return True if too many commands are pending, or too many bytes."""
        return len(self._pending) > MAX_COMMANDS or self._pending_bytes > MAX_PENDING_BYTES

    def _is_outstanding(self, pending: PendingCommand) -> bool:
        """Return True if replies to this command or to an earlier one are missing."""
        return bool(pending.waiting) or next(iter(self._pending), pending.ticket) < pending.ticket

    # Failures.

    def _raise_failure(self) -> None:
        """Raise the first failure, if not its use does, after it is known whether the workers can
        continue; close the pool if they cannot."""
        pending = self._pending.values()
        outcome = self._failing.outcome(pending) if self._failing else Outcome.UNKNOWN
        if outcome is Outcome.UNKNOWN:
            return
        error = self._failing.first_error()
        if outcome is Outcome.ENDS:
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
        failed = self._failing.remove_first()
        if failed.is_raised_at_use:
            self._registry.unreported.add(failed.ticket)
            return
        if outcome is Outcome.RESUMES:
            self._send(messages.Resume(), self._all_ranks)
        raise error

    def _deliver_interrupt(self) -> None:
        """Raise a deferred Ctrl-C after running programs have stopped."""
        try:
            self.interrupts.deliver()
        except BaseException:
            # The interrupt takes precedence over other failures.
            with self.lock, self.interrupts, suppress(Exception):
                self._stop_runs()
            self.interrupts.count = 0
            raise

    def _stop_runs(self) -> None:
        """Stop runs at a step that all workers share. A second Ctrl-C closes the pool, unless it
        follows immediately, as from a held key. Transfers of files that go on are cancelled: what
        they need may be removed."""
        if self._pending:
            runs = [p.run for p in self._pending.values() if p.run is not None]
            abandon = not any(run.should_finish for run in runs)
            self._send(messages.Interrupt(max(self._pending), abandon), self._all_ranks)
        start = time.monotonic()
        while self._pending and time.monotonic() < start + INTERRUPT_SECONDS:
            if time.monotonic() < start + REPEATED_INTERRUPT_SECONDS:
                self.interrupts.count = 0
            elif self.interrupts.count:
                closed = WorkerLost("the pool was closed by a second Ctrl-C; start a new one")
                self._end(closed, force=True)
                return
            self._pump()
        for pending in self._pending.values():
            pending.is_cancelled = pending.is_independent

    def _close_after_loss(self, lost: WorkerLost) -> NoReturn:
        """Close the pool and raise the cause: an exception of the lost worker if it sent one."""
        self._end(lost, force=True)
        error = self._failing.earliest_error()
        if error is not None:
            error.add_note(str(lost))
            raise error from None
        raise lost

    def _end(self, reason: WorkerLost, *, force: bool) -> None:
        """Stop the workers, and drop what refers to them even if stopping fails."""
        self.end_reason = str(reason)
        atexit.unregister(self._close_at_exit)
        try:
            self._transport.close(force=force)
        finally:
            self._pending.clear()
            self._released.clear()
            self._on_end()


_queues: WeakSet[CommandQueue] = WeakSet()


def _adapt_queues_to_fork() -> None:
    for queue in _queues:
        queue.adapt_to_fork()


os.register_at_fork(after_in_child=_adapt_queues_to_fork)
