"""The barrier of ranks that share memory, compiled to a few loads and stores.

Each rank counts the barriers it enters in a cache line of its own and waits until no other rank's
count is behind. It spins a little, then yields the processor, then sleeps in short naps, since
there may be more workers than cores. `wait` and `agree` are plain compiled functions over the
barrier memory, so that generated native code joins the same barriers as Python.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from magmath.comm.flags import (
    ABORT,
    AGREED,
    ENTERED,
    LINE,
    SPIN,
    VALUES,
    Flags,
    lost,
)
from magmath.machine.raw import pointer

DONE = 0
"""`wait` and `enter` return it when every rank has entered the barrier."""
ABORTED = 1
"""`wait` and `enter` return it when a rank has aborted."""
PENDING = 2
"""`enter` returns it when its patience is over."""

YIELDS = 2000
NAP = 50  # microseconds
PATIENCE = 2000  # naps between two looks at Python's signals: a tenth of a second
_FOREVER = -1
_IS_X86 = platform.machine() in ("x86_64", "AMD64", "i686")

sched_yield = types.ExternalFunction("sched_yield", types.int32())
usleep = types.ExternalFunction("usleep", types.int32(types.uint32))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return cgutils.gep(builder, data, index)


@intrinsic  # type: ignore[untyped-decorator]
def load_acquire(typing_context: Any, flags: Any, index: Any) -> Any:
    """flags[index], read so that what was written before it was set is seen."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _address(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "acquire", 8)

    return types.uint64(flags, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_release(typing_context: Any, flags: Any, index: Any, value: Any) -> Any:
    """flags[index] = value, seen by others only after all that was written before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place, word = arguments
        pointer = _address(context, builder, signature.args[0], array, place)
        builder.store_atomic(word, pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(flags, types.intp, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def pause(typing_context: Any) -> Any:
    """A hint to the processor that this is a spinning loop; nothing where it has none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _IS_X86:
            kind = ir.FunctionType(ir.VoidType(), ())
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(hint, ())
        return context.get_dummy_value()

    return types.void(), generate


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _arrive(flags: Flags, rank: int) -> np.uint64:
    """Count this rank's entry into the next barrier; the number of that barrier."""
    place = LINE * (1 + rank) + ENTERED
    entered: np.uint64 = flags[place] + np.uint64(1)
    store_release(flags, place, entered)
    return entered


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _await(flags: Flags, rank: int, size: int, entered: np.uint64, patience: int) -> int:
    """Wait until every rank has entered; PENDING after `patience` naps, unless that is -1."""
    spins = flags[SPIN]
    looks = np.uint64(0)
    naps = 0
    yields = 0
    for other in range(size):
        place = LINE * (1 + other) + ENTERED
        while other != rank and load_acquire(flags, place) < entered:
            if load_acquire(flags, ABORT) != 0:
                return ABORTED
            if looks < spins:
                looks += np.uint64(1)
                pause()
            elif yields < YIELDS:
                yields += 1
                sched_yield()
            elif naps != patience:
                naps += 1
                usleep(np.uint32(NAP))
            else:
                return PENDING
    return ABORTED if load_acquire(flags, ABORT) != 0 else DONE


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def wait(flags: Flags, rank: int, size: int) -> int:
    """Meet the other ranks: DONE once all have entered, ABORTED if one has aborted.

    `flags`: the uint64 barrier memory of `size` ranks (`magmath.comm.flags`).
    """
    status: int = _await(flags, rank, size, _arrive(flags, rank), _FOREVER)
    return status


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def wait_at(address: int, rank: int, size: int) -> int:
    """`wait` with the barrier memory's address."""
    flags = carray(pointer(address, np.uint64(0)), (LINE * (1 + size),))
    status: int = wait(flags, rank, size)
    return status


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _show(flags: Flags, rank: int, value: int) -> int:
    """Show `value` to the others in the next barrier; the word of the line that holds it.

    Two words take turns: whoever reaches the barrier after next has read this one.
    """
    line = LINE * (1 + rank)
    word: int = VALUES + int(flags[line + AGREED] & np.uint64(1))
    flags[line + AGREED] += np.uint64(1)
    flags[line + word] = value
    return word


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _largest(flags: Flags, size: int, word: int) -> np.uint64:
    """The largest value that the ranks have shown in this word of their lines."""
    result = np.uint64(0)
    for other in range(size):
        result = max(result, flags[LINE * (1 + other) + word])
    return result


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def enter(flags: Flags, rank: int, size: int) -> int:
    """As `wait`, but PENDING after a while, upon which `SpinBarrier.finish` waits on."""
    status: int = _await(flags, rank, size, _arrive(flags, rank), PATIENCE)
    return status


class SpinBarrier:
    """The barrier as Python calls it: it lets other threads run, and signals be handled.

    `flags`: barrier memory that all `size` ranks see, prepared by `prepare_flags`.
    """

    def __init__(self, flags: Flags, rank: int, size: int) -> None:
        self.flags = flags
        self.rank = rank
        self.size = size

    def wait(self) -> None:
        """Return once every rank has called it. Raises WorkerLost once a rank has aborted."""
        status = enter(self.flags, self.rank, self.size)
        if status != DONE:
            self.finish(status)

    def finish(self, status: int) -> None:
        """Wait on in the barrier that `enter` has left with this status. Raises as `wait`."""
        entered = self.flags[LINE * (1 + self.rank) + ENTERED]
        while status == PENDING:
            # Back in Python for a moment, so that Ctrl-C and other signals are handled.
            status = _await(self.flags, self.rank, self.size, entered, PATIENCE)
        if status == ABORTED:
            raise lost()

    def agree(self, value: int) -> int:
        """The largest of the values (at least 0) that the ranks call it with."""
        word = _show(self.flags, self.rank, value)
        self.wait()
        return int(_largest(self.flags, self.size, word))
