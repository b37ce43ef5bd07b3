"""Memory that all processes of a host see.

It is an anonymous file in memory (Linux `memfd`): it has no name, so nothing stays behind however
a process dies; it is not bounded by the size of /dev/shm, which containers keep small; pages that
nobody touches cost nothing; and it is unmapped when the last array that views it is gone, so no
array ever views memory that is not there.
"""

from __future__ import annotations

import mmap
import os
import resource
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Zeroed memory made by this process, for other processes of its user to attach.

    `place` is what they need for it, process and file number, and is good until `seal`.
    """

    array: Bytes
    place: tuple[int, int]

    @staticmethod
    def create(nbytes: int) -> HostMemory | None:
        """New memory; None where the system has none, or no such memory."""
        try:
            file = os.memfd_create("magmath", os.MFD_CLOEXEC)
        except (AttributeError, OSError):  # no Linux; no file numbers left
            return None
        try:
            os.ftruncate(file, nbytes)
            return HostMemory(_map(file, nbytes), (os.getpid(), file))
        except OSError:
            os.close(file)
            return None

    def seal(self) -> None:
        """Let nobody else attach; the memory stays where it is mapped."""
        os.close(self.place[1])


class WindowTable:
    """Where windows lie in this process, for compiled code that looks for an address in them.

    `words[:, n]`: address and length of window number n, from 1; length 0 once it is given back.
    `place`: where the words lie, and how many columns they have.
    """

    def __init__(self) -> None:
        self._tables: list[NDArray[np.int64]] = []
        self._set_table(np.zeros((2, 16), np.int64))
        self._count = 0

    def add(self, owner: object, address: int, nbytes: int) -> None:
        """Note the next window, there as long as `owner`."""
        self._count += 1
        if self._count == self.words.shape[1]:
            self._set_table(np.concatenate([self.words, np.zeros_like(self.words)], axis=1))
        self.words[:, self._count] = address, nbytes
        weakref.finalize(owner, self._remove, self._count).atexit = False

    def _set_table(self, words: NDArray[np.int64]) -> None:
        self._tables.append(words)  # former ones too: another thread may be reading there
        self.words = words
        self.place = words.ctypes.data, words.shape[1]

    def _remove(self, number: int) -> None:
        self.words[:, number] = 0


def is_file_size_limited() -> bool:
    """True if a limit on the size of files (ulimit -f) leaves shared memory less than the machine
    has."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return limit != resource.RLIM_INFINITY and limit < memory


def attach(place: tuple[int, int], nbytes: int) -> Bytes | None:
    """Map the memory that another process of this host has made.

    None where it cannot be seen: made on another host, or in another container.
    """
    process, number = place
    try:
        file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _map(file, nbytes)
    except (OSError, ValueError):  # ValueError: another process's file of that number, shorter
        return None
    finally:
        os.close(file)


def _map(file: int, nbytes: int) -> Bytes:
    memory: Any = mmap.mmap(file, nbytes)
    return np.frombuffer(memory, np.uint8)
