"""Reader of IDX files, the format of MNIST and its successors (http://yann.lecun.com/exdb/mnist).

An IDX file is two zero bytes, a type code, the number of dimensions, each dimension as a big-endian
32-bit integer, then the values in C order, big-endian. Files are untrusted, so the header is
checked against the actual size of the data.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from magmath.errors import DataError, MissingDataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_DIMENSIONS = 8
_GZIP_MAGIC = b"\x1f\x8b"
# The maximal compression ratio of deflate: a header that implies a higher ratio is wrong.
_DEFLATE_MAX_RATIO = 1032


def read_idx(path: str | Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the array in an IDX file, plain or gzip-compressed (detected by content).

    The result is a new C-contiguous array in native byte order. Raises `MissingDataError` if the
    file is missing, and `DataError` if it is not an IDX file, truncated, or too long.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(
            f"read_idx: there is no file {path}; give the path of a file that exists"
        )
    with _open_stream(path) as (stream, most_bytes):
        dtype, shape, header_bytes = _read_header(stream, path)
        expected = math.prod(shape) * dtype.itemsize
        if expected > most_bytes - header_bytes:
            raise DataError(
                f"read_idx: {path} is truncated or corrupt: its header promises an array of shape "
                f"{shape}, {expected} bytes, more than the file can hold"
                "; get it again"
            )
        data = _read_exactly(stream, expected, path)
        if stream.read(1):
            raise DataError(
                f"read_idx: {path} is longer than its header says: shape {shape} takes "
                f"{expected} bytes, more follow"
                "; get it again"
            )
    values = np.frombuffer(data, dtype).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


@contextmanager
def _open_stream(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open the (decompressed) stream with its maximal length; a damaged gzip raises DataError."""
    size = path.stat().st_size
    with path.open("rb") as raw:
        compressed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if not compressed:
            yield raw, size
            return
        try:
            with gzip.open(raw) as stream:
                yield cast("BinaryIO", stream), size * _DEFLATE_MAX_RATIO
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"read_idx: {path} is a damaged gzip file: {error}; get it again"
            ) from error


def _read_header(stream: BinaryIO, path: Path) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    magic = _read_exactly(stream, 4, path)
    code, ndim = magic[2], magic[3]
    if magic[:2] != b"\0\0" or code not in _TYPES or not 1 <= ndim <= _MAX_DIMENSIONS:
        raise DataError(
            f"read_idx: {path} is not an IDX file: it starts with {magic.hex(' ')}, not with "
            f"00 00, a type ({', '.join(f'{known:02x}' for known in _TYPES)}) and 1 to "
            f"{_MAX_DIMENSIONS} dimensions"
            "; give the path of an IDX file, compressed by gzip or not"
        )
    shape = struct.unpack(f">{ndim}I", _read_exactly(stream, 4 * ndim, path))
    return np.dtype(_TYPES[code]), shape, 4 + 4 * ndim


def _read_exactly(stream: BinaryIO, count: int, path: Path) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise DataError(
            f"read_idx: {path} is truncated: {count} bytes are missing or incomplete, "
            f"only {len(data)} of them are there"
            "; get it again"
        )
    return data
