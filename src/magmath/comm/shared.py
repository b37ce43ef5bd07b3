"""Collectives of ranks that see each other's memory.

A rank's contribution is read where it lies, if every rank's lies in memory that all see; else it is
copied through a small staging window, piece by piece. Each rank reduces a segment of its own, for
all. Two staging slots take turns, so that one barrier for each piece is enough: whoever fills a
slot again has passed a barrier that all entered after they had read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from magmath.comm.barrier import SpinBarrier
from magmath.comm.reduction import Array, Reducer, flat_array, reducer
from magmath.comm.small import SmallCollectives
from magmath.machine.copy import STREAMED, copy

Show: TypeAlias = Callable[[Array], "list[Array] | None"]
"""show(mine): the arrays of all ranks, in which peers' may be written, or None on every rank where
not all of them can be seen. Collective; passes one barrier."""

_Key: TypeAlias = tuple[int, "np.dtype[Any]", tuple[int, ...]]
_VIEWS = 256
"""Views of the staging slots kept for calls to come."""
_SMALL = 1 << 16
"""Bytes up to which staging costs less than asking where the others' tensors are."""
_SLOT = 1 << 19
"""Bytes of a staging slot: both slots of both neighbours fit into a core's cache."""
_LINE = 64
"""Segments begin at multiples of so many elements, so no two ranks write to one cache line."""
_BLOCK = 1 << 17
"""Bytes that are reduced and then copied to the others while they are in the cache."""


class SharedCollectives:
    """The collectives, for one rank.

    `meet` and `window` are the communicator's; `show` makes this rank's tensor known to the others.
    All tensors are contiguous, not empty, and in host memory.
    """

    def __init__(
        self, meet: SpinBarrier, window: Callable[[int], list[Tensor]], show: Show
    ) -> None:
        self._rank = meet.rank
        self._size = meet.size
        self._meet = meet
        self._barrier = meet.wait
        self._window = window
        self._show = show
        self._slots: list[list[Array]] = []
        self._small: SmallCollectives | None = None
        self._views: dict[_Key, list[Array]] = {}
        self._turn = 0

    def allreduce(self, tensor: Tensor, op: str) -> None:
        """Replace `tensor` by its reduction over the ranks."""
        if tensor.nbytes <= _SMALL:
            # Everyone reduces everything: cheaper than a second barrier.
            self._reduce_small(tensor, tensor, op, 0)
            return
        mine, reduce = flat_array(tensor), reducer(tensor.dtype, op)
        arrays = self._show(mine)
        if arrays is None:
            for piece in _pieces(len(mine), mine.itemsize, _SLOT):
                self._allreduce_staged(mine[piece], reduce)
        else:
            self._allreduce_in_place(arrays, reduce)

    def allgather(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with rank r's `tensor`."""
        if out.nbytes <= _SMALL:
            self._prepared().gather(out, tensor, 0, self._next_turn())
            return
        mine, blocks = flat_array(tensor), self._blocks(flat_array(out))
        arrays = self._show(mine)
        if arrays is None:
            for piece in _pieces(len(mine), mine.itemsize, _SLOT):
                for block, part in zip(blocks, self._stage(mine[piece]), strict=True):
                    block[piece] = part
            return
        for block, array in zip(blocks, arrays, strict=True):
            _fill(block, array)
        self._barrier()

    def reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> None:
        """Fill `out` with the reduction over the ranks of this rank's block of `tensor`."""
        if tensor.nbytes <= _SMALL:
            self._reduce_small(out, tensor, op, self._rank * out.numel())
            return
        mine, target, reduce = flat_array(tensor), flat_array(out), reducer(tensor.dtype, op)
        arrays = self._show(mine)
        if arrays is None:
            blocks = self._blocks(mine)
            for piece in _pieces(len(target), target.itemsize, _SLOT // self._size):
                parts = self._stage(blocks[:, piece])
                reduce(target[piece], [part[self._rank] for part in parts])
            return
        reduce(target, [self._blocks(array)[self._rank] for array in arrays])
        self._barrier()

    def all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with this rank's block of rank r's `tensor`."""
        if tensor.nbytes <= _SMALL:
            first = self._rank * (tensor.nbytes // self._size)
            self._prepared().gather(out, tensor, first, self._next_turn())
            return
        mine, targets = flat_array(tensor), self._blocks(flat_array(out))
        arrays = self._show(mine)
        if arrays is None:
            blocks = self._blocks(mine)
            for piece in _pieces(blocks.shape[1], mine.itemsize, _SLOT // self._size):
                for target, part in zip(targets, self._stage(blocks[:, piece]), strict=True):
                    target[piece] = part[self._rank]
            return
        for target, array in zip(targets, arrays, strict=True):
            _fill(target, self._blocks(array)[self._rank])
        self._barrier()

    def close(self) -> None:
        """Give back the staging window."""
        self._slots = []
        self._small = None
        self._views = {}

    def _blocks(self, array: Array) -> Array:
        return array.reshape(self._size, -1)

    def _stage(self, part: Array) -> list[Array]:
        """Copy `part` into this rank's slot; what all ranks have put into theirs."""
        self._prepared()
        key = (self._next_turn(), part.dtype, part.shape)
        parts = self._views.get(key)
        if parts is None:
            parts = self._make_views(key, part.nbytes)
        parts[self._rank][...] = part
        self._barrier()
        return parts

    def _prepared(self) -> SmallCollectives:
        """The compiled collectives, after the staging slots have been made."""
        if self._small is None:
            memory = [flat_array(tensor) for tensor in self._window(2 * _SLOT)]
            self._slots = [[m[:_SLOT] for m in memory], [m[_SLOT:] for m in memory]]
            places = [np.array([slot.ctypes.data for slot in turn]) for turn in self._slots]
            self._small = SmallCollectives(self._meet, places)
        return self._small

    def _next_turn(self) -> int:
        """Which of the slots to use now; the other one next time."""
        turn, self._turn = self._turn, self._turn ^ 1
        return turn

    def _make_views(self, key: _Key, nbytes: int) -> list[Array]:
        """The slots of a turn as arrays of a dtype and shape; made once for each, they add up."""
        turn, dtype, shape = key
        if len(self._views) >= _VIEWS:
            self._views.clear()
        views = [slot[:nbytes].view(dtype).reshape(shape) for slot in self._slots[turn]]
        self._views[key] = views
        return views

    def _reduce_small(self, out: Tensor, tensor: Tensor, op: str, first: int) -> None:
        """Fill `out` with the reduction of the ranks' tensors' elements from `first` on."""
        if SmallCollectives.reduces(tensor.dtype):
            self._prepared().reduce(out, tensor, op, first, self._next_turn())
        else:
            target, parts = flat_array(out), self._stage(flat_array(tensor))
            reducer(tensor.dtype, op)(target, [p[first : first + len(target)] for p in parts])

    def _allreduce_staged(self, mine: Array, reduce: Reducer) -> None:
        parts = self._stage(mine)
        own = self._segment(self._rank, len(mine))
        reduce(parts[self._rank][own], [part[own] for part in parts])
        self._barrier()
        for owner, part in enumerate(parts):
            segment = self._segment(owner, len(mine))
            mine[segment] = part[segment]

    def _allreduce_in_place(self, arrays: list[Array], reduce: Reducer) -> None:
        own = self._segment(self._rank, len(arrays[0]))
        segments = [array[own] for array in arrays]
        result = segments.pop(self._rank)
        for block in _pieces(len(result), result.itemsize, _BLOCK):
            others = [segment[block] for segment in segments]
            total = result[block]
            # Ascending order of ranks: this one's contribution in its place.
            reduce(total, [*others[: self._rank], total, *others[self._rank :]])
            for other in others:
                other[:] = total
        self._barrier()

    def _segment(self, owner: int, length: int) -> slice:
        share = -(-length // self._size)
        share += -share % _LINE
        return slice(min(owner * share, length), min((owner + 1) * share, length))


def _fill(target: Array, source: Array) -> None:
    """Copy a flat array into another."""
    if target.nbytes < STREAMED:
        target[:] = source
    else:
        copy(target.ctypes.data, source.ctypes.data, target.nbytes)


def _pieces(length: int, itemsize: int, nbytes: int) -> Iterator[slice]:
    step = max(1, nbytes // itemsize)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
