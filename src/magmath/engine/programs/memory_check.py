"""The memory that a program needs, checked before the workers get the program.

The need is known exactly: the arena of the temporaries, the inputs and the new outputs. A program
that exceeds the limit is refused. The error names the arrays that are alive at the peak, and a
batch that fits: nearly all memory of a training step is proportional to the batch, the first
dimension of most arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from magmath.core.byte_sizes import format_bytes
from magmath.errors import MemoryLimitError
from magmath.program.arena import arrange, bytes_of
from magmath.program.instructions import Call, Program

_MAX_SHOWN = 5
# The part of the room that is left for arrays that are created later.
RESERVED_SHARE = 0.05
FloatArray = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Need:
    """The bytes that a program needs on the worker that needs most.

    nbytes       all of them
    new_bytes    those of temporaries and new outputs
    largest      the slots that are alive at the peak, the largest first
    """

    nbytes: int
    new_bytes: int
    largest: Sequence[int]


def need_of(program: Program) -> Need:
    """Return the need of a program, without workspaces of kernels."""
    slots, temporaries = program.slots, _temporaries(program)
    inputs, outputs = set(program.inputs), set(program.new_outputs)
    peak = int(np.argmax(_occupied(program, temporaries)))
    alive = {i for i in temporaries if slots[i].first <= peak <= slots[i].last}
    largest = sorted(alive | inputs | outputs, key=lambda i: -bytes_of(slots[i]))
    new = arrange(program).nbytes + total_bytes(program, outputs - inputs)
    return Need(total_bytes(program, inputs) + new, new, largest)


def can_exceed(program: Program, limit: int) -> bool:
    """Return False for a program whose arrays fit into `limit` bytes even if none shares memory."""
    return sum([bytes_of(slot) for slot in program.slots]) > limit


def check_memory(
    program: Program, limit: int | None, other_bytes: int, unlimited: Callable[[], Program]
) -> None:
    """Raise MemoryLimitError if a program and the other arrays need more than `limit` bytes of a
    worker.

    other_bytes   the bytes of the arrays that are no inputs of the program
    unlimited     returns the program without second computations

    The error names the largest arrays, the batch that fits if there is one, and the user's line of
    the largest array.
    """
    if limit is None:
        return
    room = limit - other_bytes
    if not can_exceed(program, room):
        return
    need = need_of(program)
    if need.nbytes <= room:
        return
    smaller = _smaller_batch(unlimited(), room)
    writer = program.writer(need.largest[0])
    line = getattr(writer, "line", None)
    where = f" [{line[0]}:{line[1]}]" if line else ""
    other_arrays = f", and other arrays take {format_bytes(other_bytes)}" if other_bytes else ""
    raise MemoryLimitError(
        f"the program needs {format_bytes(need.nbytes)} on a worker{_recomputing(program)}"
        f"{other_arrays}; the limit is {format_bytes(limit)}; largest arrays: "
        f"{_listed(program, need.largest)}; "
        f"{smaller}compute parts of the function with mm.remat, divide the arrays over workers on "
        f"more hosts, or raise memory_limit{where}"
    )


def _temporaries(program: Program) -> list[int]:
    """Return the slots of the temporaries that own memory."""
    return [i for i, slot in enumerate(program.slots) if slot.has_arena_memory]


def total_bytes(program: Program, slots: Collection[int]) -> int:
    """Return the bytes of slots on the worker that needs most."""
    return sum([bytes_of(program.slots[i]) for i in slots])


def _occupied(program: Program, temporaries: Collection[int]) -> FloatArray:
    """Return the bytes of temporaries that are alive at each position of the program."""
    changes = np.zeros(len(program.instructions) + 2)
    for slot in [program.slots[i] for i in temporaries]:
        changes[slot.first] += bytes_of(slot)
        changes[slot.last + 1] -= bytes_of(slot)
    return np.cumsum(changes)


def _recomputing(program: Program) -> str:
    """Return the number of values that the program computes twice, in words."""
    again = sum([isinstance(x, Call) and x.is_recomputation for x in program.instructions])
    return f", although it computes {again} intermediates twice" if again else ""


def _listed(program: Program, largest: Sequence[int]) -> str:
    """Return the first of these arrays in words, equal ones once with their number."""
    counts: Counter[str] = Counter()
    least = 0
    for i in largest:
        nbytes = bytes_of(program.slots[i])
        if nbytes < least:  # no later one equals one that is shown
            break
        array = _described(program, i)
        if array in counts or len(counts) < _MAX_SHOWN:
            counts[array] += 1
        if len(counts) == _MAX_SHOWN:
            least = nbytes
    return ", ".join([f"{n} × {array}" if n > 1 else array for array, n in counts.items()])


def _described(program: Program, index: int) -> str:
    slot, writer = program.slots[index], program.writer(index)
    line = getattr(writer, "line", None)
    where = f" at {line[0]}:{line[1]}" if line else ""
    name = getattr(writer, "operation", slot.kind)
    return f"{name} {slot.dtype} {slot.shape} ({format_bytes(bytes_of(slot))}){where}"


def _smaller_batch(program: Program, room: int) -> str:
    """Return the remedy of a smaller batch, or an empty string if none fits.

    The memory of second computations is not proportional to the batch, so `program` has none. It
    has a batch if it reads more than the variables that it updates; arrays of their shapes, such as
    gradients, are not divided by it, nor are workspaces, which have a row for each worker.
    """
    variables = {program.inputs[i] for i in program.donated.values()}
    if variables.issuperset(program.inputs):
        return ""
    updated = {program.slots[i].shape for i in variables}
    workspaces = {x.workspace for x in program.instructions if isinstance(x, Call)}
    extents: Counter[int] = Counter()
    for i in need_of(program).largest:
        slot = program.slots[i]
        if slot.shape and slot.shape[0] > 1 and slot.shape not in updated and i not in workspaces:
            extents[slot.shape[0]] += bytes_of(slot)
    if not extents:
        return ""
    ((batch, _),) = extents.most_common(1)
    # An input of this extent may be a data set, which does not shrink with the batch.
    fitting = _fitting_batch(program, batch, room, shrinks=program.new_outputs)
    if fitting < 1:
        shrinks = [*program.inputs, *program.new_outputs]
        fitting = _fitting_batch(program, batch, room, shrinks=shrinks)
    if not 1 <= fitting < batch:
        return ""
    return f"reduce the batch from {batch} to about {fitting} (if the first axis numbers samples), "


def _fitting_batch(program: Program, batch: int, room: int, shrinks: Collection[int]) -> int:
    """Return the largest batch whose arrays fit at every position of the program, and 0 or less if
    there is none.

    `shrinks`: inputs and outputs that are proportional to the batch if that is their first extent,
    as temporaries are.
    """
    temporaries = _temporaries(program)
    parts = {i for i in (*temporaries, *shrinks) if program.slots[i].shape[:1] == (batch,)}
    occupied = _occupied(program, temporaries)
    gaps = arrange(program).nbytes / max(1.0, occupied.max())
    moving = _occupied(program, parts.intersection(temporaries))
    arrays = {*program.inputs, *program.new_outputs}
    fixed = gaps * (occupied - moving) + total_bytes(program, arrays - parts)
    slope = (gaps * moving + total_bytes(program, arrays & parts)) / batch
    positions = slope > 0
    available = (1 - RESERVED_SHARE) * room - fixed
    fitting = int(np.min(available[positions] / slope[positions], initial=batch))
    return fitting - fitting % program.workers if fitting > program.workers else fitting
