"""The signs of the diagonal of R, by which QR factorizations are normalized."""

from __future__ import annotations

import torch
from torch import Tensor


def diagonal_signs(matrix: Tensor) -> Tensor:
    """Return the signs (…, k) of the diagonals of matrices, 1 for 0: the numbers by which rows are
    divided so that the diagonal becomes non-negative."""
    signs = torch.sgn(matrix.diagonal(dim1=-2, dim2=-1))
    return torch.where(signs == 0, 1, signs)
