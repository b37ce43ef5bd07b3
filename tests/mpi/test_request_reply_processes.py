"""Indexed access that worker processes compute collectively."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.layout import Layout

N = 5000
by_rows = Layout.split(0)


@pytest.mark.parametrize("workers", [2, 3])
def test_processes_ask_one_another(workers: int) -> None:
    random = np.random.default_rng(0)
    values, places = random.normal(size=N), random.integers(-N, N, N)
    with current("processes", workers):
        engine = session.engine()
        engine.environment = replace(engine.environment, max_moved_bytes=0)
        x, at = (mm.asarray(v, layout=by_rows) for v in (values, places))
        picked = x[at]
        slope = mm.grad(mm.sum(picked * picked), [x])[0]
        actual = mm.searchsorted(mm.sort(x), mm.asarray(values[::2].copy(), layout=by_rows))
        for y in (picked, slope, actual):
            assert " collectively in " in str(y.explain())
        np.testing.assert_array_equal(np.asarray(picked), values[places])
        expected = np.zeros(N)
        np.add.at(expected, places, 2 * values[places])
        np.testing.assert_allclose(np.asarray(slope), expected, rtol=1e-12)
        np.testing.assert_array_equal(
            np.asarray(actual), np.searchsorted(np.sort(values), values[::2])
        )
        written, expected = mm.asarray(values, layout=by_rows), values.copy()
        written[at] = mm.asarray(np.arange(float(N)), layout=by_rows)
        expected[places] = np.arange(float(N))
        np.testing.assert_array_equal(np.asarray(written), expected)
        wrong = mm.asarray(np.full(N, N), layout=by_rows)
        with pytest.raises(IndexError, match="out of range"):
            np.asarray(x[wrong])
        np.testing.assert_array_equal(np.asarray(x[at]), values[places])
