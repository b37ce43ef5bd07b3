"""PageRank of a dense matrix of links by power iteration, until it changes no more."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (113, 1118, 7071)
"""Pages."""
MAX_STEPS = 50


def data(n: int) -> tuple[Any, ...]:
    """Return the links of shape (n, n): 1 where page j has a link to page i."""
    random = numpy.random.default_rng(1)
    return ((random.random((n, n)) < random.random((n, 1)) * 0.2).astype(float),)


def main(np: Any, links: Any) -> Any:
    """Return the ranks, and the ten largest ones."""
    n, damping = links.shape[0], 0.85
    outgoing = links.sum(axis=0)
    transition = links / np.where(outgoing > 0, outgoing, 1)
    rank = np.ones(n) / n
    for _ in range(MAX_STEPS):
        new = damping * (transition @ rank) + (1 - damping) / n
        new = new / new.sum()
        change = np.abs(new - rank).sum()
        rank = new
        if change < 1e-10:
            break
    return rank, np.sort(rank)[-10:]
