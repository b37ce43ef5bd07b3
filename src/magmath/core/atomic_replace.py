"""Atomic replacement of files and folders: a reader sees either the old or the complete new one.

The new file is written in a private folder next to the target, synchronized to disk, and renamed. A
folder is exchanged with the old one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from magmath.core.private_folder import private_folder

DRAFT_PATTERN = ".*.saving-*"
"""Glob pattern of the folders in which new files are written."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def atomic_replace(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a path to write to; on exit, the file or folder at that path replaces `path`.

    If `path` is a symbolic link, it stays one, and what it refers to is replaced. A file keeps the
    permissions of the former one. After an exception `path` is unchanged and the draft is removed.
    Raises OSError if the parent folder is missing or not writable, or if a file would replace a
    folder.
    """
    target = Path(os.path.realpath(path))
    with private_folder(target.parent, f".{target.name}.saving-") as folder:
        draft = folder / Path(path).name  # whose suffix formats may read
        yield str(draft)
        if target.is_dir() and not draft.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        mode = _file_mode(target)
        if mode is not None:
            draft.chmod(mode)
        _fsync(draft)
        if not target.is_dir():
            draft.rename(target)
        elif not _exchange(draft, target):
            _replace_folder(draft, target, folder / "former")


def _file_mode(path: Path) -> int | None:
    """Return the permissions of a file; None if there is none, or another process has removed it
    just now."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    return stat.S_IMODE(mode) if stat.S_ISREG(mode) else None


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders atomically; return False if the system or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    paths = [os.fsencode(path.absolute()) for path in (first, second)]
    status: int = renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
    return status == 0


def _replace_folder(draft: Path, target: Path, former: Path) -> None:
    """Replace one folder by another in two steps, between which there is none."""
    target.rename(former)
    try:
        draft.rename(target)
    except BaseException:
        former.rename(target)
        raise


def _fsync(written: Path) -> None:
    """Synchronize a file, or all files of a folder, to disk."""
    folders = os.walk(written)  # empty for a file
    files = [Path(folder, name) for folder, _, names in folders for name in names]
    for file in files if written.is_dir() else [written]:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
