"""Locations of arrays in files: plain records that are sent to the workers.

Opening a record gives an object that is indexed like a NumPy array, in the file's type and order.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import IO, Annotated, Any, Final, Protocol, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from magmath.core.dtypes import DType, as_dtype
from magmath.errors import DataError, DTypeError

MAX_TEXT: Final = 1 << 16
Natural = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]

_MAX_BYTES: Final = (1 << 63) - 1
"""Bytes that an array may have, where extents of 0 count as 1."""


class Elements(Protocol):
    """An array in a file, read and written by slices like a NumPy array."""

    def __getitem__(self, selection: Any, /) -> Any: ...

    def __setitem__(self, selection: Any, values: Any, /) -> None: ...


@final
@dataclass(frozen=True)
class ArraySpec:
    """The shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@final
class Checksum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The CRC-32 that a file states of its `nbytes` bytes from `offset`."""

    offset: Natural
    nbytes: Natural
    crc: Natural


@final
class RawBytes(msgspec.Struct, frozen=True, tag="raw", forbid_unknown_fields=True):
    """Contiguous elements from byte `offset`, with the last dimension fastest, or the first
    (`fortran`), in native byte order or swapped (`swapped`). `checksum` is that of the bytes, which
    the controller verifies; None if the file has none."""

    offset: Natural
    fortran: bool = False
    swapped: bool = False
    checksum: Checksum | None = None

    @property
    def chunks(self) -> None:
        """None, since elements are accessible individually. For other records, the shape of the
        file's chunks, each of which should be read or written by one worker."""

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the elements. Reading maps them, so only accessed pages are read. Writing uses
        system calls, so that a full disk raises an error."""
        if writing:
            with open(path, "r+b", buffering=0) as file:
                yield _ElementWriter(file, self.offset, spec)
            return
        stored = numpy_dtype(spec.dtype)
        if self.swapped:
            stored = stored.newbyteorder()
        with open(path, "rb") as file:
            have, need = os.fstat(file.fileno()).st_size, self.offset + spec.nbytes
            if have < need:  # access to a mapping beyond the end would kill the process
                raise DataError(
                    f"{path} has {have} bytes but its header announces {need}; write the file again"
                )
            if not spec.nbytes:
                yield np.empty(spec.shape, stored)
                return
            memory = mmap.mmap(file.fileno(), need, access=mmap.ACCESS_READ)
            yield np.ndarray(
                spec.shape, stored, memory, self.offset, order="F" if self.fortran else "C"
            )


@final
class _ElementWriter:
    """Writes elements in C order, box by box, each in as few contiguous runs as possible."""

    def __init__(self, file: IO[bytes], offset: int, spec: ArraySpec) -> None:
        self._file = file
        self._offset = offset
        self._shape = spec.shape
        self._itemsize = spec.dtype.itemsize

    def __getitem__(self, selection: Any) -> Any:
        raise TypeError("the elements are open for writing")

    def __setitem__(self, selection: Any, values: NDArray[Any]) -> None:
        if not values.size:
            return
        box = [side for side in selection if side is not Ellipsis]
        while box and box[-1] == slice(0, self._shape[len(box) - 1]):
            del box[-1]  # complete dimensions are contiguous
        strides = [math.prod(self._shape[dim + 1 :]) * self._itemsize for dim in range(len(box))]
        begin = self._offset + (box[-1].start * strides[-1] if box else 0)
        outer = [range(side.start, side.stop) for side in box[:-1]]
        runs = np.ascontiguousarray(values).reshape(math.prod(map(len, outer)), -1)
        for run, index in zip(runs, product(*outer), strict=True):
            steps = [i * stride for i, stride in zip(index, strides, strict=False)]
            self._write(begin + sum(steps), run.view(np.uint8).data)

    def _write(self, position: int, data: memoryview) -> None:
        self._file.seek(position)
        while data:
            data = data[self._file.write(data) :]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type of the elements; uint16 for bfloat16, which NumPy lacks."""
    return np.dtype("uint16" if dtype.name == "bfloat16" else dtype.name)


def array_spec(path: str, shape: Sequence[int], dtype: DType) -> ArraySpec:
    """Return the spec of an array in a file. Raises DataError for a shape that no array has."""
    nbytes = math.prod([max(n, 1) for n in shape]) * dtype.itemsize
    if any(isinstance(n, bool) or n < 0 for n in shape) or nbytes > _MAX_BYTES:
        raise DataError(
            f"load: {path} has a header with shape {tuple(shape)}, which no array has; write it "
            f"again with mm.save"
        )
    return ArraySpec(tuple(shape), dtype)


def spec_of_numpy(path: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArraySpec:
    """Return the spec of an array of a NumPy type. Raises DTypeError for unsupported types, and
    DataError as `array_spec`."""
    if dtype.kind not in "biufc" or dtype.name in ("float128", "complex256"):
        raise DTypeError(
            f"load: {path} holds elements of type {dtype}, which has no counterpart here; numbers "
            f"and truth values can be loaded"
        )
    return array_spec(path, shape, as_dtype(dtype.name))


def is_byte_swapped(dtype: np.dtype[Any]) -> bool:
    """Return True for non-native byte order."""
    return not dtype.isnative


def name_error(kind: str, name: str, reason: object) -> DataError:
    """Return the error for a name that files of this kind cannot hold, or hold as another one."""
    return DataError(
        f"save: {kind} cannot hold an array named {name!r}: {reason}; choose another name"
    )


def require_numpy_dtype(format: str, spec: ArraySpec) -> np.dtype[Any]:
    """Return the NumPy type of an array to be written. Raises DTypeError for bfloat16."""
    if spec.dtype.name == "bfloat16":
        raise DTypeError(
            f"save: {format} files have no bfloat16; save as .safetensors, or convert the array "
            f"with mm.astype(x, mm.float32)"
        )
    return numpy_dtype(spec.dtype)


def extend_file(path: str, nbytes: int) -> None:
    """Set the length of a file."""
    os.truncate(path, nbytes)
