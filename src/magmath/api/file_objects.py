"""Arrays in file objects, such as io.BytesIO or a member of a zip archive, in NumPy's formats.

The controller reads and writes them: workers have no access to its objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from magmath.api.creation import DTypeLike, asarray
from magmath.api.loaded_arrays import LoadedArrays
from magmath.arrays.array import Array, Operand, as_array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.core.dtypes import bfloat16
from magmath.errors import DataError, DTypeError
from magmath.files.npz import member_info


def load_file_object(file: Any, name: str | None, dtype: DTypeLike, layout: LayoutLike) -> Any:
    """Return the array in a file object, or a dictionary of its arrays; arguments as for `load`."""
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            contents = {"": loaded}
        else:
            contents = {key: loaded[key] for key in loaded.files if name in (None, key)}
    except OSError:  # of the file object
        raise
    except Exception:  # of any class; the texts of some advise to read objects
        raise DataError(
            f"load: {file!r} has no array of numbers in NumPy's formats, .npy and .npz, or is "
            f"incomplete; give the path of a file for other formats"
        ) from None
    if name is not None and name not in contents:
        raise DataError(f"load: {file!r} has no array {name!r}; leave the name out to read all")
    arrays = LoadedArrays(
        {key: asarray(value, dtype=dtype, layout=layout) for key, value in contents.items()}
    )
    if name is not None:
        return arrays[name]
    return arrays[""] if arrays.keys() == {""} else arrays


def save_file_object(file: Any, arr: Operand | Mapping[str, Operand]) -> None:
    """Write an array as .npy, or several by name as .npz, to a file object."""
    if isinstance(arr, Mapping):
        contents = {name: _values(as_array("save", x)) for name, x in arr.items()}
        _write_archive(file, contents.items(), ZIP_STORED)
    else:
        np.save(file, _values(as_array("save", arr)), allow_pickle=False)


def write_compressed(file: Any, arrays: Mapping[str, Operand]) -> None:
    """Write arrays to a compressed .npz file, each one fetched when it is written."""
    fetched = ((name, _values(as_array("savez_compressed", x))) for name, x in arrays.items())
    _write_archive(file, fetched, ZIP_DEFLATED)


def _write_archive(
    file: Any, arrays: Iterable[tuple[str, np.ndarray[Any, Any]]], compression: int
) -> None:
    with ZipFile(file, "w") as archive:
        for name, values in arrays:
            info = member_info(name)
            info.compress_type = compression
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _values(x: Array) -> np.ndarray[Any, Any]:
    """Return the values of an array in a type that NumPy's formats have."""
    if x.dtype is bfloat16:
        raise DTypeError(
            "save: NumPy's formats have no bfloat16; convert the array with "
            "mm.astype(x, mm.float32), or give a path that ends in .safetensors"
        )
    return x.numpy()
