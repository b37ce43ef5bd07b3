"""CRC-32 of a part of a file, which the workers compute in pieces.

The checksums of the pieces are an array of uint32 that is read like any other, so each worker reads
a share of the bytes; the controller combines them. Source of the combination: Adler, zlib,
crc32_combine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from magmath.core.dtypes import uint32
from magmath.errors import DataError
from magmath.files.array_specs import ArraySpec, Elements, Natural

PIECE_BYTES: Final = 1 << 22
"""Bytes of all pieces but the last."""

_POLYNOMIAL: Final = 0xEDB88320
"""The polynomial of CRC-32 without x³²; the highest bit is the coefficient of 1."""
_ONE: Final = 1 << 31
_X: Final = 1 << 30


@final
class PartChecksums(msgspec.Struct, frozen=True, tag="checksums", forbid_unknown_fields=True):
    """The CRC-32 of each piece of the `nbytes` bytes from `offset`."""

    offset: Natural
    nbytes: Natural

    @property
    def chunks(self) -> tuple[int]:
        """One worker computes each piece's checksum."""
        return (1,)

    @property
    def spec(self) -> ArraySpec:
        """The shape and type of the checksums."""
        return ArraySpec((-(-self.nbytes // PIECE_BYTES),), uint32)

    def compute(self, path: str, first: int, last: int) -> NDArray[np.uint32]:
        """Return the checksums of the pieces from `first` to before `last`."""
        crcs = []
        with open(path, "rb") as file:
            file.seek(self.offset + first * PIECE_BYTES)
            for piece in range(first, last):
                expected = min(PIECE_BYTES, self.nbytes - piece * PIECE_BYTES)
                data = file.read(expected)
                if len(data) != expected:
                    raise DataError(f"load: {path} is truncated; write the file again")
                crcs.append(zlib.crc32(data))
        return np.array(crcs, np.uint32)

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the checksums; they are computed on access."""
        assert not writing, "checksums follow from the bytes"
        yield _Pieces(path, self)


@final
class _Pieces:
    """The checksums of a file's pieces, computed when they are read."""

    def __init__(self, path: str, parts: PartChecksums) -> None:
        self._path = path
        self._parts = parts

    def __getitem__(self, selection: Any) -> NDArray[np.uint32]:
        return self._parts.compute(self._path, selection[0].start, selection[0].stop)

    def __setitem__(self, selection: Any, values: Any) -> None:
        raise TypeError("checksums are not written")


def combined_crc(crcs: Iterable[int], nbytes: int) -> int:
    """Return the CRC-32 of `nbytes` bytes from those of their pieces of PIECE_BYTES."""
    whole, left = 0, nbytes
    shift = _power_of_x(8 * PIECE_BYTES)
    for crc in crcs:
        shift = shift if left >= PIECE_BYTES else _power_of_x(8 * left)
        whole = _product(whole, shift) ^ int(crc)
        left -= PIECE_BYTES
    return whole


def _power_of_x(exponent: int) -> int:
    """Return the power of x modulo the polynomial, by which `exponent` bits of 0 multiply a CRC."""
    power, square = _ONE, _X
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
