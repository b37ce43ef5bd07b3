"""Copies of raw memory: every byte, at any alignment, and not one beyond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.machine.copy import CACHE, COPY, INSIDE
from magmath.machine.kept import Code

CODE = Code(COPY, ["copy"], inside=INSIDE)


@pytest.mark.parametrize("beside", [0, CACHE // 2, CACHE])
@pytest.mark.parametrize("least", [0, 1 << 14, 1 << 20])
@settings(max_examples=25)
@given(more=st.integers(0, 600), begin=st.integers(0, 70), end=st.integers(0, 70))
def test_copy(beside: int, least: int, more: int, begin: int, end: int) -> None:
    nbytes = least + more
    source = np.random.default_rng(nbytes).integers(0, 256, begin + nbytes, dtype=np.uint8)
    target = np.full(begin + nbytes + end + 1, 77, dtype=np.uint8)
    copy = CODE.function("copy")
    copy(target.ctypes.data + end, source.ctypes.data + begin, nbytes, beside)
    np.testing.assert_array_equal(target[end : end + nbytes], source[begin:])
    assert (target[:end] == 77).all()
    assert (target[end + nbytes :] == 77).all()
