"""The folders and files that commands write."""

from __future__ import annotations

from pathlib import Path

from magmath.errors import OptionError


def create_folder(folder: Path) -> None:
    """Make the folder with its parents. Raises OptionError if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"--output: the folder {folder} cannot be created: {error.strerror}; choose one in a "
            "writable folder"
        ) from error
