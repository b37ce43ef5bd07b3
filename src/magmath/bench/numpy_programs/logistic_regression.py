"""Logistic regression by gradient descent, with the gradient written by hand."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (250, 25_000, 1_000_000)
"""Rows."""
COLUMNS = 50
STEPS = 50
JAX = DASK = True


def data(n: int) -> tuple[Any, ...]:
    """Return a matrix of shape (n, 50), and labels 0 and 1."""
    random = numpy.random.default_rng(1)
    x = random.standard_normal((n, COLUMNS))
    noise = random.logistic(size=n)
    return x, (x @ random.standard_normal(COLUMNS) + noise > 0).astype(float)


def main(np: Any, x: Any, y: Any) -> Any:
    """Return the coefficients and the losses."""
    w = np.zeros(COLUMNS)
    losses = []
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(x @ w)))
        losses.append(-np.mean(y * np.log(p + 1e-12) + (1 - y) * np.log(1 - p + 1e-12)))
        w = w - 0.5 * (x.T @ (p - y) / x.shape[0] + 1e-3 * w)
    return w, np.stack(losses)
