"""Collectives of a few kilobytes, each one compiled call: copy, barrier, combine or copy.

At this size Python's own work costs several times what the processor has to do, so they are
compiled: copies for all dtypes, reductions for the common ones. Others go the ordinary way
(`magmath.comm.shared`), with the same result: contributions are combined in ascending order of
ranks, and NaN wins.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import carray, njit
from numpy.typing import NDArray
from torch import Tensor

from magmath.comm.barrier import DONE, SpinBarrier, enter
from magmath.comm.flags import Flags
from magmath.machine.copy import copy
from magmath.machine.raw import pointer

_LIKE: dict[torch.dtype, np.generic] = {
    torch.float32: np.float32(0),
    torch.float64: np.float64(0),
    torch.int32: np.int32(0),
    torch.int64: np.int64(0),
}
"""For each dtype that is compiled, a value by which the compiler knows its type."""
_SUM, _PROD, _MAX, _MIN = range(4)
_OPS = {"sum": _SUM, "prod": _PROD, "max": _MAX, "min": _MIN}


class SmallCollectives:
    """The collectives, for one rank. `slots[t][r]`: address of rank r's staging slot in turn t.

    Tensors are contiguous, and no larger than a slot.
    """

    def __init__(self, meet: SpinBarrier, slots: list[NDArray[np.int64]]) -> None:
        self._meet = meet
        self._slots = slots

    @staticmethod
    def reduces(dtype: torch.dtype) -> bool:
        """Whether reductions of this dtype are compiled."""
        return dtype in _LIKE

    def reduce(self, out: Tensor, tensor: Tensor, op: str, first: int, turn: int) -> None:
        """Fill `out` with the reduction of the ranks' tensors' elements from `first` on."""
        meet, slots, like, code = self._meet, self._slots[turn], _LIKE[tensor.dtype], _OPS[op]
        count, itemsize = out.numel(), tensor.itemsize
        target, start, nbytes = out.data_ptr(), first * itemsize, tensor.numel() * itemsize
        status = _reduced(
            meet.flags, meet.rank, meet.size, slots, tensor.data_ptr(), nbytes, target, start,
            count, code, like,
        )  # fmt: skip
        if status != DONE:
            meet.finish(status)
            _reduce(slots, target, start, count, code, like)

    def gather(self, out: Tensor, tensor: Tensor, first: int, turn: int) -> None:
        """Fill block r of `out` with rank r's tensor's bytes from `first` on."""
        meet, slots = self._meet, self._slots[turn]
        target, length = out.data_ptr(), out.nbytes // meet.size
        status = _gathered(
            meet.flags, meet.rank, meet.size, slots, tensor.data_ptr(), tensor.nbytes, target,
            first, length,
        )  # fmt: skip
        if status != DONE:
            meet.finish(status)
            _gather(slots, target, first, length)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _gathered(
    flags: Flags, rank: int, size: int, slots: NDArray[np.int64], source: int, nbytes: int,
    target: int, first: int, length: int,
) -> int:  # fmt: skip
    copy(slots[rank], source, nbytes)
    status: int = enter(flags, rank, size)
    if status == DONE:
        _gather(slots, target, first, length)
    return status


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _gather(slots: NDArray[np.int64], target: int, first: int, length: int) -> None:
    for rank in range(len(slots)):
        copy(target + rank * length, slots[rank] + first, length)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _reduced(
    flags: Flags, rank: int, size: int, slots: NDArray[np.int64], source: int, nbytes: int,
    target: int, start: int, count: int, op: int, like: np.generic,
) -> int:  # fmt: skip
    copy(slots[rank], source, nbytes)
    status: int = enter(flags, rank, size)
    if status == DONE:
        _reduce(slots, target, start, count, op, like)
    return status


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _reduce(
    slots: NDArray[np.int64], target: int, start: int, count: int, op: int, like: np.generic
) -> None:
    mine = carray(pointer(target, like), count)
    first = carray(pointer(slots[0] + start, like), count)
    for i in range(count):
        mine[i] = first[i]
    for rank in range(1, len(slots)):
        other = carray(pointer(slots[rank] + start, like), count)
        if op == _SUM:
            for i in range(count):
                mine[i] += other[i]
        elif op == _PROD:
            for i in range(count):
                mine[i] *= other[i]
        elif op == _MAX:
            for i in range(count):
                value = other[i]
                if value > mine[i] or value != value:
                    mine[i] = value
        else:
            for i in range(count):
                value = other[i]
                if value < mine[i] or value != value:
                    mine[i] = value
