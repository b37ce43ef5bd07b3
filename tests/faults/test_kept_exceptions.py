"""A kept exception, such as a notebook's last one, keeps no intermediate arrays."""

from __future__ import annotations

import numpy as np
import pytest

import magmath as mm
from engines import current


@pytest.mark.parametrize("kind", ["inline", "planned", "shared"])
def test_an_expression_that_failed_is_computed_again_without_its_intermediates(kind: str) -> None:
    with current(kind, 1) as pool:
        a = mm.asarray(np.full((200, 200), 1 / 200))
        b = a
        for _ in range(20):
            b = mm.tanh(b @ a) + a
        failing = b + mm.linalg.inv(mm.zeros((200, 200), dtype="float64"))
        with pytest.raises(np.linalg.LinAlgError) as kept:
            failing.numpy()
        known = pool.stats()[0]["arrays"]
        for _ in range(3):
            with pytest.raises(np.linalg.LinAlgError):
                failing.numpy()
        mm.evaluate(b, wait=True)
        assert pool.stats()[0]["arrays"] <= known + 4, kept
