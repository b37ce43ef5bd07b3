"""Temporary folders that only this process writes to, removed even after it was killed.

A process keeps its folder locked while it runs. The next process that creates a folder with the
same prefix removes the folders that are no longer locked. On file systems without such locks (NFS
has none for folders), only the creating process removes a folder.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def private_folder(parent: str | os.PathLike[str], prefix: str) -> Iterator[Path]:
    """Create a folder in `parent` that only this user can enter; remove it at the end of the block.

    A process forked within the block does not remove it. Raises OSError if `parent` is not
    writable.
    """
    remove_abandoned(parent, f"{glob.escape(prefix)}*")
    owner = os.getpid()
    folder, lock = _create_locked(parent, prefix)
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned(parent: str | os.PathLike[str], pattern: str) -> None:
    """Remove the private folders in `parent` that match `pattern` and whose processes have
    ended."""
    for folder in Path(parent).glob(pattern):
        with suppress(OSError):
            lock = _open_folder(folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _create_locked(parent: str | os.PathLike[str], prefix: str) -> tuple[Path, int]:
    """Create a folder; return it and the open file that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            lock = _open_folder(folder)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir():
                return folder, lock
            os.close(lock)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
