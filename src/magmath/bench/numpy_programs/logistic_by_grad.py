"""Logistic regression by gradient descent; a library that differentiates is given the loss alone.

NumPy has no `grad`, so its program has the gradient written by hand.
"""

from __future__ import annotations

from typing import Any

from magmath.bench.numpy_programs.logistic_regression import COLUMNS, SIZES, data

__all__ = ["SIZES", "data", "main"]
STEPS = 50


def loss(np: Any, w: Any, x: Any, y: Any) -> Any:
    """Return the mean loss of labels -1 and 1 with a small penalty."""
    return np.mean(np.logaddexp(0.0, -y * (x @ w))) + 5e-4 * (w @ w)


def slope(np: Any, w: Any, x: Any, y: Any) -> Any:
    """Return the gradient of `loss` for w."""
    return -(x.T @ (y / (1 + np.exp(y * (x @ w))))) / x.shape[0] + 1e-3 * w


def main(np: Any, x: Any, labels: Any) -> Any:
    """Return the coefficients and the last loss."""
    y = 2 * labels - 1
    w = np.zeros(COLUMNS)
    gradient = np.grad(lambda w: loss(np, w, x, y)) if hasattr(np, "grad") else None
    for _ in range(STEPS):
        w = w - 0.5 * (slope(np, w, x, y) if gradient is None else gradient(w))
    return w, loss(np, w, x, y)
