"""Reader of pickles of plain values and NumPy arrays of bytes; executes nothing of the file.

A pickle can call any function that it can name. This reader resolves only the names with which
NumPy pickles an array, to classes and functions of this file that record the array's parts; every
other name is an error. So no function of NumPy or of another package gets unchecked data.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any, NoReturn, final

import numpy as np

from magmath.errors import DataError

MAX_BYTES = 1 << 30
"""The largest file that is read; a file of CIFAR has at most 155 MB."""


def read_pickle(path: Path) -> Any:
    """Return the value in a pickle of numbers, bytes, lists, dictionaries and arrays of uint8.

    Strings of Python 2 become bytes. Raises DataError for any other content, naming it, and for a
    damaged file.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise DataError(
            f"load: {path} has {size} bytes, more than the {MAX_BYTES} that are read"
            "; it is no batch of CIFAR: get the data set again from its source"
        )
    try:
        return _arrays(_ArrayUnpickler(path).load())
    except DataError:
        raise
    # The pickle machine raises many kinds of exceptions for damaged files.
    except Exception as error:
        raise DataError(
            f"load: {path} is not a pickle, or is damaged: {type(error).__name__}: {error}"
            "; get the data set again from its source"
        ) from None


@final
class _DType:
    """The arguments of `numpy.dtype` in the pickle."""

    def __init__(self, *arguments: Any) -> None:
        self.code = arguments[0] if arguments else None

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and fields: only single bytes are accepted."""


@final
class _PickledArray:
    """The recorded parts of an array in the pickle."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the array, after a check of its parts."""
        state = self.state
        if not (isinstance(state, tuple) and len(state) == 5):
            raise DataError(
                "load: an array in the pickle has no content"
                "; get the data set again from its source"
            )
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DType) or dtype.code not in ("u1", b"u1", "|u1", b"|u1"):
            raise DataError(
                "load: an array in the pickle must be of type uint8"
                "; get the data set again from its source"
            )
        if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
            raise DataError(
                "load: an array in the pickle has no valid shape"
                "; get the data set again from its source"
            )
        if not isinstance(data, bytes) or len(data) != math.prod(shape):
            raise DataError(
                f"load: an array in the pickle has shape {shape} and content of another length"
                "; get the data set again from its source"
            )
        return np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")


@final
class _Name:
    """A substitute for the class `numpy.ndarray`, an argument of the pickled call."""


def _encode(text: Any, encoding: Any) -> bytes:
    """Return the bytes that a pickle of Python 3 in an old protocol stores as text."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise DataError(
            "load: text in the pickle must be in the encoding latin1"
            "; get the data set again from its source"
        )
    return text.encode("latin1")


def _empty(*arguments: Any) -> bytes:
    """Return no bytes, which a pickle of Python 3 in an old protocol stores as a call without
    arguments; an argument could ask for any amount of memory."""
    if arguments:
        raise DataError(
            "load: bytes in the pickle must be stored as text or as bytes"
            "; get the data set again from its source"
        )
    return b""


def _from_buffer(*arguments: Any) -> _PickledArray:
    """Return the recorded parts of an array that protocol 5 stores as a buffer."""
    array = _PickledArray()
    if len(arguments) == 4:
        data, dtype, shape, order = arguments
        content = bytes(data) if isinstance(data, bytearray) else data
        array.state = (1, shape, dtype, order == "F", content)
    return array


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy", "ndarray"): _Name(),
    ("numpy", "dtype"): _DType,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _empty,
    ("builtins", "bytes"): _empty,
}


@final
class _ArrayUnpickler(pickle._Unpickler):
    """An unpickler that resolves only the names in `_NAMES`.

    It is Python's implementation in Python: that in C allocates memory by a number in the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.BytesIO(path.read_bytes()), encoding="bytes")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """Return the class of this file that stands for a name. Raises DataError for others."""
        if (module, name) not in _NAMES:
            raise DataError(
                f"load: the pickle {self._path} names {module}.{name}; only NumPy arrays are read, "
                f"since a pickle can execute any function; get the file from its official source"
            )
        return _NAMES[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        """Raise DataError: the format has no external objects."""
        raise DataError(
            f"load: the pickle {self._path} refers to objects outside of it"
            "; get the data set again from its source"
        )


def _arrays(value: Any) -> Any:
    """Return the value, or the dictionary's values, with arrays for recorded parts."""
    if isinstance(value, dict):
        return {k: v.array() if isinstance(v, _PickledArray) else v for k, v in value.items()}
    return value.array() if isinstance(value, _PickledArray) else value
