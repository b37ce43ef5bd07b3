"""The folders and files that commands write."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from magmath.errors import OptionError


def create_folder(folder: Path) -> None:
    """Make the folder with its parents. Raises OptionError if that is not possible, or if no file
    can be written into it."""
    problem = "created"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = "written"
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(
            f"--output: the folder {folder} cannot be {problem}: {error.strerror}; choose one in a "
            "writable folder"
        ) from error
