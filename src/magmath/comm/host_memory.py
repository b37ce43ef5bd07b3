"""Memory shared by all processes of a host.

It is an anonymous memory file (Linux `memfd`): it has no name, so nothing remains when a process is
killed; it is not limited by the size of /dev/shm, which is small in containers; untouched pages
cost nothing; and it stays mapped while an array views it. Each mapping costs a file number.
"""

from __future__ import annotations

import mmap
import os
import resource
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

MAX_FILES: Final = 1 << 20
"""The limit of open files that `allow_many_mappings` sets at most."""


@final
@dataclass(frozen=True, slots=True)
class HostMemory:
    """Zeroed memory created by this process, which other processes of the user can attach.

    `handle`: process and file number, by which they attach it; valid until `seal`.
    """

    array: Bytes
    handle: tuple[int, int]

    @staticmethod
    def create(nbytes: int) -> HostMemory | None:
        """Allocate memory; None if the system has no memory or no file number left, or does not
        support it."""
        try:
            file = os.memfd_create("magmath", os.MFD_CLOEXEC)
        except (AttributeError, OSError):  # AttributeError: no Linux
            return None
        try:
            os.ftruncate(file, nbytes)
            return HostMemory(_map(file, nbytes), (os.getpid(), file))
        except OSError:
            os.close(file)
            return None

    def seal(self) -> None:
        """Prevent further attachments; existing mappings stay valid."""
        os.close(self.handle[1])


@final
class SharedWindowTable:
    """The address ranges of shared windows in this process, for lookups by compiled code.

    `words[:, n]`: address and length of window number n, from 1; length 0 after it is freed.
    `handle`: the address of the words, and their number of columns.
    """

    def __init__(self) -> None:
        # Old tables too: another thread may be reading them.
        self._tables: list[NDArray[np.int64]] = []
        self._tables.append(np.zeros((2, 16), np.int64))
        self._set_table(self._tables[0])
        self._count = 0

    def add(self, owner: object, address: int, nbytes: int) -> None:
        """Add the next window, valid while `owner` is alive."""
        self._count += 1
        if self._count == self.words.shape[1]:
            self._grow()
        self.words[:, self._count] = address, nbytes
        weakref.finalize(owner, self._remove, self._count).atexit = False

    def _set_table(self, words: NDArray[np.int64]) -> None:
        self.words = words
        self.handle = words.ctypes.data, words.shape[1]

    def _grow(self) -> None:
        """Double the table. Owners may end meanwhile: in other threads, or by the collector."""
        former, columns = self.words, self.words.shape[1]
        words = np.zeros((2, 2 * columns), np.int64)
        self._tables.append(words)  # from here on `_remove` clears both
        words[:, :columns] = former
        words[:, :columns][:, former[1] == 0] = 0  # removed during the copy
        self._set_table(words)

    def _remove(self, number: int) -> None:
        for words in self._tables:
            words[:, number : number + 1] = 0


def allow_many_mappings() -> None:
    """Raise this process's limit of open files, which is also one of mappings, as far as it may.

    The usual limit is kept low only for programs that use `select`.
    """
    limit, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MAX_FILES if maximum == resource.RLIM_INFINITY else min(maximum, MAX_FILES)
    if resource.RLIM_INFINITY != limit < allowed:
        with suppress(OSError, ValueError):  # a system with another maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, maximum))


def is_file_size_limited() -> bool:
    """Return True if a limit on the size of files (ulimit -f) restricts shared memory."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return limit != resource.RLIM_INFINITY and limit < memory


def attach(handle: tuple[int, int], nbytes: int) -> Bytes | None:
    """Map the memory that another process of this host has created.

    Returns None if it is not accessible: created on another host, or in another container.
    """
    process, number = handle
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
    memory: Any = mmap.mmap(file, nbytes)  # has a duplicate of the file number while it exists
    return np.frombuffer(memory, np.uint8)
