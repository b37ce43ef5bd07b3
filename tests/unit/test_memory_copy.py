"""Copies of raw memory: every byte, at any alignment, and no byte outside."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.memory_copy import CACHE_BYTES, COPY_IR_MODULE, COPY_SOURCE
from magmath.core.cpu import cache_sizes

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
    for unit, factor in (("", 1 << 20), ("K", 1 << 10), ("M", 1)):
        with TemporaryDirectory() as folder:
            for level, size in enumerate(shares, 1):
                for kind, text in (("Data", f"{size * factor}{unit}"), ("Instruction", "1K")):
                    index = Path(folder) / f"index{level}{kind}"
                    index.mkdir()
                    (index / "level").write_text(f"{level}\n")
                    (index / "size").write_text(f"{text}\n")
                    (index / "type").write_text(f"{kind}\n")
            (Path(folder) / "index9").mkdir()  # of which the system tells nothing
            expected = {level: size << 20 for level, size in enumerate(shares, 1)}
            assert cache_sizes(Path(folder)) == expected
