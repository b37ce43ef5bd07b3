"""Numbers as raw bytes: `frombuffer` and `fromfile` read them in the byte order of their dtype, and
`tobytes` writes them in an order of elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from magmath.core.dtypes import DTYPES

NUMPY_TYPES = sorted(DTYPES.keys() - {"bfloat16"})


@given(
    name=st.sampled_from(NUMPY_TYPES),
    byte_order=st.sampled_from("<>="),
    by_name=st.booleans(),
    count=st.integers(-1, 4),
    skipped=st.integers(0, 2),
)
def test_raw_bytes_are_read_in_the_byte_order_of_their_type(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    byte_order: str,
    by_name: bool,
    count: int,
    skipped: int,
) -> None:
    stored = np.dtype(name).newbyteorder(byte_order)
    data = np.arange(1, 7).astype(stored).tobytes()
    path: Path = tmp_path_factory.getbasetemp() / "numbers.bin"
    path.write_bytes(data)
    dtype = stored.str if by_name else stored
    offset = skipped * stored.itemsize
    expected = np.frombuffer(data, stored, count, offset)
    for read in (
        mm.frombuffer(data, dtype=dtype, count=count, offset=offset),
        mm.fromfile(path, dtype=dtype, count=count, offset=offset),
    ):
        assert read.dtype == DTYPES[name]
        np.testing.assert_array_equal(read.numpy(), expected)


@pytest.mark.parametrize("dtype", [">f4", "<f4", np.dtype(">i2")])
def test_numbers_in_text_have_no_byte_order(tmp_path: Path, dtype: str) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3")
    for read in (
        mm.fromfile(tmp_path / "numbers.txt", dtype=dtype, sep=" "),
        mm.fromstring("1 2 3", dtype=dtype),
        mm.loadtxt(tmp_path / "numbers.txt", dtype=dtype),
        mm.fromiter([1, 2, 3], dtype=dtype),
    ):
        assert read.tolist() == [1, 2, 3]


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_bytes_are_in_order_of_rows_unless_columns_are_asked_for(order: str) -> None:
    """NumPy's "A" depends on the order in memory, which arrays do not have."""
    values = np.arange(6).reshape(2, 3)
    x = mm.asarray(values)
    written = "F" if order == "F" else "C"
    assert x.tobytes(order) == values.tobytes(written)
    assert x.T.tobytes(order) == values.T.tobytes(written)
