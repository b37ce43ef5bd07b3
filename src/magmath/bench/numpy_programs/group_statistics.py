"""Statistics of groups of a table: sorting, unique keys, sums by group, medians."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (6_500, 650_000, 25_000_000)
"""Rows."""
GROUPS = 50


def data(n: int) -> tuple[Any, ...]:
    """Return keys and values of n rows."""
    random = numpy.random.default_rng(1)
    return random.integers(0, GROUPS, n), random.gamma(2.0, 10.0, n)


def main(np: Any, keys: Any, values: Any) -> Any:
    """Return counts, means, deviations, medians and largest values of the groups."""
    unique, counts = np.unique(keys, return_counts=True)
    means = np.bincount(keys, weights=values) / counts
    centered = values - means[keys]
    deviations = np.sqrt(np.bincount(keys, weights=centered**2) / counts)
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(counts)
    grouped = values[order]
    medians = [np.median(grouped[i:j]) for i, j in zip([0, *ends[:-1]], ends, strict=True)]
    top = np.sort(values)[-10:]
    return unique, counts, means, deviations, np.stack(medians), top
