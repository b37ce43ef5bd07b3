"""The memory that a program needs, checked before the workers get the program.

The need is known exactly: the arena of the temporaries, the inputs and the new outputs. A program
that exceeds the limit is refused. The error names the arrays that are alive at the peak, and a
batch that fits: nearly all memory of a training step is proportional to the batch, the first
dimension of most arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from magmath.core.byte_sizes import format_bytes
from magmath.errors import MemoryLimitError
from magmath.program.arena import arrange
from magmath.program.instructions import Call, Program, Slot

_MAX_SHOWN = 5
GAP_SHARE = 0.05  # the part of the room that is left for gaps between the blocks of the heap


@final
@dataclass(frozen=True)
class Need:
    """The bytes that a program needs on the worker that needs most.

    nbytes     all of them
    largest    the slots that are alive at the peak, the largest first
    """

    nbytes: int
    largest: Sequence[int]


def need_of(program: Program) -> Need:
    """Return the need of a program, without workspaces of kernels."""
    slots = program.slots
    held = {
        *program.inputs,
        *[x for i, x in enumerate(program.outputs) if i not in program.donated],
    }
    own = [i for i, x in enumerate(slots) if x.kind == "temporary" and x.alias is None]
    changes: Counter[int] = Counter()
    for i in own:
        changes[slots[i].first] += _bytes(slots[i])
        changes[slots[i].last + 1] -= _bytes(slots[i])
    peak, peak_bytes, now = 0, -1, 0
    for position in sorted(changes):
        now += changes[position]
        if now > peak_bytes:
            peak, peak_bytes = position, now
    alive = {i for i in own if slots[i].first <= peak <= slots[i].last}
    largest = sorted(alive | held, key=lambda i: -_bytes(slots[i]))
    return Need(arrange(program).nbytes + sum(_bytes(slots[i]) for i in held), largest)


def could_exceed(program: Program, limit: int) -> bool:
    """Return False for a program whose arrays fit into `limit` bytes even if none shares memory."""
    return sum([_bytes(slot) for slot in program.slots]) > limit


def check_memory(program: Program, limit: int | None, held: int) -> None:
    """Raise MemoryLimitError if a program needs more than `limit` bytes of a worker.

    `held`: the bytes of all arrays, the inputs of the program among them. The error names the
    largest arrays, the batch that fits if there is one, and the user's line of the largest array.
    """
    if limit is None or not could_exceed(program, limit):
        return
    need = need_of(program)
    if need.nbytes <= limit:
        return
    named = [_described(program, i) for i in need.largest[:_MAX_SHOWN]]
    left = limit - max(0, held - sum(_bytes(program.slots[i]) for i in program.inputs))
    smaller = _smaller_batch(program, need, left)
    writer = program.writer(need.largest[0])
    line = getattr(writer, "line", None)
    where = f" [{line[0]}:{line[1]}]" if line else ""
    raise MemoryLimitError(
        f"the program needs {format_bytes(need.nbytes)} on a worker{_recomputing(program)}; the "
        f"limit is {format_bytes(limit)}; largest arrays: {', '.join(named)}; {smaller}compute "
        f"parts of the function with mm.remat, divide the arrays over workers on more hosts, or "
        f"raise memory_limit{where}"
    )


def _bytes(slot: Slot) -> int:
    return slot.layout.max_local_size * slot.dtype.itemsize


def _recomputing(program: Program) -> str:
    """Return the number of values that the program computes twice, in words."""
    again = sum([isinstance(x, Call) and x.is_recomputation for x in program.instructions])
    return f", although it computes {again} intermediates twice" if again else ""


def _described(program: Program, index: int) -> str:
    slot, writer = program.slots[index], program.writer(index)
    line = getattr(writer, "line", None)
    where = f" at {line[0]}:{line[1]}" if line else ""
    name = getattr(writer, "operation", slot.kind)
    return f"{name} {slot.dtype} {slot.shape} ({format_bytes(_bytes(slot))}){where}"


def _smaller_batch(program: Program, need: Need, limit: int) -> str:
    """Return the remedy of a smaller batch, or an empty string if none fits."""
    extents: Counter[int] = Counter()
    for i in need.largest:
        slot = program.slots[i]
        if slot.shape and slot.shape[0] > 1:
            extents[slot.shape[0]] += _bytes(slot)
    if not extents:
        return ""
    ((batch, nbytes),) = extents.most_common(1)
    room = int((1 - GAP_SHARE) * limit)
    fitting = (room - (need.nbytes - nbytes)) * batch // nbytes
    return f"reduce the batch from {batch} to about {fitting}, " if 1 <= fitting < batch else ""
