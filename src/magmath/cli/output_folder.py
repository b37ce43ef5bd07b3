"""The folders and files that commands write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from magmath.errors import OptionError


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make the folder with its parents for a command. If the command fails, those that it has made
    are removed again if they are empty.

    Raises OptionError if the folder cannot be made, or if no file can be written into it.
    """
    missing: list[Path] = []
    try:
        missing += _make_folder(folder)
        yield
    except BaseException:
        for path in missing:
            with suppress(OSError):  # it is not empty
                path.rmdir()
        raise


def _make_folder(folder: Path) -> list[Path]:
    """Make the folder, and return those that were missing, the innermost first."""
    problem = "created"
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        problem = "written"
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(
            f"--output: the folder {folder} cannot be {problem}: {error.strerror}; choose one in a "
            "writable folder"
        ) from error
    return missing
