"""Writing aside: a file is made in a folder beside its place and moved there when it is whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.saving-") as folder:
        aside = Path(folder, target.name)
        yield str(aside)
        _settle(aside)
        if target.is_dir():
            _exchange(aside, target, Path(folder, "former"))
        else:
            aside.rename(target)


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
