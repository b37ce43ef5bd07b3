"""The memory that pending expressions reference: at most a few times that of their values."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import magmath as mm
from engines import current


@pytest.mark.parametrize("kind", [("inline", 1), ("shared", 2)], ids=lambda kind: kind[0])
def test_a_sum_that_no_step_reads_keeps_none_of_its_terms(kind: tuple[str, int]) -> None:
    """As the solution in a loop of conjugate gradients, of which each step reads only the
    residual."""
    steps, n = 40, 1 << 18
    with current(*kind) as pool:
        x, p = mm.zeros(n, dtype=mm.float64), mm.ones(n, dtype=mm.float64)
        expected = np.zeros(n)
        mm.evaluate(x, p, wait=True)
        before, most = pool.array_bytes, 0
        for step in range(steps):
            x += 0.5 * p
            expected += 0.5 * (1 + step / 2)
            p = p + 0.5
            mm.evaluate(p)
            most = max(most, pool.array_bytes - before)
        assert most <= 8 * n * x.dtype.itemsize
        np.testing.assert_array_equal(np.asarray(x), expected)


def test_terms_that_the_user_holds_wait_for_one_program() -> None:
    """A filter by shifted slices is one expression, which can become one loop."""
    with current("inline"):
        image = mm.asarray(np.arange(2.0**16).reshape(256, 256))
        mm.evaluate(image)
        blurred = mm.zeros_like(image)[2:, 2:]
        for i in range(3):
            for j in range(3):
                blurred += image[i : i + 254, j : j + 254]
        assert not blurred.is_known()
        x = np.asarray(image)
        expected = sum(x[i : i + 254, j : j + 254] for i in range(3) for j in range(3))
        np.testing.assert_array_equal(np.asarray(blurred), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_loops_of_updates_leave_few_objects_to_the_garbage_collector(compiled: bool) -> None:
    """Records of former values are not traversed by collections, each of which would take as long
    as thousands of updates."""
    with current("inline"):
        x, y = mm.zeros(64), mm.ones(64)
        update = mm.compile(lambda x, y: x + 2 * y)

        def steps(count: int) -> int:
            nonlocal x
            for i in range(count):
                if compiled:
                    x = update(x, y)
                else:
                    x += i * y
            gc.collect()
            return len(gc.get_objects())

        before = steps(300)
        assert steps(3000) - before < 3000
        assert np.isfinite(float(x[0]))
