"""PyTorch's operators that make arrays, copies, and arrays of other types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, dtype_of


def _to(x: mm.Array, *types: Any, dtype: torch.dtype | None = None, **options: Any) -> mm.Array:
    """Return x in another type: an argument, or that of another array; devices have no meaning."""
    target = dtype_of(dtype)
    for argument in types:
        if isinstance(argument, torch.dtype):
            target = dtype_of(argument)
        elif isinstance(argument, mm.Array):
            target = argument.dtype
    return x if target is None else mm.astype(x, target, copy=False)


def _itself(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _copied(x: mm.Array, source: mm.Array, *options: Any) -> mm.Array:
    """Return the values of another array in the shape and type of x."""
    return mm.astype(mm.broadcast_to(source, x.shape), x.dtype, copy=False)


def _full(shape: Sequence[int], value: Any, *, dtype: Any = None, **options: Any) -> mm.Array:
    kind = dtype_of(dtype)
    if kind is None:
        kind = mm.bool if isinstance(value, bool) else mm.int64 if isinstance(value, int) else None
    return mm.full(tuple(shape), value, dtype=kind or mm.float32)


def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **options: Any) -> mm.Array:
    numbers: mm.Array = mm.linspace(start, end, steps, dtype=dtype_of(dtype) or mm.float32)
    return numbers


def _constant(value: float) -> Callable[..., mm.Array]:
    def create(shape: Sequence[int], *, dtype: Any = None, **options: Any) -> mm.Array:
        return mm.full(tuple(shape), value, dtype=dtype_of(dtype) or mm.float32)

    return create


def _constant_like(value: float) -> Callable[..., mm.Array]:
    def create(x: mm.Array, *, dtype: Any = None, **options: Any) -> mm.Array:
        return mm.full(x.shape, value, dtype=dtype_of(dtype) or x.dtype)

    return create


def _full_like(x: mm.Array, value: Any, *, dtype: Any = None, **options: Any) -> mm.Array:
    return mm.full(x.shape, value, dtype=dtype_of(dtype) or x.dtype)


def _new_constant(value: float) -> Callable[..., mm.Array]:
    def create(x: mm.Array, shape: Sequence[int], *, dtype: Any = None, **options: Any) -> mm.Array:
        return mm.full(tuple(shape), value, dtype=dtype_of(dtype) or x.dtype)

    return create


def _new_full(
    x: mm.Array, shape: Sequence[int], value: Any, *, dtype: Any = None, **options: Any
) -> mm.Array:
    return mm.full(tuple(shape), value, dtype=dtype_of(dtype) or x.dtype)


def _arange(*bounds: Any, dtype: Any = None, **options: Any) -> mm.Array:
    are_integers = all(isinstance(bound, int) for bound in bounds)
    kind = dtype_of(dtype) or (mm.int64 if are_integers else mm.float32)
    return mm.astype(mm.arange(*bounds), kind, copy=False)


def _bernoulli(x: mm.Array, p: Any = None, **options: Any) -> mm.Array:
    drawn = mm.random.uniform(shape=x.shape, dtype=x.dtype)
    return mm.astype(drawn < (x if p is None else p), x.dtype)


def _random(draw: str) -> Callable[..., mm.Array]:
    def create(shape: Sequence[int], *, dtype: Any = None, **options: Any) -> Any:
        return getattr(mm.random, draw)(shape=tuple(shape), dtype=dtype_of(dtype) or mm.float32)

    return create


def _random_like(draw: str) -> Callable[..., mm.Array]:
    def create(x: mm.Array, *, dtype: Any = None, **options: Any) -> Any:
        return getattr(mm.random, draw)(shape=x.shape, dtype=dtype_of(dtype) or x.dtype)

    return create


CREATION: dict[str, Operator] = {
    "linspace": _linspace,
    "clone": _itself,
    "copy": _copied,
    "contiguous": _itself,
    "alias": _itself,
    "lift_fresh_copy": _itself,
    "detach": mm.stop_gradient,
    "to": _to,
    "_to_copy": _to,
    "type_as": _to,
    "scalar_tensor": lambda value, **options: _constant(value)((), **options),
    # new arrays
    "zeros": _constant(0),
    "ones": _constant(1),
    "empty": _constant(0),
    "full": _full,
    "zeros_like": _constant_like(0),
    "ones_like": _constant_like(1),
    "empty_like": _constant_like(0),
    "full_like": _full_like,
    "new_zeros": _new_constant(0),
    "new_ones": _new_constant(1),
    "new_empty": _new_constant(0),
    "new_full": _new_full,
    "arange": _arange,
    "bernoulli": _bernoulli,
    "rand": _random("uniform"),
    "randn": _random("normal"),
    "rand_like": _random_like("uniform"),
    "randn_like": _random_like("normal"),
}
