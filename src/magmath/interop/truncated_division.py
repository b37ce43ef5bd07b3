"""Division of integers as C, ONNX and PyTorch define it."""

from __future__ import annotations

from typing import Any

import magmath as mm


def truncated_division(x: Any, y: Any) -> mm.Array:
    """Return quotients of integers, rounded towards zero; `mm.floor_divide` rounds down."""
    quotient = mm.floor_divide(x, y)
    is_rounded_down = (quotient < 0) & (quotient * y != x)
    return quotient + mm.astype(is_rounded_down, quotient.dtype)
