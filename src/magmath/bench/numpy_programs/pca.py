"""Principal components by the eigenvectors of the covariance."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (250, 25_000, 1_000_000)
"""Rows."""
COLUMNS = 50
COMPONENTS = 5
JAX = True


def data(n: int) -> tuple[Any, ...]:
    """Return a matrix of shape (n, 50) of correlated columns."""
    random = numpy.random.default_rng(1)
    mixing = random.standard_normal((COLUMNS, COLUMNS)) * 0.9 ** numpy.arange(COLUMNS)
    return (random.standard_normal((n, COLUMNS)) @ mixing.T + 3.0,)


def main(np: Any, x: Any) -> Any:
    """Return explained variances, and the lengths of the rows' projections."""
    centered = x - x.mean(axis=0)
    scaled = centered / centered.std(axis=0)
    covariance = scaled.T @ scaled / (x.shape[0] - 1)
    values, vectors = np.linalg.eigh(covariance)
    chosen = vectors[:, ::-1][:, :COMPONENTS]
    projected = scaled @ chosen
    return values[::-1] / values.sum(), (projected**2).sum(axis=1)
