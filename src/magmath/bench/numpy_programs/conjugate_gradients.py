"""Conjugate gradients for the Laplacian of a grid, which stops by the norm of the residual."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (113, 1118, 7071)
"""Points along each side of the grid."""
MAX_STEPS = 40


def data(n: int) -> tuple[Any, ...]:
    """Return a right-hand side of shape (n, n)."""
    return (numpy.random.default_rng(1).standard_normal((n, n)),)


def laplacian(np: Any, u: Any) -> Any:
    """Return the five-point Laplacian of u, with zeros beyond the edges."""
    out = 4.0 * u
    out[1:] -= u[:-1]
    out[:-1] -= u[1:]
    out[:, 1:] -= u[:, :-1]
    out[:, :-1] -= u[:, 1:]
    return out


def main(np: Any, b: Any) -> Any:
    """Return the approximate solution and the norm of its residual."""
    x = np.zeros_like(b)
    r = b.copy()
    p = r.copy()
    rs = (r * r).sum()
    for _ in range(MAX_STEPS):
        q = laplacian(np, p)
        alpha = rs / (p * q).sum()
        x += alpha * p
        r -= alpha * q
        new = (r * r).sum()
        if np.sqrt(new) < 1e-8:
            break
        p = r + (new / rs) * p
        rs = new
    return x, np.sqrt(rs)


def with_scipy(np: Any, b: Any) -> Any:
    """Return the same by SciPy, with the Laplacian as a sparse matrix."""
    from scipy import sparse

    n = b.shape[0]
    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    one = sparse.identity(n)
    matrix = (sparse.kron(line, one) + sparse.kron(one, line)).tocsr()
    x, _ = sparse.linalg.cg(matrix, b.ravel(), rtol=0, atol=1e-8, maxiter=MAX_STEPS)
    residual = b.ravel() - matrix @ x
    return x.reshape(n, n), np.sqrt(residual @ residual)
