"""PyTorch's operators that make arrays, copies, and arrays of other types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, dtype_of, torch_dtype


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


def _like(create: Operator) -> Operator:
    """Return the operator that creates an array of the shape and, by default, the type of x."""
    create_new = _new(create)
    return lambda x, *values, **options: create_new(x, x.shape, *values, **options)


def _new(create: Operator) -> Operator:
    """Return the operator that creates an array of, by default, the type of x."""

    def create_new(
        x: mm.Array, shape: Sequence[int], *values: Any, dtype: Any = None, **options: Any
    ) -> Any:
        return create(shape, *values, dtype=dtype or torch_dtype(x), **options)

    return create_new


def _arange(*bounds: Any, dtype: Any = None, **options: Any) -> Any:
    are_integers = all(isinstance(bound, int) for bound in bounds)
    kind = dtype_of(dtype) or (mm.int64 if are_integers else mm.float32)
    create: Operator = mm.arange
    return create(*bounds, dtype=kind)


def _bernoulli(x: mm.Array, p: Any = None, **options: Any) -> mm.Array:
    drawn = mm.random.uniform(shape=x.shape, dtype=x.dtype)
    return mm.astype(drawn < (x if p is None else p), x.dtype)


def _random(draw: str) -> Callable[..., mm.Array]:
    def create(shape: Sequence[int], *, dtype: Any = None, **options: Any) -> Any:
        return getattr(mm.random, draw)(shape=tuple(shape), dtype=dtype_of(dtype) or mm.float32)

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
    "fill": lambda x, value: mm.full(x.shape, value, dtype=x.dtype),
    "zeros_like": _like(_constant(0)),
    "ones_like": _like(_constant(1)),
    "empty_like": _like(_constant(0)),
    "full_like": _like(_full),
    "new_zeros": _new(_constant(0)),
    "new_ones": _new(_constant(1)),
    "new_empty": _new(_constant(0)),
    "new_full": _new(_full),
    "arange": _arange,
    "bernoulli": _bernoulli,
    "rand": _random("uniform"),
    "randn": _random("normal"),
    "rand_like": _like(_random("uniform")),
    "randn_like": _like(_random("normal")),
}
