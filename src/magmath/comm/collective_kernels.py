"""The collectives of ranks that share memory, compiled: what a rank does between two barriers.

Where every rank's tensor lies in a window, the others read it (and write results into it) where it
lies: the ranks show where that is, meet, work, and meet again. Else contributions go through
staging slots, a piece at a time: in one phase a rank puts its next piece into its slot and takes,
or combines, what the others have put there in the phase before. Two slots take turns, so that one
barrier for each piece is enough. A rank that waits for long comes back to Python for a moment, and
goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.memory_copy import COPY_SOURCE, INSIDE
from magmath.comm import barrier
from magmath.comm.barrier_memory import ADDRESSES

ALLREDUCE, REDUCE_SCATTER, ALLGATHER, ALL_TO_ALL, ALLREDUCE_SMALL = range(5)
"""The collectives. The last one has every rank combine everything, which saves a barrier."""

FINISHED: Final = -1
STOPPED: Final = -2
WINDOW_FREED: Final = -3
"""What `advance_function` returns in place of the phase in which it waits: all done; a rank has aborted; a
rank shows a tensor in a window that this one has given back."""

FLAGS, RANK, SIZE, SLOTS = range(4)
"""Where the words of a rank's `fixed` array begin: the address of the barrier memory; its number
and that of all ranks; the addresses of the staging slots, for contributions and for results, each
in two turns, each of all ranks. Behind them is room for an address for each rank, and another."""

_CONSTANTS: Final = barrier.CONSTANTS | {
    "ALLREDUCE": ALLREDUCE, "REDUCE_SCATTER": REDUCE_SCATTER, "ALLGATHER": ALLGATHER,
    "ALL_TO_ALL": ALL_TO_ALL, "ALLREDUCE_SMALL": ALLREDUCE_SMALL,
    "FINISHED": FINISHED, "STOPPED": STOPPED, "WINDOW_FREED": WINDOW_FREED,
    "FLAGS": FLAGS, "RANK": RANK, "SIZE": SIZE, "SLOTS": SLOTS, "IN": 0, "OUT": 2,
    "ADDRESSES": ADDRESSES,
    "ALIGNED": 64,  # numbers: no two ranks write to one cache line
    "CACHED": 1 << 15,  # bytes that are combined and then copied while they are at hand
}  # fmt: skip


def fixed_words(size: int) -> int:
    """Words of the `fixed` array for so many ranks."""
    return SLOTS + 6 * size


@cache
def advance_function() -> Callable[..., int]:
    """The function that carries on a collective from a phase (0 at first); it returns the phase in
    which it waits for others. Its arguments are whole numbers:

    fixed           the address of a rank's `fixed` array
    windows, known  the address of `WindowTable.words`, and how many columns it has
    kind            which collective
    phase, turn     where to go on, and the slot in which to begin
    shown           -1 to stage at once, else which pair of words shows where the tensor is
    source, target  addresses
    count           numbers of the tensor for an allreduce, else of a block
    itemsize, step  the bytes of a number, and how many numbers are staged at a time
    kernel, op      how to combine
    """
    return _CODE.function("advance")


_ADVANCE_SOURCE: Final = """
def advance(
    fixed: int64[1], windows: int64[1], known: int64, kind: int64, phase: int64, turn: int64,
    shown: int64, source: int64, target: int64, count: int64, itemsize: int64, step: int64,
    kernel: int64, op: int64
) -> int64:
    size = fixed[SIZE]
    flags: uint64[1] = fixed[FLAGS]
    pieces = max(1, quotient(count + step - 1, step))
    reached = phase
    while True:
        last = pieces + (1 if kind == ALLREDUCE else 0)
        staged = reached
        if shown >= 0:
            staged = -1
            if reached == 0:
                show_place(flags, fixed[RANK], shown, windows, known, source)
            else:
                found = find(fixed, flags, shown, windows, known, source)
                if found < 0:
                    return WINDOW_FREED
                if found > 0:
                    last = 2
                    if reached == 1:
                        direct(fixed, kind, target, count, itemsize, kernel, op)
                else:
                    last = last + 1
                    staged = reached - 1
        if staged >= 0:
            stage(
                fixed, kind, staged, pieces, turn, source, target, count, itemsize, step, kernel, op
            )
        if reached == last:
            return FINISHED
        reached = reached + 1
        status = enter(flags, fixed[RANK], size)
        if status != DONE:
            return reached if status == PENDING else STOPPED
"""

# where the tensors are ----------------------------------------------------------------------------

_ADDRESS_SOURCE: Final = '''
def show_place(
    flags: uint64[1], rank: int64, shown: int64, windows: int64[1], known: int64, source: int64
):
    """Tell the others the window and the position of this rank's tensor; 0 where it is in none.

    Two pairs of words take turns: whoever shows again after next has passed a barrier that all
    entered after they had read these.
    """
    word = LINE * (1 + rank) + ADDRESSES + 2 * shown
    flags[word] = 0
    for number in range(1, known):
        position = source - windows[number]
        if position >= 0 and position < windows[known + number]:
            flags[word] = number
            flags[word + 1] = position
            return

def find(
    fixed: int64[1], flags: uint64[1], shown: int64, windows: int64[1], known: int64, source: int64
) -> int64:
    """1 if all tensors are in windows, 0 if not; their addresses. -1 if such a window is gone."""
    size = fixed[SIZE]
    for rank in range(size):
        if flags[LINE * (1 + rank) + ADDRESSES + 2 * shown] == 0:
            return 0
    for rank in range(size):
        word = LINE * (1 + rank) + ADDRESSES + 2 * shown
        number = int64(flags[word])
        if number >= known:
            return -1
        if windows[known + number] == 0:
            return -1
        fixed[SLOTS + 4 * size + rank] = windows[number] + int64(flags[word + 1])
    fixed[SLOTS + 4 * size + fixed[RANK]] = source
    return 1

def shown_at(fixed: int64[1], rank: int64) -> int64:
    """The address of a rank's tensor."""
    return fixed[SLOTS + 4 * fixed[SIZE] + rank]

def slot_of(fixed: int64[1], which: int64, turn: int64, rank: int64) -> int64:
    """The address of a rank's staging slot in a turn."""
    return fixed[SLOTS + (which + (turn & 1)) * fixed[SIZE] + rank]

def after(rank: int64, k: int64, size: int64) -> int64:
    """The k-th rank after one, round and round; k is at most the number of ranks."""
    other = rank + k
    return other - size if other >= size else other

def begin_of(fixed: int64[1], count: int64, rank: int64) -> int64:
    """Where the segment of so many numbers begins that a rank combines for all."""
    share = quotient(count + fixed[SIZE] - 1, fixed[SIZE])
    share = (share + ALIGNED - 1) & -ALIGNED
    return min(rank * share, count)

def touched(fixed: int64[1], count: int64, itemsize: int64) -> int64:
    """The bytes that all ranks together read where each takes a block from each."""
    return fixed[SIZE] * fixed[SIZE] * count * itemsize

def put(target: int64, source: int64, nbytes: int64, all: int64):
    """Copy a piece of the `all` bytes that the ranks get together."""
    if target != source:
        copy(target, source, nbytes, all)

def combine(
    kernel: int64, out: int64, sources: int64, size: int64, offset: int64, count: int64, op: int64
):
    """What `kernel` of `magmath.comm.reduce_kernels` gives, called."""
    call(kernel, out, sources, size, offset, count, op)
'''

# where every rank's tensor can be seen ------------------------------------------------------------

_DIRECT_SOURCE: Final = """
def direct(
    fixed: int64[1], kind: int64, target: int64, count: int64, itemsize: int64, kernel: int64,
    op: int64
):
    rank = fixed[RANK]
    size = fixed[SIZE]
    nbytes = count * itemsize
    all = touched(fixed, count, itemsize)
    sources = address(fixed) + 8 * (SLOTS + 4 * size)
    if kind == ALLREDUCE:
        begin = begin_of(fixed, count, rank)
        end = begin_of(fixed, count, rank + 1)
        block = quotient(CACHED, itemsize)
        for first in range(begin, end, block):
            length = min(block, end - first)
            at = first * itemsize
            own = shown_at(fixed, rank) + at
            combine(kernel, own, sources, size, at, length, op)
            for k in range(1, size):
                memcpy(shown_at(fixed, after(rank, k, size)) + at, own, length * itemsize)
    elif kind == REDUCE_SCATTER:
        if fits(all):
            combine(kernel, target, sources, size, rank * nbytes, count, op)
        else:
            block = quotient(CACHED, itemsize)
            near = slot_of(fixed, OUT, 0, rank)
            for first in range(0, count, block):
                length = min(block, count - first)
                at = first * itemsize
                combine(kernel, near, sources, size, rank * nbytes + at, length, op)
                stream(target + at, near, length * itemsize)
    else:
        first = rank * nbytes if kind == ALL_TO_ALL else 0
        for k in range(size):
            other = after(rank, k, size)
            put(target + other * nbytes, shown_at(fixed, other) + first, nbytes, all)
"""

# through staging slots ----------------------------------------------------------------------------

_STAGED_SOURCE: Final = '''
def contribute(
    fixed: int64[1], kind: int64, turn: int64, source: int64, target: int64, count: int64,
    itemsize: int64, begin: int64, step: int64
):
    """Put what others need of a piece into this rank's slot; copy what oneself needs of it."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    length = min(step, count - begin)
    at = begin * itemsize
    slot = slot_of(fixed, IN, turn, rank)
    nbytes = length * itemsize
    if kind == ALLREDUCE_SMALL or kind == ALLGATHER:
        memcpy(slot, source + at, nbytes)
        if kind == ALLGATHER:
            place = target + rank * count * itemsize + at
            put(place, source + at, nbytes, touched(fixed, count, itemsize))
    elif kind == ALLREDUCE:
        first = begin_of(fixed, length, rank) * itemsize
        rest = begin_of(fixed, length, rank + 1) * itemsize
        memcpy(slot, source + at, first)
        memcpy(slot + rest, source + at + rest, nbytes - rest)
    else:
        for k in range(1, size):
            other = after(rank, k, size)
            place = slot + other * step * itemsize
            memcpy(place, source + other * count * itemsize + at, nbytes)
        if kind == ALL_TO_ALL:
            own = rank * count * itemsize + at
            put(target + own, source + own, nbytes, touched(fixed, count, itemsize))

def combine_slots(
    fixed: int64[1], turn: int64, part: int64, own: int64, target: int64, length: int64,
    kernel: int64, op: int64
):
    """Combine what lies `part` bytes behind the beginning of the others' slots with one's own."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    first = SLOTS + 5 * size
    for other in range(size):
        fixed[first + other] = slot_of(fixed, IN, turn, other) + part
    fixed[first + rank] = own
    combine(kernel, target, address(fixed) + 8 * first, size, 0, length, op)

def combine_segment(
    fixed: int64[1], turn: int64, own: int64, length: int64, itemsize: int64, kernel: int64,
    op: int64
):
    """Combine one's segment of a piece in place, and put it where the others find it."""
    rank = fixed[RANK]
    begin = begin_of(fixed, length, rank)
    end = begin_of(fixed, length, rank + 1)
    at = begin * itemsize
    combine_slots(fixed, turn, at, own + at, own + at, end - begin, kernel, op)
    memcpy(slot_of(fixed, OUT, turn, rank) + at, own + at, (end - begin) * itemsize)

def take(
    fixed: int64[1], kind: int64, turn: int64, target: int64, count: int64, itemsize: int64,
    begin: int64, length: int64, step: int64
):
    """Copy what the others have put into their slots for this rank."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    part = rank * step * itemsize if kind == ALL_TO_ALL else 0
    for k in range(1, size):
        other = after(rank, k, size)
        place = target + (other * count + begin) * itemsize
        found = slot_of(fixed, IN, turn, other) + part
        put(place, found, length * itemsize, touched(fixed, count, itemsize))

def take_results(
    fixed: int64[1], turn: int64, own: int64, length: int64, itemsize: int64, count: int64
):
    """Copy the segments that the others have combined."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    for k in range(1, size):
        other = after(rank, k, size)
        at = begin_of(fixed, length, other) * itemsize
        end = begin_of(fixed, length, other + 1) * itemsize
        put(own + at, slot_of(fixed, OUT, turn, other) + at, end - at, size * count * itemsize)

def stage(
    fixed: int64[1], kind: int64, phase: int64, pieces: int64, turn: int64, source: int64,
    target: int64, count: int64, itemsize: int64, step: int64, kernel: int64, op: int64
):
    if phase < pieces:
        contribute(
            fixed, kind, turn + phase, source, target, count, itemsize, phase * step, step
        )
    if phase > 0 and phase <= pieces:
        begin = (phase - 1) * step
        length = min(step, count - begin)
        slot = turn + phase - 1
        if kind == ALLREDUCE:
            combine_segment(fixed, slot, source + begin * itemsize, length, itemsize, kernel, op)
        elif kind == ALLREDUCE_SMALL:
            combine_slots(fixed, slot, 0, source, source, length, kernel, op)
        elif kind == REDUCE_SCATTER:
            own = source + (fixed[RANK] * count + begin) * itemsize
            part = fixed[RANK] * step * itemsize
            combine_slots(fixed, slot, part, own, target + begin * itemsize, length, kernel, op)
        else:
            take(fixed, kind, slot, target, count, itemsize, begin, length, step)
    if phase > 1 and kind == ALLREDUCE:
        begin = (phase - 2) * step
        length = min(step, count - begin)
        take_results(fixed, turn + phase - 2, source + begin * itemsize, length, itemsize, count)
'''

_CODE: Final = AotModule(
    COPY_SOURCE
    + barrier.BARRIER_SOURCE
    + _ADDRESS_SOURCE
    + _DIRECT_SOURCE
    + _STAGED_SOURCE
    + _ADVANCE_SOURCE,
    ["advance"],
    constants=_CONSTANTS,
    inside=INSIDE,
)
