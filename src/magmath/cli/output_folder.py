"""The folders and files that commands write."""

from __future__ import annotations

from pathlib import Path

from magmath.errors import OptionError


def create_folder(folder: Path, option: str = "--output") -> None:
    """Make the folder with its parents. Raises OptionError if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"{option}: the folder {folder} cannot be created: {error.strerror}; choose one in a "
            "writable folder"
        ) from error


def prepare_file(file: Path, option: str) -> None:
    """Make the folder of a file that a command writes at its end. Raises OptionError if that is not
    possible, or if the name is that of a folder."""
    create_folder(file.parent, option)
    if file.is_dir():
        raise OptionError(f"{option}: {file} is a folder; name a file in it")
