"""The game of life on a torus, by rolls."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (113, 1118, 7071)
"""Cells along each side."""
STEPS = 10
JAX = True


def data(n: int) -> tuple[Any, ...]:
    """Return a board of shape (n, n), a third of whose cells live."""
    return ((numpy.random.default_rng(1).random((n, n)) < 0.33).astype(int),)


def main(np: Any, board: Any) -> Any:
    """Return the last board, and the number of living cells after each step."""
    counts = []
    for _ in range(STEPS):
        neighbours = sum(
            np.roll(board, (i, j), axis=(0, 1))
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if (i, j) != (0, 0)
        )
        board = ((neighbours == 3) | ((board == 1) & (neighbours == 2))).astype(int)
        counts.append(board.sum())
    return board, np.stack(counts)
