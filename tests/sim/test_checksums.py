"""Checksums of uncompressed .npz files: the workers compute them in pieces, and damage is an
error."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import DataError
from magmath.files import checksums
from magmath.files.checksums import PartChecksums, combined_crc

POOLS = [("inline", 1), ("shared", 2), ("messages", 3)]


@given(data=st.binary(max_size=300), piece=st.integers(1, 100))
def test_checksums_of_pieces_give_that_of_the_whole(data: bytes, piece: int) -> None:
    with mock.patch.object(checksums, "PIECE_BYTES", piece):
        crcs = [zlib.crc32(data[i : i + piece]) for i in range(0, len(data), piece)]
        assert PartChecksums(0, len(data)).spec.shape == (len(crcs),)
        assert combined_crc(crcs, len(data)) == zlib.crc32(data)


@settings(max_examples=40)
@given(
    pool=st.sampled_from(POOLS),
    piece=st.sampled_from([512, 5000, 1 << 22]),
    count=st.integers(1, 3000),
    at=st.floats(0, 1, exclude_max=True),
    flipped=st.integers(1, 255),
    fortran=st.booleans(),
)
def test_a_changed_byte_of_an_uncompressed_member_is_an_error(
    tmp_path_factory: pytest.TempPathFactory,
    pool: tuple[str, int],
    piece: int,
    count: int,
    at: float,
    flipped: int,
    fortran: bool,
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "damaged.npz"
    x = np.arange(2.0 * count).reshape(2, count)
    np.savez(path, x=np.asfortranarray(x) if fortran else x, y=np.arange(3))
    with current(*pool), mock.patch.object(checksums, "PIECE_BYTES", piece):
        np.testing.assert_array_equal(mm.load(path, "x", layout=mm.Layout.split(1)).numpy(), x)
        content = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            end = archive.getinfo("y.npy").header_offset
        content[end - 1 - int(at * x.nbytes)] ^= flipped
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"damaged\.npz.* is damaged"):
            mm.load(path, "x")
        assert mm.load(path, "y").tolist() == [0, 1, 2]
