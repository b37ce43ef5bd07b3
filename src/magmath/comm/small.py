"""The allreduce of a few kilobytes as one compiled call: copy, barrier, reduce.

At this size Python's own work costs several times what the processor has to do, so this one
collective is compiled, for the common dtypes. Others go the ordinary way (`magmath.comm.shared`),
with the same result: contributions are combined in ascending order of ranks, and NaN wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from magmath.comm.barrier import DONE, SpinBarrier, enter
from magmath.comm.flags import Flags

_LIKE: dict[torch.dtype, np.generic] = {
    torch.float32: np.float32(0),
    torch.float64: np.float64(0),
    torch.int32: np.int32(0),
    torch.int64: np.int64(0),
}
"""For each dtype that is compiled, a value by which the compiler knows its type."""
_SUM, _PROD, _MAX, _MIN = range(4)
_OPS = {"sum": _SUM, "prod": _PROD, "max": _MAX, "min": _MIN}


class SmallAllreduce:
    """The allreduce, for one rank. `slots[t][r]`: address of rank r's staging slot in turn t."""

    def __init__(self, meet: SpinBarrier, slots: list[NDArray[np.int64]]) -> None:
        self._meet = meet
        self._slots = slots

    @staticmethod
    def has(dtype: torch.dtype) -> bool:
        """Whether this dtype is compiled."""
        return dtype in _LIKE

    def run(self, tensor: Tensor, op: str, turn: int) -> None:
        """Replace `tensor`, contiguous and no larger than a slot, by its reduction by `op`."""
        meet, slots, like, code = self._meet, self._slots[turn], _LIKE[tensor.dtype], _OPS[op]
        address, count = tensor.data_ptr(), tensor.numel()
        status = _allreduce(meet.flags, meet.rank, meet.size, slots, address, count, code, like)
        if status != DONE:
            meet.finish(status)
            _reduce(slots, address, count, code, like)


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing_context: Any, address: Any, like: Any) -> Any:
    """The pointer to elements of the type of `like` at an address."""
    pointer = types.CPointer(like)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.intp, like), generate


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _allreduce(
    flags: Flags,
    rank: int,
    size: int,
    slots: NDArray[np.int64],
    address: int,
    count: int,
    op: int,
    like: np.generic,
) -> int:
    mine = carray(_pointer(address, like), count)
    slot = carray(_pointer(slots[rank], like), count)
    for i in range(count):
        slot[i] = mine[i]
    status: int = enter(flags, rank, size)
    if status == DONE:
        _reduce(slots, address, count, op, like)
    return status


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _reduce(slots: NDArray[np.int64], address: int, count: int, op: int, like: np.generic) -> None:
    mine = carray(_pointer(address, like), count)
    first = carray(_pointer(slots[0], like), count)
    for i in range(count):
        mine[i] = first[i]
    for rank in range(1, len(slots)):
        other = carray(_pointer(slots[rank], like), count)
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
