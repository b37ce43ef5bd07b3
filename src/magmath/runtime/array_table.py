"""The table of a worker's arrays, by id, and the lifetime of their memory.

Every worker of a pool receives the same allocations and releases, so the heaps stay symmetric
without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from magmath.comm import Communicator
from magmath.comm.progress_thread import ProgressThread
from magmath.errors import WorkerError
from magmath.memory.heap import Heap
from magmath.memory.local_array import LocalArray, TileSpec
from magmath.program.instructions import Program
from magmath.runtime.async_transfers import AsyncTransfers


@final
class ArrayTable:
    """The arrays of a worker, in `heap`; its progress thread may transfer some of them
    concurrently. With `frees_at_once`, the memory of an array that a transfer uses is freed at its
    release, after a wait for the transfer.
    """

    def __init__(
        self, comm: Communicator, heap: Heap, *, transfers_async: bool, frees_at_once: bool
    ) -> None:
        self._comm = comm
        self._heap = heap
        self._transfers_async = transfers_async
        self._frees_at_once = frees_at_once
        self._arrays: dict[int, LocalArray] = {}
        self.transfers: AsyncTransfers | None = None
        """The asynchronous transfers; None before the first one."""

    def __len__(self) -> int:
        return len(self._arrays)

    def progress_thread(self) -> ProgressThread | None:
        """Return the progress thread, created on first use. Collective.

        None with a single worker, and on a GPU, whose streams are not used by two threads.
        """
        if self.transfers is None and self._comm.size > 1 and self._transfers_async:
            comm = self._comm.duplicate()
            self.transfers = None if comm is None else AsyncTransfers(ProgressThread(comm))
        return None if self.transfers is None else self.transfers.progress_thread

    def has_all(self, array_ids: Sequence[int]) -> bool:
        """Return True if all arrays are stored."""
        return all(array_id in self._arrays for array_id in array_ids)

    def add(self, array_id: int, stored: LocalArray) -> None:
        """Add an array under an id."""
        self._arrays[array_id] = stored

    def get(self, array_id: int) -> LocalArray:
        """Return an array, after pending transfers to it."""
        if self.transfers is not None:
            self.transfers.wait_for(array_id)
        stored = self._arrays.get(array_id)
        if stored is None:
            raise WorkerError(
                f"array {array_id} is not on worker {self._comm.rank}: it was released, or donated "
                f"to a run"
            )
        return stored

    def drop(self, array_ids: Sequence[int]) -> None:
        """Release arrays."""
        if self._frees_at_once:  # frees memory immediately
            self.finish_transfers(writes=array_ids)
        unused: list[LocalArray] = []
        for array_id in array_ids:
            stored = self._arrays.pop(array_id, None)
            if stored is None or (self.transfers and self.transfers.release(array_id, stored)):
                continue
            unused.append(stored)
        self._free(unused)

    def finish_transfers(
        self,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        program_id: int | None = None,
        max_transfers: int | None = None,
    ) -> None:
        """Wait for conflicting transfers; see `AsyncTransfers.finish_conflicting`."""
        if self.transfers is not None:
            self._free(self.transfers.finish_conflicting(reads, writes, program_id, max_transfers))

    def _free(self, released: Sequence[LocalArray]) -> None:
        if self._comm.size > 1 and any(stored.layout.shared for stored in released):
            self._comm.barrier()  # a peer may still read shared memory
        for stored in released:
            self._heap.free(stored.block)

    def inputs(self, program: Program, inputs: Sequence[int]) -> list[LocalArray]:
        """Return the arrays that a run reads."""
        if self.transfers is not None:
            self.finish_transfers(inputs, [inputs[x] for x in program.donated.values()])
        arrays = self._arrays
        return [arrays.get(array_id) or self.get(array_id) for array_id in inputs]

    def outputs(
        self,
        program: Program,
        results: Sequence[TileSpec],
        inputs: Sequence[int],
        outputs: Sequence[int],
        read: Sequence[LocalArray],
    ) -> list[LocalArray]:
        """Return the outputs of a run that reads the arrays `read`: donated inputs under their new
        ids, otherwise new memory."""
        arrays: list[LocalArray] = []
        donated = program.donated
        try:
            for position, result in enumerate(results):
                is_donated = position in donated
                arrays.append(
                    read[donated[position]] if is_donated else result.allocate(self._heap)
                )
        except Exception as error:
            from magmath.executor.error_context import attach_user_line

            for position, stored in enumerate(arrays):
                if position not in donated:
                    stored.free(self._heap)
            attach_user_line(error, program.writer(program.outputs[len(arrays)]))
            raise
        if donated:
            self.move_donated(program, inputs, outputs)
        self._arrays.update(zip(outputs, arrays, strict=True))
        return arrays

    def move_donated(self, program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Move donated inputs to the ids of the outputs."""
        for position, donor in program.donated.items():
            stored = self._arrays.pop(inputs[donor], None)
            if stored is not None:
                self._arrays[outputs[position]] = stored

    def restore_donated(
        self, program: Program, inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        """Move donated inputs back to their old ids."""
        for position, donor in program.donated.items():
            self._arrays[inputs[donor]] = self._arrays.pop(outputs[position])

    def close(self) -> None:
        """Close the progress thread and drop all arrays; the heap frees their memory."""
        if self.transfers is not None:
            self.transfers.progress_thread.close()
        self._arrays.clear()
