"""The parity of permutations, from the lengths of their cycles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from magmath.codegen.aot_cache import AotModule

_CODE = AotModule(
    """
def parities(orders: int64[1], rows: int64, n: int64, seen: uint8[1], signs: float64[1]):
    for row in range(rows):
        for i in range(n):
            seen[i] = 0
        sign = 1.0
        for start in range(n):
            place = start
            length = 0
            while seen[place] == 0:
                seen[place] = 1
                place = orders[row * n + place]
                length = length + 1
            if length > 0 and (length & 1) == 0:
                sign = -sign
        signs[row] = sign
""",
    ["parities"],
)


def parities(orders: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return 1 for even and -1 for odd permutations, float64 (rows,). `orders`: a permutation per
    row, int64 (rows, n)."""
    orders = np.ascontiguousarray(orders)
    rows, n = orders.shape
    signs, seen = np.empty(rows), np.empty(n + 1, np.uint8)
    function = _CODE.function("parities")
    function(orders.ctypes.data, rows, n, seen.ctypes.data, signs.ctypes.data)
    return signs
