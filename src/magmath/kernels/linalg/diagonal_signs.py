"""The signs of the diagonal of R, by which QR factorizations are normalized: of torch tensors, or
of NumPy arrays, whose functions have less overhead."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def diagonal_signs(matrix: Any) -> Any:
    """Return the signs (…, k) of the diagonals of matrices, 1 for 0 and NaN: the numbers by which
    rows are divided so that the diagonal becomes non-negative."""
    is_numpy = isinstance(matrix, np.ndarray)
    signs = (np.sign if is_numpy else torch.sgn)(matrix.diagonal(0, -2, -1))
    return (np.where if is_numpy else torch.where)(abs(signs) > 0, signs, 1)


def normalize_signs(q: Any, r: Any) -> None:
    """Make the diagonals of r (…, j, n) non-negative in place, and keep the products with q
    (…, m, j)."""
    signs = diagonal_signs(r)
    k = signs.shape[-1]
    q[..., :k] *= signs[..., None, :]
    r[..., :k, :] *= signs.conj()[..., :, None]
