"""What a worker's progress thread is doing, and which arrays it may not lose or change meanwhile.

Arrays that an task writes are waited for at their first use. Arrays that it reads stay as they
are until it is done: nothing may take over their memory, and when they are released, their memory
is given back later. That happens at commands which every worker gets, never when an task happens
to end, so that the heaps stay equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from magmath.comm.progress_thread import ProgressThread, Task
from magmath.memory.local_array import LocalArray

MAX_TRANSFERS: Final = 4
"""Errands that nobody has waited for before the first of them is."""


@dataclass(eq=False, slots=True)
class Transfer:
    """An task with the program it runs, the arrays it reads and writes, and those of them that
    have been released meanwhile."""

    task: Task
    program: int
    reads: frozenset[int]
    writes: frozenset[int]
    released: list[LocalArray] = field(default_factory=list)


class AsyncTransfers:
    """The transfers of one worker, in the order in which they began."""

    def __init__(self, progress_thread: ProgressThread) -> None:
        self.progress_thread = progress_thread
        self.started = 0
        """Transfers so far."""
        self.overlapped_runs = 0
        """Runs that were done while some transfer was under way."""
        self._transfers: list[Transfer] = []

    def add(self, task: Task, program: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """A transfer has begun."""
        self.started += 1
        self._transfers.append(Transfer(task, program, frozenset(reads), frozenset(writes)))

    def count_run(self) -> None:
        """A run has been done."""
        self.overlapped_runs += any(not transfer.task.done for transfer in self._transfers)

    def wait_for(self, array: int) -> None:
        """Return when an array is there. Raises what went wrong on the way."""
        for transfer in self._transfers:
            if array in transfer.writes:
                transfer.task.wait()

    def release(self, array: int, stored: LocalArray) -> bool:
        """Keep the memory of a released array that a transfer uses; false if none does."""
        for transfer in reversed(self._transfers):
            if array in transfer.reads or array in transfer.writes:
                transfer.released.append(stored)
                return True
        return False

    def finish_conflicting(
        self,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        program: int | None = None,
        most: int | None = None,
    ) -> list[LocalArray]:
        """End the transfers that stand in the way of reading or writing arrays, of a program, or of
        there being at most so many; the memory that can be given back then.

        For commands that every worker gets. Raises what went wrong in a transfer.
        """
        chosen = [
            transfer
            for number, transfer in enumerate(self._transfers)
            if transfer.program == program
            or not transfer.writes.isdisjoint([*reads, *writes])
            or not transfer.reads.isdisjoint(writes)
            or (most is not None and number < len(self._transfers) - most)
        ]
        return self._end(chosen)

    def _end(self, chosen: Sequence[Transfer]) -> list[LocalArray]:
        released: list[LocalArray] = []
        for transfer in chosen:
            self._transfers.remove(transfer)
            transfer.task.wait()
            released += transfer.released
        return released
