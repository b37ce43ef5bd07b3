"""Regression by a Gaussian process: a kernel matrix and its Cholesky factor."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (113, 1118, 7071)
"""Points, whose kernel matrix has their square."""
JAX = True


def data(n: int) -> tuple[Any, ...]:
    """Return points of shape (n, 2), their values, and 100 points in question."""
    random = numpy.random.default_rng(1)
    x = random.uniform(-3, 3, (n, 2))
    y = numpy.sin(x[:, 0]) * numpy.cos(x[:, 1]) + 0.1 * random.standard_normal(n)
    return x, y, random.uniform(-3, 3, (100, 2))


def kernel(np: Any, a: Any, b: Any) -> Any:
    """Return the squared exponential kernel of points of shapes (m, 2) and (n, 2)."""
    distances = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.exp(-0.5 * distances)


def main(np: Any, x: Any, y: Any, points: Any) -> Any:
    """Return means and variances at the points in question, and the log-likelihood."""
    n = x.shape[0]
    factor = np.linalg.cholesky(kernel(np, x, x) + 0.01 * np.eye(n))
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, y))
    cross = kernel(np, points, x)
    v = np.linalg.solve(factor, cross.T)
    logs = np.log(np.diag(factor)).sum()
    return cross @ weights, 1 - (v**2).sum(axis=0), -0.5 * (y @ weights) - logs


def with_scipy(np: Any, x: Any, y: Any, points: Any) -> Any:
    """Return the same by SciPy, which solves with triangular factors."""
    from scipy.linalg import cho_solve, solve_triangular

    factor = np.linalg.cholesky(kernel(np, x, x) + 0.01 * np.eye(x.shape[0]))
    weights = cho_solve((factor, True), y)
    cross = kernel(np, points, x)
    v = solve_triangular(factor, cross.T, lower=True)
    logs = np.log(np.diag(factor)).sum()
    return cross @ weights, 1 - (v**2).sum(axis=0), -0.5 * (y @ weights) - logs
