"""Permutations: their parity, by the number of their cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def parities(orders: Any) -> Any:
    """1 for even and -1 for odd permutations, the rows of `orders`, int64: float64 (rows,)."""
    rows, n = orders.shape
    found = np.ones(rows)
    seen = np.zeros(n, dtype=np.bool_)
    for row in range(rows):
        seen[:] = False
        for start in range(n):
            place, length = start, 0
            while not seen[place]:
                seen[place] = True
                place = orders[row, place]
                length += 1
            if length and length % 2 == 0:
                found[row] = -found[row]
    return found
