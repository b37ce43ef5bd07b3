"""Ridge regression with the penalty by cross-validation: Gram matrices of subsets of the rows."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (250, 25_000, 1_000_000)
"""Rows."""
COLUMNS = 50
FOLDS = 5
PENALTIES = (0.1, 1.0, 10.0, 100.0)


def data(n: int) -> tuple[Any, ...]:
    """Return a matrix of shape (n, 50), targets, and the rows in random order."""
    random = numpy.random.default_rng(1)
    x = random.standard_normal((n, COLUMNS))
    y = x @ random.standard_normal(COLUMNS) + random.standard_normal(n)
    return x, y, random.permutation(n)


def main(np: Any, x: Any, y: Any, order: Any) -> Any:
    """Return the errors of all folds and penalties, and the coefficients for the best penalty."""
    identity = np.eye(COLUMNS)
    fold = np.arange(x.shape[0]) * FOLDS // x.shape[0]
    errors = np.zeros((FOLDS, len(PENALTIES)))
    for k in range(FOLDS):
        train, test = order[fold != k], order[fold == k]
        a, b = x[train], y[train]
        gram, moment = a.T @ a, a.T @ b
        test_rows, targets = x[test], y[test]
        for i, penalty in enumerate(PENALTIES):
            w = np.linalg.solve(gram + penalty * identity, moment)
            errors[k, i] = ((test_rows @ w - targets) ** 2).mean()
    best = PENALTIES[int(errors.mean(axis=0).argmin())]
    return errors, np.linalg.solve(x.T @ x + best * identity, x.T @ y)
