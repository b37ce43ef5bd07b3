"""NumPy's .npz files: a zip archive with a .npy file for each array.

Uncompressed members are mapped like a .npy file, after their checksum has been verified
(`checksums.py`); compressed ones are streamed, and each worker keeps its own rows. Written
archives are uncompressed, so that all workers can write concurrently.
"""

from __future__ import annotations

import io
import math
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, final

import msgspec
import numpy as np

from magmath.errors import DataError, MagmathError
from magmath.files import npy
from magmath.files.array_specs import (
    ArraySpec,
    Checksum,
    Elements,
    Natural,
    RawBytes,
    Text,
    extend_file,
    name_error,
    numpy_dtype,
)
from magmath.files.format_errors import as_data_error, entry_or_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LOCAL_HEADER = 30  # bytes of a member's header before its name; PKWARE's APPNOTE, 4.3.7
_MEMORY = 1 << 22


@final
class ZipMember(msgspec.Struct, frozen=True, tag="member", forbid_unknown_fields=True):
    """A compressed .npy file in an archive; the elements begin at `offset` of the uncompressed
    data."""

    name: Text
    offset: Natural
    chunks: tuple[Natural, ...]
    fortran: bool = False
    swapped: bool = False

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the member; elements are decompressed up to the requested ones."""
        assert not writing, "members are written as they are"
        with zipfile.ZipFile(path) as archive, archive.open(self.name) as stream:
            yield _Stream(path, self, spec, stream)


@final
class _Stream:
    """Elements of a byte stream; forward seeks are cheap."""

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
        """Return the part, selected from complete rows."""
        dtype = numpy_dtype(self._spec.dtype)
        dtype = dtype.newbyteorder() if self._member.swapped else dtype
        first, last = (parts[0].start, parts[0].stop) if parts else (0, 1)
        row = math.prod(shape[1:]) * dtype.itemsize
        self._stream.seek(self._member.offset + first * row)
        data = self._stream.read((last - first) * row)
        if len(data) != (last - first) * row:
            raise DataError(f"{self._path}: {self._member.name} is truncated; write the file again")
        rows = np.frombuffer(data, dtype).reshape(last - first, *shape[1:])
        return rows[(slice(None), *parts[1:])] if parts else rows[0]


def entries(
    path: str, name: str | None
) -> dict[str, tuple[ArraySpec, RawBytes | ZipMember] | MagmathError]:
    """Return the arrays of an archive by name, or that of a name, or the error of one that cannot
    be read. Raises DataError if the file is damaged or not an archive."""
    with as_data_error(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        return {
            info.filename.removesuffix(".npy"): entry_or_error(
                f"{path}[{info.filename}]", partial(_entry, path, archive, info)
            )
            for info in archive.infolist()
            if info.filename.endswith(".npy") and name in (None, info.filename[: -len(".npy")])
        }


def _entry(
    path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> tuple[ArraySpec, RawBytes | ZipMember]:
    with archive.open(info) as member:
        spec, raw = npy.read_header(f"{path}[{info.filename}]", member)
    if info.file_size < raw.offset + spec.nbytes:
        raise DataError(f"load: {path}: {info.filename} is truncated; write the file again")
    if info.compress_type == zipfile.ZIP_STORED:
        begin = _data_offset(path, info)
        checksum = Checksum(begin, info.file_size, info.CRC)
        return spec, RawBytes(begin + raw.offset, raw.fortran, raw.swapped, checksum)
    shape = spec.shape
    rows = (*shape[:-1], 1) if raw.fortran else (1, *shape[1:])
    chunks = rows if shape else ()
    return spec, ZipMember(info.filename, raw.offset, chunks, raw.fortran, raw.swapped)


def _data_offset(path: str, info: zipfile.ZipInfo) -> int:
    """Return the offset of a member's data; the local header has its own lengths."""
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
        name, extra = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
        begin = info.header_offset + _LOCAL_HEADER + name + extra
        if begin + info.file_size > os.fstat(file.fileno()).st_size:
            raise zipfile.BadZipFile(f"{info.filename} reaches beyond the end")
    return begin


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, RawBytes]:
    """Create a file with space for every member at its final offset; `finish` makes it an
    archive."""
    storages, position = {}, 0
    with open(path, "wb") as file:
        for name, spec in specs.items():
            header = io.BytesIO()
            npy.write_header(header, ".npz", spec)
            begin = position + _member_header(name)
            file.seek(begin)
            file.write(header.getvalue())
            storages[name] = RawBytes(file.tell())
            position = file.tell() + spec.nbytes
    extend_file(path, position)
    return storages


def finish(path: str, specs: Mapping[str, ArraySpec]) -> None:
    """Complete the archive: compute the checksum of each member in place, and write the zip
    headers."""
    file = _Overlay(path, "r+")
    with open(path, "rb") as source, file, zipfile.ZipFile(file, "w") as archive:
        for name, spec in specs.items():
            header = io.BytesIO()
            npy.write_header(header, ".npz", spec)
            nbytes = len(header.getvalue()) + spec.nbytes
            with archive.open(member_info(name), "w", force_zip64=True) as member:
                source.seek(file.tell())
                file.passing = True
                shutil.copyfileobj(_First(source, nbytes), member, _MEMORY)
                file.passing = False


@final
class _Overlay(io.FileIO):
    """A file whose writes only advance the position while `passing`, since the data is there
    already."""

    passing = False

    def write(self, data: Buffer, /) -> int:
        if not self.passing:
            return super().write(data)
        nbytes = memoryview(data).nbytes
        self.seek(nbytes, os.SEEK_CUR)
        return nbytes


@final
class _First(io.RawIOBase):
    """A reader of the next `nbytes` of a file."""

    def __init__(self, file: Any, nbytes: int) -> None:
        self._file = file
        self._left = nbytes

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


def _member_header(name: str) -> int:
    """Return the size of a member's header."""
    buffer = io.BytesIO()
    archive = zipfile.ZipFile(buffer, "w")
    with archive, archive.open(member_info(name), "w", force_zip64=True):
        return buffer.tell()


def member_info(name: str) -> zipfile.ZipInfo:
    """Return the header of a member, with the earliest date, so that files are reproducible. Raises
    DataError for a name that archives cannot have."""
    info = zipfile.ZipInfo(f"{name}.npy")
    if info.filename != f"{name}.npy":  # ends at a NUL
        raise name_error(".npz files", name, "names end at a NUL")
    return info
