"""Shortest paths between all places through the first hundred ones, by Floyd and Warshall."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (113, 1118, 7071)
"""Places."""
MAX_STEPS = 100


def data(n: int) -> tuple[Any, ...]:
    """Return the lengths of direct ways, of shape (n, n); most are infinite."""
    random = numpy.random.default_rng(1)
    lengths = numpy.where(random.random((n, n)) < 0.1, random.uniform(1, 10, (n, n)), numpy.inf)
    numpy.fill_diagonal(lengths, 0)
    return (lengths,)


def main(np: Any, lengths: Any) -> Any:
    """Return the lengths of the shortest paths, and the number of pairs that have one."""
    d = lengths.copy()
    for k in range(min(d.shape[0], MAX_STEPS)):
        d = np.minimum(d, d[:, k : k + 1] + d[k])
    return d, np.isfinite(d).sum()
