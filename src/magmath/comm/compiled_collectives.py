"""Compiled collectives of ranks that share memory: the work of a rank between two barriers.

If every rank's tensor is in a shared window, the ranks publish the addresses, synchronize, read
(and write) each other's tensors in place, and synchronize again. Otherwise contributions pass
through staging slots in pieces: in each phase, a rank copies its next piece into its slot and
copies, or reduces, the pieces of the other ranks from the previous phase. Two slots are used
alternately, so one barrier per piece suffices. A rank that waits long returns to Python, and
resumes at the same phase.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.memory_copy import COPY_IR_MODULE, COPY_SOURCE
from magmath.comm import barrier
from magmath.comm.barrier_memory import ADDRESSES

ALLREDUCE, REDUCE_SCATTER, ALLGATHER, ALL_TO_ALL, ALLREDUCE_SMALL = range(5)
"""Codes of the collectives. In ALLREDUCE_SMALL every rank reduces everything, which saves a
barrier."""

FINISHED: Final = -1
STOPPED: Final = -2
WINDOW_FREED: Final = -3
"""Results of `advance_function` other than a phase: the collective is finished; a rank has aborted;
a rank published a tensor in a shared window that this rank has freed."""

FLAGS, RANK, SIZE, SLOTS = range(4)
"""Offsets in a rank's `fixed` array: the address of the barrier memory; the rank; the number of
ranks; the addresses of the staging slots, for contributions and for results, two of each per rank.
Two scratch addresses per rank follow."""

_CONSTANTS: Final = barrier.CONSTANTS | {
    "ALLREDUCE": ALLREDUCE, "REDUCE_SCATTER": REDUCE_SCATTER, "ALLGATHER": ALLGATHER,
    "ALL_TO_ALL": ALL_TO_ALL, "ALLREDUCE_SMALL": ALLREDUCE_SMALL,
    "FINISHED": FINISHED, "STOPPED": STOPPED, "WINDOW_FREED": WINDOW_FREED,
    "FLAGS": FLAGS, "RANK": RANK, "SIZE": SIZE, "SLOTS": SLOTS, "IN": 0, "OUT": 2,
    "ADDRESSES": ADDRESSES,
    "ALIGNED": 64,  # elements: no two ranks write to one cache line
    "CACHED": 1 << 15,  # bytes that are reduced and then copied while they are in the cache
}  # fmt: skip


def fixed_words(size: int) -> int:
    """Return the words of the `fixed` array for `size` ranks."""
    return SLOTS + 6 * size


@cache
def advance_function() -> Callable[..., int]:
    """Return the function that continues a collective from a phase, at first 0. It returns the
    phase in which it waits for other ranks. Its arguments are integers:

    fixed             the address of a rank's `fixed` array
    windows, columns  the address of `SharedWindowTable.words`, and its number of columns
    kind              the code of the collective
    phase, turn       the phase to continue, and the slot to begin with
    pair              -1 to stage at once, otherwise the pair of words for the tensor's address
    source, target    addresses
    count             elements of the tensor for an allreduce, otherwise of a block
    itemsize, step    the bytes of an element, and the elements that are staged at a time
    kernel, op        the reduction kernel, and the reduction
    """
    return _CODE.function("advance")


_ADVANCE_SOURCE: Final = """
def advance(
    fixed: int64[1], windows: int64[1], columns: int64, kind: int64, phase: int64, turn: int64,
    pair: int64, source: int64, target: int64, count: int64, itemsize: int64, step: int64,
    kernel: int64, op: int64
) -> int64:
    size = fixed[SIZE]
    flags: uint64[1] = fixed[FLAGS]
    pieces = max(1, quotient(count + step - 1, step))
    reached = phase
    while True:
        last = pieces + (1 if kind == ALLREDUCE else 0)
        staged = reached
        if pair >= 0:
            staged = -1
            if reached == 0:
                publish_address(flags, fixed[RANK], pair, windows, columns, source)
            else:
                published = look_up_addresses(fixed, flags, pair, windows, columns, source)
                if published < 0:
                    return WINDOW_FREED
                if published > 0:
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

# addresses of tensors -----------------------------------------------------------------------------

_ADDRESS_SOURCE: Final = '''
def publish_address(
    flags: uint64[1], rank: int64, pair: int64, windows: int64[1], columns: int64, source: int64
):
    """Publish the window and the offset of this rank's tensor; window 0 if it is in none.

    Two pairs of words are used alternately: before a rank reuses a pair, it has passed a barrier
    that all ranks entered after they had read the pair.
    """
    word = LINE * (1 + rank) + ADDRESSES + 2 * pair
    flags[word] = 0
    for number in range(1, columns):
        position = source - windows[number]
        if position >= 0 and position < windows[columns + number]:
            flags[word] = number
            flags[word + 1] = position
            return

def look_up_addresses(
    fixed: int64[1], flags: uint64[1], pair: int64, windows: int64[1], columns: int64, source: int64
) -> int64:
    """Look up the addresses of all tensors: 1 if all are in windows, 0 if not, -1 if a window was
    freed."""
    size = fixed[SIZE]
    for rank in range(size):
        if flags[LINE * (1 + rank) + ADDRESSES + 2 * pair] == 0:
            return 0
    for rank in range(size):
        word = LINE * (1 + rank) + ADDRESSES + 2 * pair
        number = int64(flags[word])
        if number >= columns:
            return -1
        if windows[columns + number] == 0:
            return -1
        fixed[SLOTS + 4 * size + rank] = windows[number] + int64(flags[word + 1])
    fixed[SLOTS + 4 * size + fixed[RANK]] = source
    return 1

def tensor_address(fixed: int64[1], rank: int64) -> int64:
    """The address of a rank's tensor."""
    return fixed[SLOTS + 4 * fixed[SIZE] + rank]

def slot_of(fixed: int64[1], which: int64, turn: int64, rank: int64) -> int64:
    """The address of a rank's staging slot in a turn."""
    return fixed[SLOTS + (which + (turn & 1)) * fixed[SIZE] + rank]

def after(rank: int64, k: int64, size: int64) -> int64:
    """Return the k-th rank after `rank`, cyclically; k is at most the number of ranks."""
    other = rank + k
    return other - size if other >= size else other

def begin_of(fixed: int64[1], count: int64, rank: int64) -> int64:
    """Return the first element of the share that a rank reduces for all."""
    share = quotient(count + fixed[SIZE] - 1, fixed[SIZE])
    share = (share + ALIGNED - 1) & -ALIGNED
    return min(rank * share, count)

def total_bytes(fixed: int64[1], count: int64, itemsize: int64) -> int64:
    """Return the bytes that all ranks read in total if each reads a block from each."""
    return fixed[SIZE] * fixed[SIZE] * count * itemsize

def copy_piece(target: int64, source: int64, nbytes: int64, total: int64):
    """Copy a piece of the `total` bytes that the ranks receive, unless it is in place."""
    if target != source:
        copy(target, source, nbytes, total)

def combine(
    kernel: int64, out: int64, sources: int64, size: int64, offset: int64, count: int64, op: int64
):
    """What `kernel` of `magmath.comm.reduce_kernels` gives, called."""
    call(kernel, out, sources, size, offset, count, op)
'''

# in place, in accessible windows ----- ------------------------------------------------------------

_DIRECT_SOURCE: Final = """
def direct(
    fixed: int64[1], kind: int64, target: int64, count: int64, itemsize: int64, kernel: int64,
    op: int64
):
    rank = fixed[RANK]
    size = fixed[SIZE]
    nbytes = count * itemsize
    total = total_bytes(fixed, count, itemsize)
    sources = address(fixed) + 8 * (SLOTS + 4 * size)
    if kind == ALLREDUCE:
        begin = begin_of(fixed, count, rank)
        end = begin_of(fixed, count, rank + 1)
        block = quotient(CACHED, itemsize)
        for first in range(begin, end, block):
            length = min(block, end - first)
            at = first * itemsize
            own = tensor_address(fixed, rank) + at
            combine(kernel, own, sources, size, at, length, op)
            for k in range(1, size):
                memcpy(tensor_address(fixed, after(rank, k, size)) + at, own, length * itemsize)
    elif kind == REDUCE_SCATTER:
        if fits(total):
            combine(kernel, target, sources, size, rank * nbytes, count, op)
        else:
            block = quotient(CACHED, itemsize)
            slot = slot_of(fixed, OUT, 0, rank)
            for first in range(0, count, block):
                length = min(block, count - first)
                at = first * itemsize
                combine(kernel, slot, sources, size, rank * nbytes + at, length, op)
                stream(target + at, slot, length * itemsize)
    else:
        first = rank * nbytes if kind == ALL_TO_ALL else 0
        for k in range(size):
            other = after(rank, k, size)
            own = target + other * nbytes
            copy_piece(own, tensor_address(fixed, other) + first, nbytes, total)
"""

# through staging slots ----------------------------------------------------------------------------

_STAGED_SOURCE: Final = '''
def contribute(
    fixed: int64[1], kind: int64, turn: int64, source: int64, target: int64, count: int64,
    itemsize: int64, begin: int64, step: int64
):
    """Copy the part of a piece that other ranks need into this rank's slot; copy the own part."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    length = min(step, count - begin)
    at = begin * itemsize
    slot = slot_of(fixed, IN, turn, rank)
    nbytes = length * itemsize
    if kind == ALLREDUCE_SMALL or kind == ALLGATHER:
        memcpy(slot, source + at, nbytes)
        if kind == ALLGATHER:
            address = target + rank * count * itemsize + at
            copy_piece(address, source + at, nbytes, total_bytes(fixed, count, itemsize))
    elif kind == ALLREDUCE:
        first = begin_of(fixed, length, rank) * itemsize
        rest = begin_of(fixed, length, rank + 1) * itemsize
        memcpy(slot, source + at, first)
        memcpy(slot + rest, source + at + rest, nbytes - rest)
    else:
        for k in range(1, size):
            other = after(rank, k, size)
            address = slot + other * step * itemsize
            memcpy(address, source + other * count * itemsize + at, nbytes)
        if kind == ALL_TO_ALL:
            own = rank * count * itemsize + at
            copy_piece(target + own, source + own, nbytes, total_bytes(fixed, count, itemsize))

def combine_slots(
    fixed: int64[1], turn: int64, part: int64, own: int64, target: int64, length: int64,
    kernel: int64, op: int64
):
    """Reduce the data at `part` bytes in the other ranks' slots and this rank's own data."""
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
    """Reduce this rank's share of a piece in place, and copy it to the result slot."""
    rank = fixed[RANK]
    begin = begin_of(fixed, length, rank)
    end = begin_of(fixed, length, rank + 1)
    at = begin * itemsize
    combine_slots(fixed, turn, at, own + at, own + at, end - begin, kernel, op)
    memcpy(slot_of(fixed, OUT, turn, rank) + at, own + at, (end - begin) * itemsize)

def copy_from_slots(
    fixed: int64[1], kind: int64, turn: int64, target: int64, count: int64, itemsize: int64,
    begin: int64, length: int64, step: int64
):
    """Copy the pieces for this rank from the slots of the other ranks."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    part = rank * step * itemsize if kind == ALL_TO_ALL else 0
    for k in range(1, size):
        other = after(rank, k, size)
        address = target + (other * count + begin) * itemsize
        piece = slot_of(fixed, IN, turn, other) + part
        copy_piece(address, piece, length * itemsize, total_bytes(fixed, count, itemsize))

def copy_reduced_segments(
    fixed: int64[1], turn: int64, own: int64, length: int64, itemsize: int64, count: int64
):
    """Copy the shares that the other ranks have reduced."""
    rank = fixed[RANK]
    size = fixed[SIZE]
    for k in range(1, size):
        other = after(rank, k, size)
        at = begin_of(fixed, length, other) * itemsize
        end = begin_of(fixed, length, other + 1) * itemsize
        share = slot_of(fixed, OUT, turn, other) + at
        copy_piece(own + at, share, end - at, size * count * itemsize)

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
            copy_from_slots(fixed, kind, slot, target, count, itemsize, begin, length, step)
    if phase > 1 and kind == ALLREDUCE:
        begin = (phase - 2) * step
        length = min(step, count - begin)
        own = source + begin * itemsize
        copy_reduced_segments(fixed, turn + phase - 2, own, length, itemsize, count)
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
    ir_modules=(COPY_IR_MODULE,),
)
