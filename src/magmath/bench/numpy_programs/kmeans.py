"""k-means by Lloyd's iterations, with a mask for the points of each cluster."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (1_600, 160_000, 6_250_000)
"""Points."""
FEATURES = 8
CLUSTERS = 10
STEPS = 10


def data(n: int) -> tuple[Any, ...]:
    """Return points of shape (n, 8) around ten centres."""
    random = numpy.random.default_rng(1)
    centers = 4 * random.standard_normal((CLUSTERS, FEATURES))
    return (centers[random.integers(0, CLUSTERS, n)] + random.standard_normal((n, FEATURES)),)


def main(np: Any, points: Any) -> Any:
    """Return the centres, and the number of points of each."""
    centers = points[:CLUSTERS].copy()
    norms = (points**2).sum(axis=1)
    for _ in range(STEPS):
        distances = norms[:, None] - 2 * points @ centers.T + (centers**2).sum(axis=1)
        labels = distances.argmin(axis=1)
        for k in range(CLUSTERS):
            mask = labels == k
            if mask.any():
                centers[k] = points[mask].mean(axis=0)
    return centers, np.bincount(labels, minlength=CLUSTERS)


def with_scipy(np: Any, points: Any) -> Any:
    """Return the same by SciPy."""
    from scipy.cluster.vq import kmeans2, vq

    centers, _ = kmeans2(points, points[:CLUSTERS], iter=STEPS, minit="matrix")
    before, _ = kmeans2(points, points[:CLUSTERS], iter=STEPS - 1, minit="matrix")
    return centers, np.bincount(vq(points, before)[0], minlength=CLUSTERS)
