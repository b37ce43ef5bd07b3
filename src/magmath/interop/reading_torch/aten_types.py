"""PyTorch's element types, and its rules of type promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import magmath as mm

Operator = Callable[..., Any]


def dtype_of(dtype: torch.dtype | None) -> Any:
    """Return magmath's element type of PyTorch's; None for None."""
    return None if dtype is None else getattr(mm, str(dtype).removeprefix("torch."))


def torch_dtype(x: mm.Array) -> torch.dtype:
    """Return PyTorch's element type of an array."""
    return getattr(torch, x.dtype.name)  # type: ignore[no-any-return]


def _type_sample(x: Any) -> Any:
    """Return what decides about types in PyTorch: a number, or a tensor without elements."""
    if not isinstance(x, mm.Array):
        return x
    shape = (0,) if x.ndim else ()
    return torch.empty(shape, dtype=torch_dtype(x), device="meta")


def promoted(*operands: Any) -> list[Any]:
    """Return operands in their common type by the rules of PyTorch, in which 0-d arrays and numbers
    change the type of others only if they are of a higher kind."""
    arrays = [x for x in operands if isinstance(x, mm.Array)]
    if len({x.dtype for x in arrays}) == 1 and len(arrays) == len(operands):
        return list(operands)
    # Of intermediate results: they have dimensions if any operand has, and in `torch.result_type`
    # operands without dimensions count less.
    shape = () if all(x.ndim == 0 for x in arrays) else (0,)
    common = _type_sample(operands[0])
    for x in operands[1:]:
        dtype = torch.result_type(common, _type_sample(x))
        common = torch.empty(shape, dtype=dtype, device="meta")
    target = dtype_of(common.dtype)
    return [mm.astype(x, target, copy=False) if isinstance(x, mm.Array) else x for x in operands]


def binary(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that converts its two operands to their common type first."""
    return lambda x, y: function(*promoted(x, y))


def is_exact(x: mm.Array) -> bool:
    """Return True for integers and truth values."""
    return x.dtype.is_integer or x.dtype == mm.bool


def as_float(x: Any) -> Any:
    """Return integers and truth values in PyTorch's floating point type, other operands as they
    are."""
    return mm.astype(x, mm.float32) if isinstance(x, mm.Array) and is_exact(x) else x


def as_floats(x: Any, y: Any) -> list[Any]:
    """Return two operands in their common floating point type."""
    return promoted(as_float(x), as_float(y)) if _are_exact(x, y) else promoted(x, y)


def _are_exact(*operands: Any) -> bool:
    return all(is_exact(x) if isinstance(x, mm.Array) else isinstance(x, int) for x in operands)


def of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of floating point numbers that takes integers too."""
    return lambda x, *args, **options: function(as_float(x), *args, **options)


def in_type(x: Any, dtype: torch.dtype | None) -> Any:
    """Return x in a type of PyTorch, or as it is for None."""
    return x if dtype is None else mm.astype(x, dtype_of(dtype), copy=False)


def first_of_several(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose result is the first of several that PyTorch's operator has."""
    return lambda *args, **kwargs: (function(*args, **kwargs), None, None)
