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
def check_reduction(operation: str, dtype: torch.dtype, op: str) -> None:
    """Raise DTypeError if `op` is unknown or not defined for this dtype."""
    if op not in _NUMERIC and op not in _LOGICAL:
        names = ", ".join([*_NUMERIC, *_LOGICAL])
        raise DTypeError(
            f"{operation} supports the reductions {names}, not {op!r}; choose one of these"
        )
    if (op in _LOGICAL) != (dtype is torch.bool):
        kind = "bool" if op in _LOGICAL else "a number type"
        raise DTypeError(
            f"{operation} with {op!r} needs tensors of {kind}, not {dtype}; convert them first"
        )
    if dtype.is_complex and op in ("max", "min"):
        raise DTypeError(f"{operation} with {op!r}: {dtype} has no order; reduce real parts")
