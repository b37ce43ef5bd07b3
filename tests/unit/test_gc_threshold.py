"""A pool makes collections of cyclic garbage less frequent, unless the program has set them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import magmath as mm
from magmath.core.gc_threshold import DEFAULTS, THRESHOLD


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("default", DEFAULTS)
def test_the_default_is_raised(default: int) -> None:
    gc.set_threshold(default, 10, 10)
    with mm.init(workers=0):
        assert gc.get_threshold()[0] == THRESHOLD


@pytest.mark.parametrize("own", [0, 500, 100_000])
def test_the_programs_own_threshold_stays(own: int) -> None:
    gc.set_threshold(own, 5, 5)
    with mm.init(workers=0):
        assert gc.get_threshold()[0] == own


def test_loops_over_long_expressions_cause_no_full_collection() -> None:
    gc.set_threshold(DEFAULTS[0], 10, 10)
    with mm.init(workers=0):
        x = mm.ones(20_000)
        gc.collect()
        before = gc.get_stats()[2]["collections"]
        for _ in range(100):
            y = x
            for i in range(400):
                y = mm.sqrt(y * 0.5 + i)
            y.numpy()
        assert gc.get_stats()[2]["collections"] - before <= 1
