"""Which matrices the tall-skinny QR factorization takes."""

from __future__ import annotations

from typing import Final

MIN_RATIO: Final = 8
"""Minimum ratio of rows to columns."""
MIN_ROWS: Final = 1024


def is_tall(m: int, n: int) -> bool:
    """Return True for m rows and n columns for which the tall-skinny algorithm is faster."""
    return m >= MIN_RATIO * n and n >= 2 and m >= MIN_ROWS
