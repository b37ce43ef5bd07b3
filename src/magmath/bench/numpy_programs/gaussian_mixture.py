"""Expectation maximization for a mixture of Gaussians with diagonal covariances."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (3_200, 320_000, 12_500_000)
"""Points."""
FEATURES = 4
COMPONENTS = 3
STEPS = 10
JAX = DASK = True


def data(n: int) -> tuple[Any, ...]:
    """Return points of shape (n, 4) and initial means of shape (3, 4)."""
    random = numpy.random.default_rng(1)
    means = 3 * random.standard_normal((COMPONENTS, FEATURES))
    points = means[random.integers(0, COMPONENTS, n)] + random.standard_normal((n, FEATURES))
    return points, means + 0.5


def main(np: Any, x: Any, means: Any) -> Any:
    """Return weights, means and variances of the components, and the mean log-likelihood."""
    variances = np.ones_like(means)
    weights = np.ones(COMPONENTS) / COMPONENTS
    for _ in range(STEPS):
        precisions = 1 / variances
        distances = x**2 @ precisions.T - 2 * x @ (means * precisions).T
        distances = distances + (means**2 * precisions).sum(axis=1)
        logs = np.log(weights) - 0.5 * (distances + np.log(2 * np.pi * variances).sum(axis=1))
        largest = logs.max(axis=1, keepdims=True)
        shares = np.exp(logs - largest)
        total = shares.sum(axis=1, keepdims=True)
        shares = shares / total
        counts = shares.sum(axis=0)
        weights = counts / x.shape[0]
        means = shares.T @ x / counts[:, None]
        variances = shares.T @ x**2 / counts[:, None] - means**2
    return weights, means, variances, (largest + np.log(total)).mean()
