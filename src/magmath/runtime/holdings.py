"""The arrays that a worker holds, by their numbers, and who may use their memory when.

Every worker of a pool is told alike what to make and what to let go, so the heaps stay equal
without talk.
"""

from __future__ import annotations

from collections.abc import Sequence

from magmath.comm import Communicator
from magmath.comm.courier import Courier
from magmath.errors import WorkerError
from magmath.memory.heap import Heap
from magmath.memory.stored import Piece, Stored
from magmath.program.instructions import Program
from magmath.runtime.beside import Beside


class Holdings:
    """A worker's arrays, in `heap`, some of which its courier may be moving.

    With `sparing`, released memory is given back at once, if a transfer must be waited for.
    """

    def __init__(
        self, comm: Communicator, heap: Heap, *, moves_beside: bool, sparing: bool
    ) -> None:
        self._comm = comm
        self._heap = heap
        self._moves_beside = moves_beside
        self._sparing = sparing
        self._arrays: dict[int, Stored] = {}
        self.beside: Beside | None = None
        """The transfers, once there has been one."""

    def __len__(self) -> int:
        return len(self._arrays)

    def courier(self) -> Courier | None:
        """Who moves data beside this worker's own work; made when first asked for. Collective.

        None where there is nobody to exchange data with, or on a GPU, whose streams are not made to
        be used by two threads.
        """
        if self.beside is None and self._comm.size > 1 and self._moves_beside:
            comm = self._comm.beside()
            self.beside = None if comm is None else Beside(Courier(comm))
        return None if self.beside is None else self.beside.courier

    def add(self, array: int, stored: Stored) -> None:
        """Hold an array under this number."""
        self._arrays[array] = stored

    def get(self, array: int) -> Stored:
        """An array, waited for if it is on its way."""
        if self.beside is not None:
            self.beside.wait_for(array)
        stored = self._arrays.get(array)
        if stored is None:
            raise WorkerError(
                f"array {array} is not on worker {self._comm.rank}: it was released, or a run has "
                f"taken over its memory"
            )
        return stored

    def drop(self, arrays: Sequence[int]) -> None:
        """Let go of arrays."""
        if self._sparing:  # the memory is wanted now
            self.end_transfers(writes=arrays)
        found: list[Stored] = []
        for array in arrays:
            stored = self._arrays.pop(array, None)
            if stored is None or (self.beside and self.beside.release(array, stored)):
                continue
            found.append(stored)
        self._give_back(found)

    def end_transfers(
        self,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        program: int | None = None,
        most: int | None = None,
    ) -> None:
        """Wait for the transfers that stand in the way; see `Beside.ended`."""
        if self.beside is not None:
            self._give_back(self.beside.ended(reads, writes, program, most))

    def _give_back(self, released: Sequence[Stored]) -> None:
        if self._comm.size > 1 and any(stored.layout.shared for stored in released):
            self._comm.barrier()  # a peer may still read it
        for stored in released:
            self._heap.free(stored.block)

    def inputs(self, program: Program, inputs: Sequence[int]) -> list[Stored]:
        """The arrays that a run reads."""
        if self.beside is not None:
            self.end_transfers(inputs, [inputs[x] for x in program.donated.values()])
        arrays = self._arrays
        return [arrays.get(array) or self.get(array) for array in inputs]

    def outputs(
        self,
        program: Program,
        results: Sequence[Piece],
        inputs: Sequence[int],
        outputs: Sequence[int],
        given: Sequence[Stored],
    ) -> list[Stored]:
        """A run's outputs: inputs that it takes over under their new number, else new memory."""
        made: list[Stored] = []
        donated = program.donated
        try:
            for position, result in enumerate(results):
                taken = position in donated
                made.append(given[donated[position]] if taken else result.allocate(self._heap))
        except Exception as error:
            from magmath.program.bind import blame

            for position, stored in enumerate(made):
                if position not in donated:
                    stored.free(self._heap)
            blame(error, program.writer(program.outputs[len(made)]))
            raise
        if donated:
            self.take_over(program, inputs, outputs)
        self._arrays.update(zip(outputs, made, strict=True))
        return made

    def take_over(self, program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Move donated inputs to their new numbers, under which the controller knows them now."""
        for position, donor in program.donated.items():
            stored = self._arrays.pop(inputs[donor], None)
            if stored is not None:
                self._arrays[outputs[position]] = stored

    def hand_back(self, program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Move what was taken over to the numbers that it had before."""
        for position, donor in program.donated.items():
            self._arrays[inputs[donor]] = self._arrays.pop(outputs[position])

    def close(self) -> None:
        """End what the courier does, and forget all arrays: their memory goes with the heap."""
        if self.beside is not None:
            self.beside.courier.close()
        self._arrays.clear()
