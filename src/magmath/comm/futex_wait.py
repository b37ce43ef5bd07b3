"""Compiled waiting on words in shared memory: spin, then sleep on a futex.

One rank increases a word; others wait until it reaches a value. They first poll it, and then sleep
until it changes, which leaves the processors to working ranks and other programs. They do not yield
(sched_yield) in between: on a machine with other programs, steps with short waits took ten times as
long with yields. The following word shows the writer that ranks sleep.

Linux may run a rank on the processor of another one although a processor is idle: the one that is
woken is placed near its waker. Both then take turns, which makes a collective of 2 µs take 50. If
there are enough processors, a rank that wakes another one which fell asleep on its own processor
therefore moves to another processor first.

Source: Drepper (2011), "Futexes are tricky". On systems without futexes, waiting ranks sleep for
short intervals.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

from magmath.comm.barrier_memory import ABORT, SEPARATE, SPIN_COUNT

DONE: Final = 0
"""Returned by waiting functions when the condition holds."""
ABORTED: Final = 1
"""Returned by waiting functions when a rank has aborted."""
PENDING: Final = 2
"""Returned by waiting functions after the maximal number of sleeps."""

_SYSTEM_CALLS = {  # futex, sched_setaffinity, sched_getaffinity
    "x86_64": (202, 203, 204),
    "aarch64": (98, 122, 123),
}
_HAS_FUTEX = sys.platform == "linux" and platform.machine() in _SYSTEM_CALLS
_FUTEX, _SET_AFFINITY, _GET_AFFINITY = _SYSTEM_CALLS.get(platform.machine(), (0, 0, 0))

CONSTANTS: Final = {
    "ABORT": ABORT, "SEPARATE": SEPARATE, "SPIN_COUNT": SPIN_COUNT,
    "DONE": DONE, "ABORTED": ABORTED, "PENDING": PENDING,
    "SLEEPER_WORD": 1,  # offset from a word to its sleeper flag
    "HAS_FUTEX": _HAS_FUTEX, "FUTEX": _FUTEX,
    "FUTEX_WAIT": 0, "FUTEX_WAKE": 1, "ALL_WAITERS": 2**31 - 1,
    "SET_AFFINITY": _SET_AFFINITY, "GET_AFFINITY": _GET_AFFINITY, "PROCESSOR_WORDS": 128,
    "SLEEPS": 1, "SLEEPS_ON_PROCESSOR": 2,  # flags: of a sleeper; + the number of its processor
    "SLEEP_MICROSECONDS": 20_000 if _HAS_FUTEX else 50,  # maximal duration of one sleep
    "MAX_SLEEPS": 5 if _HAS_FUTEX else 2000,  # then Python handles signals: 0.1 s
    "FOREVER": -1,
}  # fmt: skip

# `flags`: the barrier memory of the ranks (`magmath.comm.barrier_memory`).
WAIT_SOURCE: Final = '''
def leave_processor(processor: int64):
    """Move this thread to another processor that it may use, if it runs on this one."""
    if int64(sched_getcpu()) != processor:
        return
    allowed: uint64[1] = stack(8 * PROCESSOR_WORDS)
    nbytes = syscall(GET_AFFINITY, 0, 8 * PROCESSOR_WORDS, address(allowed), 0, 0, 0)
    word = processor // 64
    if nbytes <= 8 * word:
        return
    own = allowed[word]
    others = own & (uint64(-1) ^ (uint64(1) << uint64(processor % 64)))
    any_allowed = others
    for i in range(nbytes // 8):
        if i != word:
            any_allowed = any_allowed | allowed[i]
    if any_allowed != 0:
        allowed[word] = others
        syscall(SET_AFFINITY, 0, nbytes, address(allowed), 0, 0, 0)
        allowed[word] = own
        syscall(SET_AFFINITY, 0, nbytes, address(allowed), 0, 0, 0)

def store_and_wake(words: uint64[1], index: int64, value: uint64):
    """Store a higher value with release semantics, and wake sleeping ranks."""
    store_release(words, index, value)
    fence()  # a rank that goes to sleep after this fence reads the new value first
    sleeper = int64(load_acquire(words, index + SLEEPER_WORD))
    if sleeper != 0:
        store_release(words, index + SLEEPER_WORD, uint64(0))
        if HAS_FUTEX != 0:
            if sleeper >= SLEEPS_ON_PROCESSOR:
                leave_processor(sleeper - SLEEPS_ON_PROCESSOR)
            syscall(FUTEX, address(words) + 8 * index, FUTEX_WAKE, ALL_WAITERS, 0, 0, 0)

def futex_sleep(flags: uint64[1], words: uint64[1], index: int64, seen: uint64):
    """Sleep until a word changes from `seen`, for SLEEP_MICROSECONDS at most."""
    sleeper = SLEEPS
    if flags[SEPARATE] != 0 and HAS_FUTEX != 0:
        sleeper = SLEEPS_ON_PROCESSOR + int64(sched_getcpu())
    store_release(words, index + SLEEPER_WORD, uint64(sleeper))
    fence()
    if load_acquire(words, index) == seen:
        if HAS_FUTEX != 0:
            time: int64[1] = stack(16)
            time[0] = 0
            time[1] = 1000 * SLEEP_MICROSECONDS
            word = address(words) + 8 * index  # the futex compares its lower half
            syscall(FUTEX, word, FUTEX_WAIT, int64(seen), address(time), 0, 0)
        else:
            usleep(SLEEP_MICROSECONDS)

def wait_until_reached(
    flags: uint64[1], words: uint64[1], index: int64, least: uint64, patience: int64
) -> int64:
    """Wait until a word is at least `least`; PENDING after `patience` sleeps, unless FOREVER."""
    spins = flags[SPIN_COUNT]
    looks = uint64(0)
    naps = 0
    seen = load_acquire(words, index)
    while seen < least:
        if load_acquire(flags, ABORT) != 0:
            return ABORTED
        if looks < spins:
            looks = looks + 1
            pause()
        elif naps != patience:
            naps = naps + 1
            futex_sleep(flags, words, index, seen)
        else:
            return PENDING
        seen = load_acquire(words, index)
    return DONE
'''
