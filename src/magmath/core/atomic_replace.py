"""Atomic replacement of files: a reader sees either the old file or the complete new one.

The new file is written in a private folder next to the target, synchronized to disk, and renamed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from magmath.core.private_folder import private_folder

DRAFT_PATTERN = ".*.saving-*"
"""Glob pattern of the folders in which new files are written."""


@contextmanager
def atomic_replace(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a path to write to; on exit, the file or folder at that path replaces `path`.

    After an exception `path` is unchanged and the draft is removed. Raises OSError if the parent
    folder is missing or not writable, or if a file would replace a folder.
    """
    target = Path(path)
    with private_folder(target.parent, f".{target.name}.saving-") as folder:
        draft = folder / target.name
        yield str(draft)
        if target.is_dir() and not draft.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        _fsync(draft)
        if target.is_dir():
            _swap_folder(draft, target, folder / "former")
        else:
            draft.rename(target)


def _swap_folder(draft: Path, target: Path, former: Path) -> None:
    """Replace one folder by another; the file system has no atomic operation for this."""
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
