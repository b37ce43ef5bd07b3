"""Atomic replacement of files: a reader finds the former file or the whole new one.

The new file is written in a private folder of the same parent, flushed to the disk, and renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from magmath.core.private_folder import private_folder

DRAFT_PATTERN = ".*.saving-*"
"""A pattern of the names of folders in which new files are written."""


@contextmanager
def atomic_replace(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a path to write to; the file or folder that is there at the end replaces `path`.

    After an exception `path` is unchanged and nothing is left behind. Raises OSError where the
    parent folder is missing or cannot be written to.
    """
    target = Path(path)
    with private_folder(target.parent, f".{target.name}.saving-") as folder:
        draft = folder / target.name
        yield str(draft)
        _fsync(draft)
        if target.is_dir():
            _swap_folder(draft, target, folder / "former")
        else:
            draft.rename(target)


def _swap_folder(draft: Path, target: Path, former: Path) -> None:
    """Move one folder in place of another, which cannot be done in one step."""
    target.rename(former)
    try:
        draft.rename(target)
    except BaseException:
        former.rename(target)
        raise


def _fsync(written: Path) -> None:
    """Have the system bring a file, or all files of a folder, to the disk."""
    folders = os.walk(written)  # empty for a file
    files = [Path(folder, name) for folder, _, names in folders for name in names]
    for file in files if written.is_dir() else [written]:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
