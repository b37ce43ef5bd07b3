"""Integers drawn evenly from a range of any width up to all numbers of 64 bits.

A number of 63 random bits modulo the width of a range is even enough for widths up to 2^32: no
integer is more than 2^-31 times as probable again as another one. Integers of wider ranges, and of
ranges that arrays give, are ⌊r · width / 2^126⌋ for a number r of 126 random bits, computed in
64-bit words from products of 21-bit parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from magmath.api.creation import DTypeLike, normal_shape
from magmath.api.random_draw import DistributionParameter, DrawState, Size, check_fits
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.number_list import is_number_table
from magmath.arrays.traced_scalar import TracedScalar, TypedScalar
from magmath.core.dtypes import DType, as_dtype, int64, integer_bounds
from magmath.core.shapes import broadcast
from magmath.engine.user_line import user_line
from magmath.errors import RangeError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.ops import creation
from magmath.ops import elementwise as e
from magmath.ops.leaves import scalar

_MODULO_WIDTH = 1 << 32
_PART_BITS = 21
_NUMBERS = (int, np.integer, TracedScalar, TypedScalar)
Words = tuple[Node, Node]
"""126 random bits for each element: the 63 high ones and the 63 low ones."""


def integers(
    state: DrawState,
    low: DistributionParameter,
    high: DistributionParameter,
    size: Size,
    endpoint: bool,
    dtype: DTypeLike = None,
) -> Node:
    """Return integers from low up to high, or from 0 up to low if high is None, as int64 nodes.

    Bounds are integers or integer arrays; the upper one is included only with `endpoint`. Integers
    from 2^63 on have the bits of uint64: a conversion to `dtype` restores them. Raises RangeError
    for bounds that `dtype` lacks, ShapeError for a range without integers; bounds in arrays of
    magmath, whose values are unknown, are not checked.
    """
    bounds = (0, low) if high is None else (low, high)
    first, last = map(_bound, bounds)
    _check_bounds(
        _known(bounds[0]), _known(bounds[1]), endpoint, int64 if dtype is None else as_dtype(dtype)
    )
    bounds_shape = broadcast(
        "random.integers", *[x.shape for x in (first, last) if isinstance(x, Array)]
    )
    shape = bounds_shape if size is None else normal_shape("random.integers", size)
    check_fits("random.integers", bounds_shape, shape)
    start = _word(first)
    if isinstance(first, int) and isinstance(last, int):
        width = last - first + endpoint
        if width <= _MODULO_WIDTH:
            offset = e.call("remainder", _random_bits(state, shape), scalar(width, int64))
        else:
            offset = scaled(_random_words(state, shape), _word(width - 1))
        return e.add(offset, start)
    words = _random_words(state, shape)
    largest = _word(last) - start - int(not endpoint)
    offset = scaled(words, largest)
    if all(isinstance(bound, _NUMBERS) for bound in bounds):  # the same integers as of known ones
        difference = Array(largest)
        is_narrow = ((difference >= 0) & (difference < _MODULO_WIDTH)).node
        divisor = e.where(is_narrow, largest + 1, scalar(1, int64))
        offset = e.where(is_narrow, e.call("remainder", words[0], divisor), offset)
    return e.add(offset, start)


def _word(bound: int | Array) -> Node:
    """Return an integer of 64 bits, or an array of them, as int64 with the same bits."""
    if isinstance(bound, int):
        return scalar((bound + 2**63) % 2**64 - 2**63, int64)
    return e.astype(bound.node, int64)


def _random_bits(state: DrawState, shape: Shape) -> Node:
    """Return integers drawn evenly from [0, 2^63), from the next stream."""
    seed, stream = state.draw()
    return apply(creation.BITS, seed, stream, shape=shape, dtype=int64, line=user_line())


def _random_words(state: DrawState, shape: Shape) -> Words:
    """Return 126 random bits for each element, from the next stream; the high ones are those that
    `_random_bits` returns."""
    bits = Array(_random_bits(state, (2, *shape)))
    return bits[0].node, bits[1].node


# wide ranges --------------------------------------------------------------------------------------


def scaled(words: Words, last: Node) -> Node:
    """Return ⌊r · (last + 1) / 2^126⌋, where r are the 126 bits of `words`: an integer from 0 to
    `last`. `last` and the result are unsigned numbers of 64 bits in int64."""
    high, low = words
    carry, top = _above_63_bits(_columns(low, last))
    columns = _columns(high, last)
    columns[0] = columns[0] + _bits(carry, 0)
    columns[1] = columns[1] + (_shifted_right(carry) + top)
    carry, top = _above_63_bits(columns)
    return carry + e.call("bitwise_left_shift", top, scalar(_PART_BITS, int64))


def _columns(word: Node, last: Node) -> list[Node]:
    """Return word · (last + 1) as five numbers less than 2^46, in units of 2^0, 2^21, … 2^84."""
    x, y = ([_bits(number, part) for part in range(3)] for number in (word, last))
    return [
        x[0] * y[0] + x[0],
        x[0] * y[1] + x[1] * y[0] + x[1],
        x[0] * y[2] + x[1] * y[1] + x[2] * y[0] + x[2],
        x[1] * y[2] + x[2] * y[1],
        x[2] * y[2],
    ]


def _above_63_bits(columns: Sequence[Node]) -> tuple[Node, Node]:
    """Return the bits of a number in `columns` from the 63rd on, as numbers in units of 1 and of
    2^21."""
    carry = columns[0]
    for column in columns[1:4]:
        carry = _shifted_right(carry) + column
    return carry, columns[4]


def _bits(number: Node, part: int) -> Node:
    """Return 21 bits of a number; its last part, the third one, has 22."""
    if part:
        number = _shifted_right(number, part)
    mask = (1 << (_PART_BITS + (part == 2))) - 1
    return e.call("bitwise_and", number, scalar(mask, int64))


def _shifted_right(number: Node, parts: int = 1) -> Node:
    return e.call("bitwise_right_shift", number, scalar(_PART_BITS * parts, int64))


# bounds -------------------------------------------------------------------------------------------


def _bound(value: Any) -> int | Array:
    """Return a bound of random integers as an integer or an integer array."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (list, np.ndarray, Array)):
        array = value if isinstance(value, Array) else as_array("random.integers", value)
        array = array.converted() if isinstance(array, TracedScalar) else array
        if array.dtype.is_integer:
            return array
    raise ShapeError(
        f"random.integers: bounds are integers, was given {value!r}; a shape is the third "
        f"argument, or random.integers(n, shape=…)"
    )


def _known(value: Any) -> int | NDArray[Any] | None:
    """Return a bound whose values are known in this process; None for arrays of magmath."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, np.ndarray) or (isinstance(value, list) and is_number_table(value)):
        return np.asarray(value)
    return None


def _check_bounds(
    low: int | NDArray[Any] | None, high: int | NDArray[Any] | None, endpoint: bool, dtype: DType
) -> None:
    """Raise unless a type has all integers of a range, and the range has any."""
    if low is not None and high is not None and _is_any(low > high if endpoint else low >= high):
        raise ShapeError(
            f"random.integers: needs low {'<=' if endpoint else '<'} high, was given {low} and "
            f"{high}; the upper bound is drawn with endpoint=True alone, so pass high = last + 1"
        )
    smallest, largest = (0, 1)
    if dtype.kind != "bool":
        smallest, largest = integer_bounds(dtype if dtype.is_integer else int64)
    above = largest if endpoint else largest + 1
    for bound, is_outside in (
        (low, _is_any_below(low, smallest)),
        (high, _is_any_below(above, high)),
    ):
        if is_outside:
            raise RangeError(
                f"random.integers: the bound {bound} does not fit {dtype}, which holds {smallest} "
                f"to {largest}; pass others, or dtype=… of a wider type"
            )


def _is_any_below(x: int | NDArray[Any] | None, y: int | NDArray[Any] | None) -> bool:
    """Return True if one of two known bounds is, at any position, below the other one."""
    return x is not None and y is not None and _is_any(x < y)


def _is_any(condition: Any) -> bool:
    """Return True for True, and for an array with a true element. `np.any` takes a microsecond."""
    return condition if isinstance(condition, bool) else bool(np.any(condition))
