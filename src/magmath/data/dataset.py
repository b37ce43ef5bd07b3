"""The type of the data sets of `magmath.data.load`, and the folders that are searched for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from magmath.core.options import DATA

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels, split into training and test data.

    `train_images`, `test_images`: float32 in [0, 1], shape (N, C, H, W). `train_labels`,
    `test_labels`: int64, shape (N,), indices into `classes`.
    """

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    name: str
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        image = "×".join(map(str, self.train_images.shape[1:]))
        return (
            f"Dataset({self.name!r}: {len(self.train_labels)} training and "
            f"{len(self.test_labels)} test images of {image}, {len(self.classes)} classes)"
        )


def unit_images(pixels: npt.NDArray[np.uint8]) -> Images:
    """Return 8-bit pixels as float32 in [0, 1]."""
    return pixels.astype(np.float32) / np.float32(255)


def data_folders() -> list[Path]:
    """Return the folder of the environment variable MAGMATH_DATA, or none if it is not set."""
    folder = DATA.read()
    return [Path(folder).expanduser()] if folder else []


def unset_variable() -> list[str]:
    """Return a description of the environment variable for error messages, if it is not set."""
    return [] if data_folders() else [f"${DATA} (which is not set)"]


def folder_content(folder: Path, at_most: int = 5) -> str:
    """Return a short list of the entries of a folder, for error messages."""
    if not folder.exists():
        return "does not exist"
    if not folder.is_dir():
        return "is a file"
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    if not names:
        return "is empty"
    unlisted = len(names) - at_most
    return "has " + ", ".join(names[:at_most]) + (f" and {unlisted} more" if unlisted > 0 else "")
