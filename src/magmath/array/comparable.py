"""Integers beside a number of Python's that may be beyond what the array's type holds.

A comparison has an answer all the same: -1 is less than any unsigned integer. So such a number
becomes the type's last, or first, and the array is kept from reaching it.
"""

from __future__ import annotations

from typing import Any

from magmath.array.array import Array, is_number
from magmath.array.weak import WeakNumber
from magmath.core.dtypes import DType, int64, integer_bounds, is_beyond, uint64
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


def comparable(dtype: DType, given: list[Any]) -> tuple[DType, list[Any]]:
    """Two operands that compare as the given ones do, which meet in an integer type, and the type
    in which they meet now."""
    are_numbers = [is_number(value) or isinstance(value, WeakNumber) for value in given]
    if sum(are_numbers) != 1:
        return dtype, given
    at = are_numbers.index(True)
    number, array = given[at], given[1 - at]
    if not isinstance(number, WeakNumber):
        array, number = _beside(dtype, array, number)
    elif dtype is uint64:
        array, number = _beside_unknown(array.node, number.node)
    else:
        dtype = int64  # which holds all that the others do
    return dtype, [array, number] if at else [number, array]


def _beside(dtype: DType, x: Array, number: int) -> tuple[Array, int]:
    """The number is brought into the range of the type."""
    (least, last), beyond = integer_bounds(dtype), is_beyond(number, dtype)
    if beyond > 0:
        return Array(e.call("minimum", x.node, constant(last - 1, dtype))), last
    if beyond < 0:
        return Array(e.call("maximum", x.node, constant(least + 1, dtype))), least
    return x, number


def _beside_unknown(x: Node, number: Node) -> tuple[Array, Array]:
    """A number of int64 beside uint64: where it is negative, it becomes 0."""
    negative = e.call("less", number, constant(0, int64))
    above = e.where(negative, e.call("maximum", x, constant(1, uint64)), x)
    return Array(above), Array(e.astype(e.call("maximum", number, constant(0, int64)), uint64))
