"""NumPy's .npy files: a text header, then the elements as in memory.

Format: numpy.lib.format, versions 1.0 and 2.0. Arrays of Python objects are refused, since they
would have to be unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from magmath.errors import DataError, DTypeError
from magmath.files.array_specs import (
    ArraySpec,
    RawBytes,
    extend_file,
    is_byte_swapped,
    require_numpy_dtype,
    spec_of_numpy,
)
from magmath.files.format_errors import as_data_error


def entries(path: str, name: str | None = None) -> dict[str, tuple[ArraySpec, RawBytes]]:
    """Return the only array of a file. Raises DataError if it is truncated or not a .npy file."""
    with open(path, "rb") as file:
        spec, raw = read_header(path, file)
        have = os.fstat(file.fileno()).st_size
    if have < raw.offset + spec.nbytes:
        raise DataError(
            f"load: {path} is truncated: shape {spec.shape} of {spec.dtype} needs "
            f"{raw.offset + spec.nbytes} bytes, the file has {have}"
            "; write it again"
        )
    return {"": (spec, raw)}


def read_header(path: str, file: IO[bytes]) -> tuple[ArraySpec, RawBytes]:
    """Read a header; the file position is then the first element."""
    with as_data_error(path, "a .npy file"):
        version = npy.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = npy.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = npy.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version} of the format is for records")
    if dtype.hasobject:
        raise DTypeError(
            f"load: {path} holds Python objects, which could run code when they are read; save "
            f"numbers instead"
        )
    spec = spec_of_numpy(path, shape, dtype)
    return spec, RawBytes(file.tell(), bool(fortran) and len(shape) > 1, is_byte_swapped(dtype))


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, RawBytes]:
    """Create a file with a header and space for the elements."""
    spec = specs[""]
    with open(path, "wb") as file:
        write_header(file, ".npy", spec)
        offset = file.tell()
    extend_file(path, offset + spec.nbytes)
    return {"": RawBytes(offset)}


def write_header(file: IO[bytes], format: str, spec: ArraySpec) -> None:
    """Write a header of version 1.0, which all readers support."""
    dtype = require_numpy_dtype(format, spec)
    header: dict[str, Any] = {
        "descr": npy.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": spec.shape,
    }  # fmt: skip
    npy.write_array_header_1_0(file, header)
