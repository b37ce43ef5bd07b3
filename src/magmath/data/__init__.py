"""Data sets, readers of their file formats, and the loading pipeline of images.

`load` returns NumPy arrays in the controller's process, which `fit` sends to the workers;
`ImageFolder` reads folders of image files; `Loader` prepares batches of either in background
threads, with augmentation by the functions of `transforms`; `read_csv` loads a table on the workers
directly. Nothing is downloaded: a missing data set raises an error with the searched locations and
the way to get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from magmath.core.foreign_names import DATA_NAMES, hint, missing_in_module
from magmath.data.csv import read_csv
from magmath.data.dataset import Dataset
from magmath.data.datasets import load
from magmath.data.idx import read_idx
from magmath.data.image_folder import ImageFolder, image_folders
from magmath.data.loader import Loader
from magmath.data.transforms import normalize, pixel_statistics, random_crop, random_flip, resize

__all__ = [
    "Dataset",
    "ImageFolder",
    "Loader",
    "image_folders",
    "load",
    "normalize",
    "pixel_statistics",
    "random_crop",
    "random_flip",
    "read_csv",
    "read_idx",
    "resize",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        raise missing_in_module("magmath.data", __all__, name, hint(DATA_NAMES, name))
