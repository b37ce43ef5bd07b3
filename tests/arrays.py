"""Helpers for tests of arrays: their pools, and the comparison with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import magmath as mm
from magmath.runtime import Pool

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]
SHAPE = (4, 5, 3)
GRID = np.arange(60.0).reshape(SHAPE)
EDGES = [s * n + d for n in (0, 2**7, 2**8, 2**15, 2**31, 2**53, 2**63, 2**64, 2**130) for s in (1, -1)
         for d in (-1, 0, 1)]  # fmt: skip
"""Integers at the ends of types, and beyond them."""


def check(array: mm.Array, expected: Any, limit: float = 1e-6) -> None:
    """Assert type, shape and values."""
    expected = np.asarray(expected)
    assert array.dtype.name == expected.dtype.name
    assert array.shape == expected.shape
    np.testing.assert_allclose(array.numpy(), expected, rtol=limit, atol=limit)


def programs(pool: Pool) -> int:
    """How many programs the first worker knows."""
    return int(pool.stats()[0]["programs"])
