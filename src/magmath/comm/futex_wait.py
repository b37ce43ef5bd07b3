"""How ranks that share memory wait for one another's words, compiled.

A word is raised by one rank; others wait until it has reached a value. They look at it a while,
then yield the processor, since there may be more workers than cores, and then sleep until it is
raised: a sleeper leaves the processors to those who work, who may use the threads of all. The word
behind tells whoever raises one that somebody sleeps.

Source: Drepper (2011), "Futexes are tricky". Where there are none, sleepers take short naps.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

from magmath.comm.barrier_memory import ABORT, SPIN_COUNT

DONE: Final = 0
"""Waiting functions return it when what they wait for is there."""
ABORTED: Final = 1
"""Waiting functions return it when a rank has aborted."""
PENDING: Final = 2
"""Waiting functions return it when their patience is over."""

_FUTEX = {"x86_64": 202, "aarch64": 98}  # the number of the system call
_HAS_FUTEX = sys.platform == "linux" and platform.machine() in _FUTEX

CONSTANTS: Final = {
    "ABORT": ABORT, "SPIN_COUNT": SPIN_COUNT, "DONE": DONE, "ABORTED": ABORTED, "PENDING": PENDING,
    "YIELDS": 2000,
    "SLEEPER_WORD": 1,  # from a word to the one that tells of sleepers
    "HAS_FUTEX": _HAS_FUTEX, "FUTEX": _FUTEX.get(platform.machine(), 0),
    "FUTEX_WAIT": 0, "FUTEX_WAKE": 1, "ALL_WAITERS": 2**31 - 1,
    "SLEEP_MICROSECONDS": 20_000 if _HAS_FUTEX else 50,  # microseconds of sleep without a look
    "MAX_SLEEPS": 5 if _HAS_FUTEX else 2000,  # naps between two looks at Python's signals: 0.1 s
    "FOREVER": -1,
}  # fmt: skip

# `flags`: the barrier memory of the ranks (`magmath.comm.barrier_memory`).
WAIT_SOURCE: Final = '''
def store_and_wake(words: uint64[1], place: int64, value: uint64):
    """Let others see a higher value, and what was written before it."""
    store_release(words, place, value)
    fence()  # who goes to sleep from here on looks at the new value first
    if load_acquire(words, place + SLEEPER_WORD) != 0:
        store_release(words, place + SLEEPER_WORD, uint64(0))
        if HAS_FUTEX != 0:
            syscall(FUTEX, address(words) + 8 * place, FUTEX_WAKE, ALL_WAITERS, 0, 0, 0)

def futex_sleep(words: uint64[1], place: int64, seen: uint64):
    """Sleep until a word, which held `seen`, is raised; for a nap at most."""
    store_release(words, place + SLEEPER_WORD, uint64(1))
    fence()
    if load_acquire(words, place) == seen:
        if HAS_FUTEX != 0:
            time: int64[1] = stack(16)
            time[0] = 0
            time[1] = 1000 * SLEEP_MICROSECONDS
            word = address(words) + 8 * place  # its lower half is compared
            syscall(FUTEX, word, FUTEX_WAIT, int64(seen), address(time), 0, 0)
        else:
            usleep(SLEEP_MICROSECONDS)

def wait_until_reached(
    flags: uint64[1], words: uint64[1], place: int64, least: uint64, patience: int64
) -> int64:
    """Wait until a word is at least `least`; PENDING after `patience` naps, unless FOREVER."""
    spins = flags[SPIN_COUNT]
    looks = uint64(0)
    yields = 0
    naps = 0
    seen = load_acquire(words, place)
    while seen < least:
        if load_acquire(flags, ABORT) != 0:
            return ABORTED
        if looks < spins:
            looks = looks + 1
            pause()
        elif yields < YIELDS:
            yields = yields + 1
            sched_yield()
        elif naps != patience:
            naps = naps + 1
            futex_sleep(words, place, seen)
        else:
            return PENDING
        seen = load_acquire(words, place)
    return DONE
'''
