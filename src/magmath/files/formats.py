"""The table of file formats, found by a file's suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

from magmath.errors import DataError, MagmathError
from magmath.files import csv, hdf5, npy, npz, safetensors, zarr
from magmath.files.array_specs import ArraySpec, RawBytes
from magmath.files.checksums import PartChecksums
from magmath.files.csv_rows import CsvRows
from magmath.files.hdf5 import Hdf5Chunks
from magmath.files.npz import ZipMember
from magmath.files.zarr import ZarrChunks

StorageSpec: TypeAlias = RawBytes | ZipMember | Hdf5Chunks | ZarrChunks | CsvRows | PartChecksums
"""The location of an array in a file, as sent to the workers."""


StoredArray: TypeAlias = tuple[ArraySpec, StorageSpec]
"""An array in a file: its shape and type, and its location."""


def _no_finish(path: str, specs: Mapping[str, ArraySpec]) -> None:
    """Do nothing: most formats are complete after the workers have written."""


@final
@dataclass(frozen=True)
class Format:
    """A file format.

    single, named   True if a file can hold one array without a name, or arrays with names
    is_folder       True if an array is stored in a folder, not in a file
    typed           True if a file contains the element types of its arrays; text does not
    entries         (path, name) → the arrays in a file, by name ("": the one without), or only that
                    one, which is missing if the file has none; an error in place of an array that
                    cannot be read. Reads headers only, and the whole file of a text, which has none
    create          (path, what each array is) → a new file with room for them
    finish          (path, what each array is) → completes the file after the workers have written
    """

    suffixes: tuple[str, ...]
    single: bool
    named: bool
    entries: Callable[[str, str | None], Mapping[str, StoredArray | MagmathError]]
    create: Callable[[str, Mapping[str, ArraySpec]], Mapping[str, StorageSpec]]
    finish: Callable[[str, Mapping[str, ArraySpec]], None] = _no_finish
    typed: bool = True
    is_folder: bool = False


FORMATS = (
    Format((".npy",), True, False, npy.entries, npy.create),
    Format((".npz",), False, True, npz.entries, npz.create, npz.finish),
    Format((".safetensors",), False, True, safetensors.entries, safetensors.create),
    Format((".csv",), True, False, csv.entries, csv.create, csv.finish, typed=False),
    Format((".h5", ".hdf5"), False, True, hdf5.entries, hdf5.create),
    Format((".zarr",), True, True, zarr.entries, zarr.create, is_folder=True),
)


def format_of(operation: str, path: str) -> Format:
    """Return the format of a path's suffix. Raises DataError if the suffix is unknown."""
    for format in FORMATS:
        if path.lower().endswith(format.suffixes):
            return format
    known = ", ".join(suffix for format in FORMATS for suffix in format.suffixes)
    raise DataError(
        f"{operation}: {path} has no suffix that names a format; give it one of {known}"
    )
