"""NumPy's .npz files: a zip archive with a .npy file for each array.

Members that were stored as they are can be mapped like a .npy file; compressed ones are streamed,
each worker keeping its own rows. Ours are stored, so that all workers can write at once.
"""

from __future__ import annotations

import io
import math
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from magmath.errors import DataError
from magmath.files import npy
from magmath.files.format_errors import as_data_error
from magmath.files.storage import (
    ArraySpec,
    Elements,
    Natural,
    RawBytes,
    Text,
    extend_file,
    numpy_dtype,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LOCAL_HEADER = 30  # bytes of a member's header before its name; PKWARE's APPNOTE, 4.3.7
_MEMORY = 1 << 22


class ZipMember(msgspec.Struct, frozen=True, tag="member", forbid_unknown_fields=True):
    """A compressed .npy file in an archive: elements from `offset` of what it unpacks to."""

    name: Text
    offset: Natural
    chunks: tuple[Natural, ...]
    fortran: bool = False
    swapped: bool = False

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """The elements, unpacked up to those that are asked for."""
        assert not writing, "members are written as they are"
        with zipfile.ZipFile(path) as archive, archive.open(self.name) as stream:
            yield _Stream(path, self, spec, stream)


class _Stream:
    """Elements out of a stream of bytes; forward is cheap."""

    def __init__(self, path: str, member: ZipMember, spec: ArraySpec, stream: Any) -> None:
        self._path = path
        self._member = member
        self._spec = spec
        self._stream = stream

    def __getitem__(self, selection: Any) -> Any:
        shape = self._spec.shape
        parts = tuple(s for s in selection if s is not Ellipsis)
        if self._member.fortran:  # the same bytes as the transpose with the last dimension fastest
            return self._rows(shape[::-1], parts[::-1]).T
        return self._rows(shape, parts)

    def __setitem__(self, selection: Any, values: Any) -> None:
        raise TypeError("a compressed member is not written in place")

    def _rows(self, shape: tuple[int, ...], parts: tuple[slice, ...]) -> Any:
        """The part, cut out of whole rows."""
        dtype = numpy_dtype(self._spec.dtype)
        dtype = dtype.newbyteorder() if self._member.swapped else dtype
        first, last = (parts[0].start, parts[0].stop) if parts else (0, 1)
        row = math.prod(shape[1:]) * dtype.itemsize
        self._stream.seek(self._member.offset + first * row)
        data = self._stream.read((last - first) * row)
        if len(data) != (last - first) * row:
            raise DataError(f"{self._path}: {self._member.name} is cut off")
        rows = np.frombuffer(data, dtype).reshape(last - first, *shape[1:])
        return rows[(slice(None), *parts[1:])] if parts else rows[0]


def entries(path: str) -> dict[str, tuple[ArraySpec, RawBytes | ZipMember]]:
    """The arrays of an archive by name. Raises DataError where it is damaged or none."""
    with as_data_error(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        return {
            info.filename.removesuffix(".npy"): _entry(path, archive, info)
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }


def _entry(
    path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> tuple[ArraySpec, RawBytes | ZipMember]:
    with archive.open(info) as member:
        spec, raw = npy.read_header(f"{path}[{info.filename}]", member)
    if info.file_size < raw.offset + spec.nbytes:
        raise DataError(f"load: {path}: {info.filename} is cut off")
    if info.compress_type == zipfile.ZIP_STORED:
        begin = _data_offset(path, info)
        return spec, RawBytes(begin + raw.offset, raw.fortran, raw.swapped)
    shape = spec.shape
    rows = (*shape[:-1], 1) if raw.fortran else (1, *shape[1:])
    chunks = rows if shape else ()
    return spec, ZipMember(info.filename, raw.offset, chunks, raw.fortran, raw.swapped)


def _data_offset(path: str, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: its header in the file has lengths of its own."""
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
        name, extra = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
        begin = info.header_offset + _LOCAL_HEADER + name + extra
        if begin + info.file_size > os.fstat(file.fileno()).st_size:
            raise zipfile.BadZipFile(f"{info.filename} reaches beyond the end")
    return begin


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, RawBytes]:
    """A file with every member's elements at its place, but no archive yet: see `finish`."""
    found, position = {}, 0
    with open(path, "wb") as file:
        for name, spec in specs.items():
            header = io.BytesIO()
            npy.write_header(header, ".npz", spec)
            begin = position + _member_header(name)
            file.seek(begin)
            file.write(header.getvalue())
            found[name] = RawBytes(file.tell())
            position = file.tell() + spec.nbytes
    extend_file(path, position)
    return found


def finish(path: str, specs: Mapping[str, ArraySpec]) -> None:
    """Make it an archive: each member goes by the archiver, which sums it up where it lies."""
    file = _Overlay(path, "r+")
    with open(path, "rb") as source, file, zipfile.ZipFile(file, "w") as archive:
        for name, spec in specs.items():
            header = io.BytesIO()
            npy.write_header(header, ".npz", spec)
            nbytes = len(header.getvalue()) + spec.nbytes
            with archive.open(_member_info(name), "w", force_zip64=True) as member:
                source.seek(file.tell())
                file.passing = True
                shutil.copyfileobj(_First(source, nbytes), member, _MEMORY)
                file.passing = False


class _Overlay(io.FileIO):
    """A file in which what is written while `passing` is there already."""

    passing = False

    def write(self, data: Buffer, /) -> int:
        if not self.passing:
            return super().write(data)
        nbytes = memoryview(data).nbytes
        self.seek(nbytes, os.SEEK_CUR)
        return nbytes


class _First(io.RawIOBase):
    """The next bytes of a file, and no more."""

    def __init__(self, file: Any, nbytes: int) -> None:
        self._file = file
        self._left = nbytes

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


def _member_header(name: str) -> int:
    """The bytes of a member's header before its contents."""
    buffer = io.BytesIO()
    archive = zipfile.ZipFile(buffer, "w")
    with archive, archive.open(_member_info(name), "w", force_zip64=True):
        return buffer.tell()


def _member_info(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy")  # of the earliest date that there is: the same each time
