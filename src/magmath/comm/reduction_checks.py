"""The reductions, and the types that each supports."""

from __future__ import annotations

from functools import cache

import torch

from magmath.errors import DTypeError

_NUMERIC = ("sum", "prod", "max", "min")
_LOGICAL = ("any", "all")
HALF = (torch.float16, torch.bfloat16)
"""Types that are reduced in float32."""


@cache
def check_reduction(operation: str, dtype: torch.dtype, reduction: str) -> None:
    """Raise DTypeError if `reduction` is unknown or not defined for this dtype."""
    if reduction not in _NUMERIC and reduction not in _LOGICAL:
        names = ", ".join([*_NUMERIC, *_LOGICAL])
        raise DTypeError(
            f"{operation} supports the reductions {names}, not {reduction!r}; choose one of these"
        )
    if (reduction in _LOGICAL) != (dtype is torch.bool):
        kind = "bool" if reduction in _LOGICAL else "a number type"
        raise DTypeError(
            f"{operation} with {reduction!r} needs tensors of {kind}, not {dtype}; "
            f"convert them first"
        )
    if dtype.is_complex and reduction in ("max", "min"):
        raise DTypeError(f"{operation} with {reduction!r}: {dtype} has no order; reduce real parts")
