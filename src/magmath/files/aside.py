"""Writing aside: a file is made in a folder beside its place and moved there when it is whole."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from magmath.errors import DataError, MissingDataError

_STORES = ("zarr.json", ".zarray", ".zgroup")
"""What is in a folder that is a file of arrays: such a one may be replaced."""


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """Where to write what shall be at `path`. It is moved there at the end, in place of what was
    there; after an exception nothing has changed and nothing is left behind.

    Raises MissingDataError where the folder of `path` is missing, DataError where `path` is a
    folder that holds no arrays.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingDataError(
            f"save: there is no folder {target.parent} to write {path} in; make it"
        )
    if target.is_dir() and not any((target / name).exists() for name in _STORES):
        raise DataError(f"save: {path} is a folder of other things; choose another path")
    with _own_folder(target.parent, f".{target.name}.saving-") as folder:
        aside = Path(folder, target.name)
        yield str(aside)
        _settle(aside)
        if target.is_dir():
            _exchange(aside, target, Path(folder, "former"))
        else:
            aside.rename(target)


@contextmanager
def _own_folder(parent: Path, prefix: str) -> Iterator[str]:
    """A folder of this process, removed at the end. Those of processes that were killed are removed
    first: nobody holds their locks any more."""
    for left in parent.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError), _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(left)
    while True:
        with (
            tempfile.TemporaryDirectory(
                dir=parent, prefix=prefix, ignore_cleanup_errors=True
            ) as made,
            _locked(Path(made), fcntl.LOCK_EX),
        ):
            if os.path.isdir(made):  # else it was taken for one that is left, before it was locked
                yield made
                return


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Within, a lock on a folder, which ends with this process. Raises OSError where another holds
    it; a file system without locks gives none, and nothing is removed there."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, how)
        yield
    finally:
        os.close(opened)


def _exchange(aside: Path, target: Path, former: Path) -> None:
    """Move one folder in place of another, which cannot be done in one step."""
    target.rename(former)
    try:
        aside.rename(target)
    except BaseException:
        former.rename(target)
        raise


def _settle(written: Path) -> None:
    """Have the system bring a file to the disk, so that what is moved into place is all there."""
    folders = os.walk(written)  # nothing, where it is a file
    files = [Path(folder, name) for folder, _, names in folders for name in names]
    for file in files if written.is_dir() else [written]:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
