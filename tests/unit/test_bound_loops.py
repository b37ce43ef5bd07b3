"""A loop in Python is bound once: its arrays use the same memory in turn."""

from __future__ import annotations

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.executor import rebinding


def test_a_power_iteration_binds_nothing_after_its_first_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound: list[object] = []
    bind = rebinding.bind

    def counted(*args: object) -> object:
        bound.append(args)
        return bind(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(rebinding, "bind", counted)
    matrix = np.random.default_rng(0).random((200, 200))
    with current("planned"):
        a, x = mm.asarray(matrix), mm.ones(200, dtype=mm.float64)
        expected = np.ones(200)
        counts = []
        for _ in range(120):
            y = a @ x
            y = y / mm.sum(y)
            assert float(mm.sum(mm.abs(y - x))) >= 0
            x = y
            counts.append(len(bound))
            expected = matrix @ expected
            expected /= expected.sum()
        assert counts[-1] == counts[60]
        np.testing.assert_allclose(np.asarray(x), expected, rtol=1e-9)
