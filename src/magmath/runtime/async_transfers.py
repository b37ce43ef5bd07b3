"""Transfers on a worker's progress thread, and the arrays that they read and write.

The first use of an array that a transfer writes waits for the transfer. Arrays that it reads stay
unchanged until it ends: their memory is not donated, and released arrays are freed later. Memory is
freed at commands that every worker receives, never when a transfer happens to end, so that the
heaps stay symmetric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from magmath.comm.progress_thread import ProgressThread, Task
from magmath.memory.local_array import LocalArray

MAX_TRANSFERS: Final = 4
"""Maximum number of pending transfers; a further one first waits for the oldest."""


@final
@dataclass(eq=False, slots=True)
class Transfer:
    """A task, the ids of its program and of the arrays that it reads and writes, and the arrays
    that were released since it started."""

    task: Task
    program_id: int
    reads: frozenset[int]
    writes: frozenset[int]
    released: list[LocalArray] = field(default_factory=list)


@final
class AsyncTransfers:
    """The transfers of one worker, in the order of their start."""

    def __init__(self, progress_thread: ProgressThread) -> None:
        self.progress_thread = progress_thread
        self.started = 0
        """Number of transfers so far."""
        self.overlapped_runs = 0
        """Number of runs that completed while a transfer was pending."""
        self._transfers: list[Transfer] = []

    def add(self, task: Task, program_id: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """Add a transfer that has started."""
        self.started += 1
        self._transfers.append(Transfer(task, program_id, frozenset(reads), frozenset(writes)))

    def count_run(self) -> None:
        """Count a completed run."""
        self.overlapped_runs += any(not transfer.task.is_done for transfer in self._transfers)

    def wait_for(self, array_id: int) -> None:
        """Wait for the transfers that write an array. Raises their exceptions."""
        for transfer in self._transfers:
            if array_id in transfer.writes:
                transfer.task.wait()

    def release(self, array_id: int, stored: LocalArray) -> bool:
        """Defer freeing a released array that a transfer uses; return False if no transfer uses
        it."""
        for transfer in reversed(self._transfers):
            if array_id in transfer.reads or array_id in transfer.writes:
                transfer.released.append(stored)
                return True
        return False

    def finish_conflicting(
        self,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        program_id: int | None = None,
        max_transfers: int | None = None,
    ) -> list[LocalArray]:
        """Wait for the transfers that conflict with reading or writing arrays, that run a program,
        or that exceed `max_transfers`; return the arrays that can be freed then.

        Call it for commands that every worker receives. Raises the exceptions of the transfers.
        """
        chosen = [
            transfer
            for position, transfer in enumerate(self._transfers)
            if transfer.program_id == program_id
            or not transfer.writes.isdisjoint([*reads, *writes])
            or not transfer.reads.isdisjoint(writes)
            or (max_transfers is not None and position < len(self._transfers) - max_transfers)
        ]
        return self._end(chosen)

    def _end(self, chosen: Sequence[Transfer]) -> list[LocalArray]:
        released: list[LocalArray] = []
        for transfer in chosen:
            self._transfers.remove(transfer)
            transfer.task.wait()
            released += transfer.released
        return released
