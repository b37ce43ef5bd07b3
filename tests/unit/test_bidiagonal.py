"""Divide and conquer for bidiagonal matrices against their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from magmath.kernels.linalg.bidiagonal_svd import Bidiagonal

random = np.random.default_rng(0)
HALF = np.arange(100) < 50


def split(n: int) -> Any:
    """With zeros above the diagonal."""
    return np.where(np.arange(n - 1) % 7 == 0, 0.0, random.standard_normal(n - 1))


CASES = {
    **{f"normal {n}": (random.standard_normal(n), random.standard_normal(n - 1))
       for n in (1, 2, 32, 33, 65, 66, 200)},
    "equal": (np.ones(100), np.ones(99)),
    "identity": (np.ones(100), np.zeros(99)),
    "zero": (np.zeros(100), np.zeros(99)),
    "shift": (np.zeros(100), np.ones(99)),
    "graded": (10.0 ** -np.linspace(0, 20, 100), 1e-5 * np.ones(99)),
    "of half rank": (np.where(HALF, 2.0, 0), np.where(HALF, 1.0, 0)[1:]),
    "split": (random.standard_normal(100), split(100)),
    "negative": (-np.ones(100), 1e-9 * random.standard_normal(99)),
    "huge": (1e300 * random.standard_normal(70), 1e300 * random.standard_normal(69)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_vectors(name: str) -> None:
    """Backward errors and orthogonality within 10·n·ε, vectors made a few at a time."""
    d, e = CASES[name]
    n = len(d)
    scale = max(np.abs(d).max(), np.abs(e).max(initial=0), 1e-300)
    b = np.diag(d / scale) + np.diag(e / scale, 1)
    for ascending in (False, True):
        small = Bidiagonal(d, e, ascending=ascending)
        parts = []
        for left in (True, False):
            out = torch.empty(n, n, dtype=torch.float64)
            for start in range(0, n, 60):
                part = out[:, start : start + 60]
                made = torch.empty(part.shape, dtype=torch.float64)
                small.vectors(made, torch.empty_like(made), start, left=left)
                part.copy_(made)
            parts.append(out.numpy())
        u, v = parts
        limit = 10 * n * np.finfo(np.float64).eps
        order = np.diff(small.values)
        assert (order >= 0).all() if ascending else (order <= 0).all()
        assert np.abs((u * (small.values / scale)) @ v.T - b).max() <= limit * max(
            np.linalg.norm(b), 1
        )
        for vectors in (u, v):
            assert np.abs(vectors.T @ vectors - np.eye(n)).max() <= limit
