"""Comparisons of integers with Python numbers that may be beyond what the array's type holds.

A comparison has an answer all the same: -1 is less than any unsigned integer. A single number
becomes the type's last, or first, and the array is limited so that it does not reach it. Lists of
numbers are compared in a wider integer type.
"""

from __future__ import annotations

from typing import Any

from magmath.array.array import Array, is_number
from magmath.array.creation import asarray
from magmath.array.number_list import NumberList
from magmath.array.weak import WeakNumber
from magmath.core.dtypes import DType, int64, integer_bounds, side_of_range, uint64
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


def comparable(operation: str, dtype: DType, given: list[Any]) -> tuple[DType, list[Any]]:
    """Two operands that compare as the given ones do, whose common type is `dtype`, an integer
    type, and the type in which to compare them."""
    are_numbers = [
        is_number(value) or isinstance(value, (WeakNumber, NumberList)) for value in given
    ]
    if sum(are_numbers) != 1:
        return dtype, given
    at = are_numbers.index(True)
    number, array = given[at], given[1 - at]
    if isinstance(number, NumberList):
        aligned = operation not in ("isin", "searchsorted")
        dtype, array, number = _beside_list(dtype, array, number, aligned)
    elif not isinstance(number, WeakNumber):
        array, number = _beside(dtype, array, number)
    elif dtype is uint64:
        array, number = _beside_unknown(array.node, number.node)
    else:
        dtype = int64  # which holds all that the others do
    return dtype, [array, number] if at else [number, array]


def _beside(dtype: DType, x: Array, number: int) -> tuple[Array, int]:
    """The number is brought into the range of the type."""
    (least, last), beyond = integer_bounds(dtype), side_of_range(number, dtype)
    node = e.astype(x.node, dtype)
    if beyond > 0:
        return Array(e.call("minimum", node, constant(last - 1, dtype))), last
    if beyond < 0:
        return Array(e.call("maximum", node, constant(least + 1, dtype))), least
    return x, number


def _beside_list(
    dtype: DType, x: Array, numbers: NumberList, aligned: bool
) -> tuple[DType, Array, Any]:
    """The array and the list in an integer type that holds the numbers of both, where there is one.
    With uint64, negative numbers need operands that are `aligned` with each other."""
    wider = (uint64, int64) if dtype.kind == "uint" else (int64,)
    for candidate in (dtype, *wider):
        if numbers.fits(candidate) and not (dtype is uint64 and candidate is int64):
            return candidate, x, numbers
    if dtype is uint64 and aligned and numbers.fits(int64):
        listed = asarray(numbers.values, dtype=int64)
        return dtype, *_beside_unknown(x.node, listed.node)
    return dtype, x, numbers


def _beside_unknown(x: Node, number: Node) -> tuple[Array, Array]:
    """Numbers of int64 compared with uint64: negative ones become 0, and x there at least 1."""
    negative = e.call("less", number, constant(0, int64))
    above = e.where(negative, e.call("maximum", x, constant(1, uint64)), x)
    return Array(above), Array(e.astype(e.call("maximum", number, constant(0, int64)), uint64))
