"""Collectives of ranks that share memory: one compiled call each, for any size.

This module chooses the algorithm: small tensors are staged directly, which costs less than
publishing their addresses; larger ones are read in place if every rank's tensor is in a shared
window. The compiled code is in `magmath.comm.compiled_collectives`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from torch import Tensor

from magmath.comm import compiled_collectives
from magmath.comm.barrier import SpinBarrier
from magmath.comm.futex_wait import ABORTED, PENDING
from magmath.comm.host_memory import SharedWindowTable
from magmath.comm.reduce_kernels import OP_CODES, reduce_kernel_address
from magmath.errors import StateError

_SMALL_BYTES = 1 << 16
"""Maximum bytes for which every rank reduces everything, without publishing addresses."""
_SLOT_BYTES = 1 << 18
"""Bytes of a staging slot: two slots fit into the cache of a core."""


@final
class SharedCollectives:
    """The collectives, for one rank.

    `barrier` and `window` belong to the communicator, `windows` is its table of shared windows. All
    tensors are contiguous, not empty, and in host memory.
    """

    def __init__(
        self,
        barrier: SpinBarrier,
        window: Callable[[int], list[Tensor]],
        windows: SharedWindowTable,
    ) -> None:
        self._size = barrier.size
        self._barrier = barrier
        self._window = window
        self._windows = windows
        self._fixed = np.zeros(0, np.int64)
        self._fixed_address = 0
        self._slots: list[Tensor] = []
        self._turn = 0
        self._word_pair = 0
        self._advance = compiled_collectives.advance_function()

    def allreduce(self, tensor: Tensor, reduction: str) -> None:
        """Replace `tensor` by its reduction over the ranks."""
        address, count, itemsize = tensor.data_ptr(), tensor.numel(), tensor.itemsize
        small = count * itemsize <= _SMALL_BYTES
        kind = compiled_collectives.ALLREDUCE_SMALL if small else compiled_collectives.ALLREDUCE
        step, kernel = _SLOT_BYTES // itemsize, reduce_kernel_address(tensor.dtype)
        self._run(kind, small, address, address, count, itemsize, step, kernel, OP_CODES[reduction])

    def allgather(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with rank r's `tensor`."""
        kind, nbytes = compiled_collectives.ALLGATHER, tensor.nbytes
        small = nbytes * self._size <= _SMALL_BYTES
        self._run(kind, small, tensor.data_ptr(), out.data_ptr(), nbytes, 1, _SLOT_BYTES)

    def reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None:
        """Fill `out` with the reduction over the ranks of this rank's block of `tensor`."""
        kind, count, itemsize = compiled_collectives.REDUCE_SCATTER, out.numel(), out.itemsize
        small = count * itemsize * self._size <= _SMALL_BYTES
        source, target = tensor.data_ptr(), out.data_ptr()
        step, kernel = _SLOT_BYTES // (itemsize * self._size), reduce_kernel_address(out.dtype)
        self._run(kind, small, source, target, count, itemsize, step, kernel, OP_CODES[reduction])

    def all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with this rank's block of rank r's `tensor`."""
        nbytes = out.nbytes // self._size
        small = out.nbytes <= _SMALL_BYTES
        source, target, step = tensor.data_ptr(), out.data_ptr(), _SLOT_BYTES // self._size
        self._run(compiled_collectives.ALL_TO_ALL, small, source, target, nbytes, 1, step)

    def next_word_pair(self) -> int:
        """Return which pair of words to publish an address in, alternately
        (`comm.barrier_memory.ADDRESSES`)."""
        pair, self._word_pair = self._word_pair, self._word_pair ^ 1
        return pair

    def close(self) -> None:
        """Release the staging shared window."""
        self._fixed_address = 0
        self._slots = []

    def _run(
        self,
        kind: int,
        small: bool,
        source: int,
        target: int,
        count: int,
        itemsize: int,
        step: int,
        kernel: int = 0,
        op: int = 0,
    ) -> None:
        """Run a collective; the arguments are those of `compiled_collectives.advance_function`, and
        `small`: the tensors are staged at once."""
        fixed, turn = self._fixed_address or self._prepare(), self._turn
        windows = self._windows.handle
        pair = -1 if small else self.next_word_pair()
        pieces = 1 if count <= step else -(-count // step)
        self._turn = (turn + pieces) & 1  # not the slot that was used last
        phase = 0
        while True:
            phase = self._advance(
                fixed, *windows, kind, phase, turn, pair, source, target, count, itemsize, step,
                kernel, op,
            )  # fmt: skip
            if phase == compiled_collectives.FINISHED:
                return
            if phase == compiled_collectives.WINDOW_FREED:
                raise StateError(
                    f"a rank publishes a tensor in a shared window that rank {self._barrier.rank} "
                    f"has freed; every rank must keep a shared window as long as any rank uses it"
                )
            self._barrier.finish(ABORTED if phase == compiled_collectives.STOPPED else PENDING)

    def _prepare(self) -> int:
        """Allocate the staging slots; return the address of the `fixed` array for compiled code."""
        size, fixed = self._size, np.zeros(compiled_collectives.fixed_words(self._size), np.int64)
        fixed[: compiled_collectives.SLOTS] = (
            self._barrier.flags.ctypes.data,
            self._barrier.rank,
            size,
        )
        self._slots = self._window(4 * _SLOT_BYTES)
        starts = [slots.data_ptr() for slots in self._slots]
        for number in range(4):
            first = compiled_collectives.SLOTS + number * size
            fixed[first : first + size] = [start + number * _SLOT_BYTES for start in starts]
        self._fixed, self._fixed_address = fixed, fixed.ctypes.data
        return self._fixed_address
