"""The collectives of ranks that share memory, compiled: what a rank does between two barriers.

Where every rank's tensor lies in a window, the others read it (and write results into it) where it
lies: the ranks show where that is, meet, work, and meet again. Else contributions go through
staging slots, a piece at a time: in one phase a rank puts its next piece into its slot and takes,
or combines, what the others have put there in the phase before. Two slots take turns, so that one
barrier for each piece is enough. A rank that waits for long comes back to Python for a moment, and
goes on where it was.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, njit
from numpy.typing import NDArray

from magmath.comm.barrier import DONE, PENDING, enter
from magmath.comm.combine import combine
from magmath.comm.flags import LINE, PLACES, Flags
from magmath.machine.copy import STREAMED, copy, stream
from magmath.machine.raw import address, pointer

Words = NDArray[np.int64]

ALLREDUCE, REDUCE_SCATTER, ALLGATHER, ALL_TO_ALL, ALLREDUCE_SMALL = range(5)
"""The collectives. The last one has every rank combine everything, which saves a barrier."""

FINISHED: Final = -1
STOPPED: Final = -2
GONE: Final = -3
"""What `advance` returns in place of the phase in which it waits: all done; a rank has aborted; a
rank shows a tensor in a window that this one has given back."""

FLAGS, RANK, SIZE, SLOTS = range(4)
"""Where the words of a rank's `fixed` array begin: the address of the barrier memory; its number
and that of all ranks; the addresses of the staging slots, for contributions and for results, each
in two turns, each of all ranks. Behind them is room for an address for each rank, and another."""
_IN, _OUT = 0, 2
_ALIGNED: Final = 64  # numbers: no two ranks write to one cache line
_CACHED: Final = 1 << 15  # bytes that are combined and then copied while they are at hand


def fixed_length(size: int) -> int:
    """Words of the `fixed` array for so many ranks."""
    return SLOTS + 6 * size


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def advance(
    fixed: Words, windows: Words, kind: int, phase: int, turn: int, shown: int, source: int,
    target: int, count: int, itemsize: int, step: int, kernel: int, op: int,
) -> int:  # fmt: skip
    """Carry on a collective from a phase (0 at first); the phase in which it waits for others.

    `source`, `target`: addresses. `count`: numbers of `itemsize` bytes, of the tensor for an
    allreduce, else of a block. `step`: how many of them are staged at a time. `turn`: the slot in
    which to begin. `shown`: -1 to stage at once, else which pair of words shows where the tensor
    is. `windows`: the addresses and lengths of windows by number. `kernel`, `op`: how to combine.
    """
    size = fixed[SIZE]
    flags = carray(pointer(fixed[FLAGS], np.uint64(0)), LINE * (1 + size))
    pieces = max(1, -(-count // step))
    while True:
        last = pieces + (1 if kind == ALLREDUCE else 0)
        if shown < 0:
            staged = phase
        elif phase == 0:
            _show(flags, fixed[RANK], shown, windows, source)
            staged = -1
        else:
            found = _find(fixed, flags, shown, windows, source)
            if found < 0:
                return GONE
            if found:
                last = 2
                staged = -1
                if phase == 1:
                    _direct(fixed, kind, target, count, itemsize, kernel, op)
            else:
                last += 1
                staged = phase - 1
        if staged >= 0:
            _staged(
                fixed, kind, staged, pieces, turn, source, target, count, itemsize, step, kernel, op
            )
        if phase == last:
            return FINISHED
        phase += 1
        status = enter(flags, fixed[RANK], size)
        if status != DONE:
            return int(phase) if status == PENDING else STOPPED


# where the tensors are ----------------------------------------------------------------------------


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _show(flags: Flags, rank: int, shown: int, windows: Words, source: int) -> None:
    """Tell the others the window and the position of this rank's tensor; 0 where it is in none.

    Two pairs of words take turns: whoever shows again after next has passed a barrier that all
    entered after they had read these.
    """
    word = LINE * (1 + rank) + PLACES + 2 * shown
    flags[word] = np.uint64(0)
    for number in range(1, windows.shape[1]):
        position = source - windows[0, number]
        if 0 <= position < windows[1, number]:
            flags[word] = np.uint64(number)
            flags[word + 1] = np.uint64(position)
            return


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _find(fixed: Words, flags: Flags, shown: int, windows: Words, source: int) -> int:
    """1 if all tensors are in windows, 0 if not; their addresses. -1 if such a window is gone."""
    size = fixed[SIZE]
    for rank in range(size):
        if flags[LINE * (1 + rank) + PLACES + 2 * shown] == 0:
            return 0
    for rank in range(size):
        word = LINE * (1 + rank) + PLACES + 2 * shown
        number = int(flags[word])
        if number >= windows.shape[1] or windows[1, number] == 0:
            return -1
        fixed[SLOTS + 4 * size + rank] = windows[0, number] + int(flags[word + 1])
    fixed[SLOTS + 4 * size + fixed[RANK]] = source
    return 1


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _shown(fixed: Words, rank: int) -> int:
    """The address of a rank's tensor."""
    place: int = fixed[SLOTS + 4 * fixed[SIZE] + rank]
    return place


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _slot(fixed: Words, which: int, turn: int, rank: int) -> int:
    """The address of a rank's staging slot in a turn."""
    place: int = fixed[SLOTS + (which + (turn & 1)) * fixed[SIZE] + rank]
    return place


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _begin(fixed: Words, count: int, rank: int) -> int:
    """Where the segment of so many numbers begins that a rank combines for all."""
    share = -(-count // fixed[SIZE])
    share += -share % _ALIGNED
    begin: int = min(rank * share, count)
    return begin


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _put(target: int, source: int, nbytes: int, whole: int) -> None:
    """Copy a piece of something of `whole` bytes."""
    if target == source:
        return
    if whole < STREAMED:
        copy(target, source, nbytes)
    else:
        stream(target, source, nbytes)


# where every rank's tensor can be seen ------------------------------------------------------------


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _direct(
    fixed: Words, kind: int, target: int, count: int, itemsize: int, kernel: int, op: int
) -> None:
    rank, size = fixed[RANK], fixed[SIZE]
    nbytes = count * itemsize
    sources = address(fixed) + 8 * (SLOTS + 4 * size)
    if kind == ALLREDUCE:
        begin, end = _begin(fixed, count, rank), _begin(fixed, count, rank + 1)
        block = _CACHED // itemsize
        for first in range(begin, end, block):
            length = min(block, end - first)
            at = first * itemsize
            own = _shown(fixed, rank) + at
            combine(kernel, own, sources, size, at, length, op)
            for k in range(1, size):
                copy(_shown(fixed, (rank + k) % size) + at, own, length * itemsize)
    elif kind == REDUCE_SCATTER:
        combine(kernel, target, sources, size, rank * nbytes, count, op)
    else:
        first = rank * nbytes if kind == ALL_TO_ALL else 0
        for k in range(size):
            other = (rank + k) % size
            _put(target + other * nbytes, _shown(fixed, other) + first, nbytes, size * nbytes)


# through staging slots ----------------------------------------------------------------------------


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _staged(
    fixed: Words, kind: int, phase: int, pieces: int, turn: int, source: int, target: int,
    count: int, itemsize: int, step: int, kernel: int, op: int,
) -> None:  # fmt: skip
    if phase < pieces:
        begin = phase * step
        _contribute(fixed, kind, turn + phase, source, target, count, itemsize, begin, step)
    if 0 < phase <= pieces:
        begin = (phase - 1) * step
        length = min(step, count - begin)
        slot = turn + phase - 1
        if kind == ALLREDUCE:
            _combine_segment(fixed, slot, source + begin * itemsize, length, itemsize, kernel, op)
        elif kind == ALLREDUCE_SMALL:
            _combine(fixed, slot, 0, source, source, length, kernel, op)
        elif kind == REDUCE_SCATTER:
            own = source + (fixed[RANK] * count + begin) * itemsize
            part = fixed[RANK] * step * itemsize
            _combine(fixed, slot, part, own, target + begin * itemsize, length, kernel, op)
        else:
            _take(fixed, kind, slot, target, count, itemsize, begin, length, step)
    if phase > 1 and kind == ALLREDUCE:
        begin = (phase - 2) * step
        length = min(step, count - begin)
        _take_results(fixed, turn + phase - 2, source + begin * itemsize, length, itemsize, count)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _contribute(
    fixed: Words, kind: int, turn: int, source: int, target: int, count: int, itemsize: int,
    begin: int, step: int,
) -> None:  # fmt: skip
    """Put what others need of a piece into this rank's slot; copy what oneself needs of it."""
    rank, size = fixed[RANK], fixed[SIZE]
    length, at = min(step, count - begin), begin * itemsize
    slot, nbytes = _slot(fixed, _IN, turn, rank), length * itemsize
    if kind in (ALLREDUCE_SMALL, ALLGATHER):
        copy(slot, source + at, nbytes)
        if kind == ALLGATHER:
            place = target + rank * count * itemsize + at
            _put(place, source + at, nbytes, size * count * itemsize)
    elif kind == ALLREDUCE:
        first = _begin(fixed, length, rank) * itemsize
        after = _begin(fixed, length, rank + 1) * itemsize
        copy(slot, source + at, first)
        copy(slot + after, source + at + after, nbytes - after)
    else:
        for k in range(1, size):
            other = (rank + k) % size
            place = slot + other * step * itemsize
            copy(place, source + other * count * itemsize + at, nbytes)
        if kind == ALL_TO_ALL:
            own = rank * count * itemsize + at
            _put(target + own, source + own, nbytes, size * count * itemsize)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _combine(
    fixed: Words, turn: int, part: int, own: int, target: int, length: int, kernel: int, op: int
) -> None:
    """Combine what lies `part` bytes behind the beginning of the others' slots with one's own."""
    rank, size = fixed[RANK], fixed[SIZE]
    first = SLOTS + 5 * size
    for other in range(size):
        fixed[first + other] = _slot(fixed, _IN, turn, other) + part
    fixed[first + rank] = own
    combine(kernel, target, address(fixed) + 8 * first, size, 0, length, op)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _combine_segment(
    fixed: Words, turn: int, own: int, length: int, itemsize: int, kernel: int, op: int
) -> None:
    """Combine one's segment of a piece in place, and put it where the others find it."""
    rank = fixed[RANK]
    begin, end = _begin(fixed, length, rank), _begin(fixed, length, rank + 1)
    at = begin * itemsize
    _combine(fixed, turn, at, own + at, own + at, end - begin, kernel, op)
    copy(_slot(fixed, _OUT, turn, rank) + at, own + at, (end - begin) * itemsize)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _take(
    fixed: Words, kind: int, turn: int, target: int, count: int, itemsize: int, begin: int,
    length: int, step: int,
) -> None:  # fmt: skip
    """Copy what the others have put into their slots for this rank."""
    rank, size = fixed[RANK], fixed[SIZE]
    part = rank * step * itemsize if kind == ALL_TO_ALL else 0
    for k in range(1, size):
        other = (rank + k) % size
        place = target + (other * count + begin) * itemsize
        found = _slot(fixed, _IN, turn, other) + part
        _put(place, found, length * itemsize, size * count * itemsize)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _take_results(
    fixed: Words, turn: int, own: int, length: int, itemsize: int, count: int
) -> None:
    """Copy the segments that the others have combined."""
    rank, size = fixed[RANK], fixed[SIZE]
    for k in range(1, size):
        other = (rank + k) % size
        at = _begin(fixed, length, other) * itemsize
        end = _begin(fixed, length, other + 1) * itemsize
        _put(own + at, _slot(fixed, _OUT, turn, other) + at, end - at, count * itemsize)
