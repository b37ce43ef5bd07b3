"""Random arrays: Philox by global element index, the same for every layout and worker count.

Each call draws the next stream of the pool's seed; `seed()` starts over. A stream is never reused
within a seed, so calls are independent and a program that runs again gives the same numbers.
"""

from __future__ import annotations

import numbers

import numpy as np

from magmath.array import session
from magmath.array.array import Array, bind_layout
from magmath.array.creation import DTypeLike, LayoutLike, normal_shape
from magmath.array.indexing import take
from magmath.array.lines import user_line
from magmath.core.dtypes import as_dtype, int64
from magmath.core.numbers import whole_number
from magmath.core.promotion import get_default_dtype
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Operation, Shape, apply
from magmath.ops import creation
from magmath.ops import elementwise as e
from magmath.ops.leaves import parameter
from magmath.ops.movement import redistribute


def seed(value: int) -> None:
    """Start the streams of the current pool over, from another seed."""
    engine = session.engine()
    engine.pool.seed = whole_number("random.seed", value, 0)
    engine.streams = 0


def next_stream() -> tuple[int, int]:
    """The pool's seed and a stream number that no call has had before."""
    engine = session.engine()
    number = engine.streams
    engine.streams += 1
    return engine.pool.seed, number


def stream_nodes() -> tuple[Node, Node]:
    """The next stream as parameters of a program."""
    first, number = next_stream()
    return parameter(first, int64), parameter(number, int64)


def _drawn(record: Operation, shape: Shape, dtype: DTypeLike) -> Node:
    element = as_dtype(dtype) if dtype is not None else get_default_dtype()
    if not element.is_floating:
        raise DTypeError(f"random: draws floating point numbers, was asked for {element}")
    return apply(record, *stream_nodes(), shape=shape, dtype=element, line=user_line())


def _check_numbers(name: str, **given: object) -> None:
    for what, value in given.items():
        if not isinstance(value, numbers.Real | np.number):
            raise ShapeError(
                f"random.{name}: {what} must be a number, was given {value!r}; a shape is the "
                f"third argument, or random.{name}(shape=…)"
            )


def _placed(node: Node, layout: LayoutLike) -> Array:
    if layout is None:
        return Array(node)
    return Array(redistribute(node, bind_layout("random", layout, node.shape)))


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] = (),
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Array:
    """Numbers drawn evenly from [low, high)."""
    _check_numbers("uniform", low=low, high=high)
    node = _drawn(creation.UNIFORM, normal_shape("random.uniform", shape), dtype)
    scaled = e.multiply(node, parameter(high - low, node.dtype))
    return _placed(e.add(scaled, parameter(low, node.dtype)), layout)


def normal(
    mean: float = 0.0,
    std: float = 1.0,
    shape: int | tuple[int, ...] = (),
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Array:
    """Numbers from the normal distribution (Box–Muller)."""
    _check_numbers("normal", mean=mean, std=std)
    node = _drawn(creation.NORMAL, normal_shape("random.normal", shape), dtype)
    scaled = e.multiply(node, parameter(std, node.dtype))
    return _placed(e.add(scaled, parameter(mean, node.dtype)), layout)


def integers(
    low: int,
    high: int | None = None,
    shape: int | tuple[int, ...] = (),
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Array:
    """Integers from low up to but not including high (or from 0 up to low)."""
    first, last = (0, low) if high is None else (low, high)
    if last <= first:
        raise ShapeError(f"integers: needs low < high, was given {first} and {last}")
    bits = apply(
        creation.BITS,
        *stream_nodes(),
        shape=normal_shape("random.integers", shape),
        dtype=int64,
        line=user_line(),
    )
    span = parameter(last - first, int64)
    drawn = e.add(e.call("remainder", bits, span), parameter(first, int64))
    return _placed(e.astype(drawn, as_dtype(dtype or int64)), layout)


def permutation(x: int | Array, *, axis: int = 0) -> Array:
    """0 … x-1 in random order, or the entries of an array along `axis` in random order."""
    extent = x if isinstance(x, int) else x.shape[axis]
    order = apply(
        creation.PERMUTATION, *stream_nodes(), shape=(extent,), dtype=int64, line=user_line()
    )
    return Array(order) if isinstance(x, int) else take(x, Array(order), axis=axis)
