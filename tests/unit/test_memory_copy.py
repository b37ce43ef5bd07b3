"""Copies of raw memory: every byte, at any alignment, and no byte outside."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.memory_copy import (
    CACHE_BYTES,
    COPY_IR_MODULE,
    COPY_SOURCE,
    last_level_cache_bytes,
)

CODE = AotModule(COPY_SOURCE, ["copy"], ir_modules=[COPY_IR_MODULE])


@pytest.mark.parametrize("others", [0, CACHE_BYTES // 2, CACHE_BYTES])
@pytest.mark.parametrize("least", [0, 1 << 14, 1 << 20])
@settings(max_examples=25)
@given(more=st.integers(0, 600), begin=st.integers(0, 70), end=st.integers(0, 70))
def test_copy(others: int, least: int, more: int, begin: int, end: int) -> None:
    nbytes = least + more
    source = np.random.default_rng(nbytes).integers(0, 256, begin + nbytes, dtype=np.uint8)
    target = np.full(begin + nbytes + end + 1, 77, dtype=np.uint8)
    copy = CODE.function("copy")
    copy(target.ctypes.data + end, source.ctypes.data + begin, nbytes, others)
    np.testing.assert_array_equal(target[end : end + nbytes], source[begin:])
    assert (target[:end] == 77).all()
    assert (target[end + nbytes :] == 77).all()


@given(shares=st.lists(st.integers(1, 64), min_size=1, max_size=4))
def test_sizes_of_caches_in_any_unit(shares: list[int]) -> None:
    """Equal caches have the same size in every unit that Linux writes."""
    with TemporaryDirectory() as folder:
        for i in range(len(shares)):
            (Path(folder) / f"index{i}").mkdir()
        found = set()
        for unit, factor in (("", 1 << 20), ("K", 1 << 10), ("M", 1)):
            for i, size in enumerate(shares):
                (Path(folder) / f"index{i}" / "size").write_text(f"{size * factor}{unit}\n")
            found.add(last_level_cache_bytes(Path(folder)))
    assert found == {min(max(4, *shares), 32) << 20}
