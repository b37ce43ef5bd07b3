"""Text and raw files by NumPy's functions. The controller reads the file; with `mm.load` and
`mm.data.read_csv`, all workers read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from magmath.api.creation import DTypeLike, asarray
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.core.dtypes import as_dtype, stored_dtype
from magmath.errors import DTypeError, ShapeError

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
ROWS_PER_PART = 1 << 14
"""Number of rows that are fetched and written at a time."""


def loadtxt(fname: Any, dtype: DTypeLike = float, *args: Any, **options: Any) -> Any:
    """Return the table in a text file, with the options of `numpy.loadtxt`."""
    return _arrays(np.loadtxt(fname, as_dtype(dtype).dtype, *args, **options))


def genfromtxt(fname: Any, dtype: DTypeLike = float, *args: Any, **options: Any) -> Any:
    """Return the table in a text file in which values may be missing, with the options of
    `numpy.genfromtxt`."""
    read = np.genfromtxt(fname, as_dtype(dtype).dtype, *args, **options)
    if getattr(read, "dtype", None) is not None and read.dtype.names:
        raise DTypeError(
            "genfromtxt: with names= NumPy returns records, which are no arrays of numbers; leave "
            "names out and skip the header with skip_header=1, or use mm.data.read_csv"
        )
    return _arrays(read)


def _arrays(read: Any) -> Any:
    """Return NumPy's result as arrays; the columns of `unpack` as a list."""
    return [asarray(x) for x in read] if isinstance(read, (list, tuple)) else asarray(read)


def fromfile(
    file: Any,
    dtype: DTypeLike = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    layout: LayoutLike = None,
) -> Array:
    """Return the numbers in a file of raw bytes, in the byte order of `dtype`, such as ">f4", or in
    a text with separators."""
    element = as_dtype(dtype).dtype if sep else stored_dtype(dtype)
    return asarray(np.fromfile(file, element, count, sep, offset), layout=layout)


def savetxt(
    fname: Any,
    X: Any,
    fmt: Any = "%.18e",
    delimiter: str = " ",
    newline: str = "\n",
    header: str = "",
    footer: str = "",
    comments: str = "# ",
    encoding: str | None = None,
) -> None:
    """Write a vector or a matrix to a text file, with the options of `numpy.savetxt`; compressed if
    its name ends in .gz, .bz2 or .xz. The rows are fetched in parts."""
    x = as_array("savetxt", X)
    if x.ndim not in (1, 2):
        raise ShapeError(
            f"savetxt: writes a vector or a matrix, was given shape {x.shape}; reshape it with "
            f"mm.reshape, or save it as .npy with mm.save"
        )
    with _open_text(fname, encoding or "latin1") as file:
        for start in range(0, max(len(x), 1), ROWS_PER_PART):
            np.savetxt(
                file,
                x[start : start + ROWS_PER_PART].numpy(),
                fmt,
                delimiter,
                newline,
                header=header if start == 0 else "",
                footer=footer if start + ROWS_PER_PART >= len(x) else "",
                comments=comments,
                encoding=encoding,
            )


def _open_text(file: Any, encoding: str) -> AbstractContextManager[Any]:
    """Open the file of a name for writing text; other objects are files already."""
    if not isinstance(file, (str, os.PathLike)):
        return nullcontext(file)
    opener = _OPENERS.get(os.path.splitext(os.fspath(file))[1], open)
    opened: AbstractContextManager[Any] = opener(file, "wt", encoding=encoding)
    return opened
