"""Comparisons of integer arrays with Python numbers outside the range of the array's type, and of
uint64 with signed integers.

Such a comparison has a defined result: -1 is less than any unsigned integer. A single number is
replaced by the largest or smallest value of the type, and the array is clipped so that it does not
reach that value. Lists of numbers are compared in a wider integer type; from those in which
elements are looked up, the numbers outside the range of the array's type are removed. Negative
numbers, which uint64 cannot hold, become 0, and the elements that they are compared with at
least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magmath.arrays.inputs.conversion import leaf_of_values
from magmath.arrays.inputs.number_list import NumberList, is_number
from magmath.core.dtypes import DType, int64, integer_bounds, side_of_range, uint64
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant

ALIGNED = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
"""The operations that compare operands element by element."""


def comparable_operands(
    operation: str, dtype: DType, operands: list[Any], kinds: Sequence[DType | type]
) -> tuple[DType, list[Any]]:
    """Return the type for a comparison, and two operands that compare as these do.

    dtype   the common type of the operands, an integer type
    kinds   for each operand its input to type promotion: a class of Python numbers for operands
            other than arrays with their own type
    """
    weak = [isinstance(kind, type) for kind in kinds]
    signed = [isinstance(kind, DType) and kind.kind == "int" for kind in kinds]
    if dtype is uint64 and sum(signed) == 1:
        position = signed.index(True)
        pair = _without_negative(operands[1 - position], e.astype(operands[position], int64))
        return dtype, [*pair] if position else [*reversed(pair)]
    if sum(weak) != 1:
        return dtype, operands
    position = weak.index(True)
    number, array = operands[position], operands[1 - position]
    if isinstance(number, NumberList) and operation == "isin" and position == 1:
        number = number.within(dtype)  # the others are no members of it
    elif isinstance(number, NumberList):
        dtype, array, number = _with_list(dtype, array, number, operation in ALIGNED)
    elif is_number(number):
        array, number = _with_number(dtype, array, number)
    elif dtype is uint64:
        array, number = _without_negative(array, number)
    else:
        dtype = int64  # it holds all values of the other types
    return dtype, [array, number] if position else [number, array]


def _with_number(dtype: DType, x: Node, number: int) -> tuple[Node, int]:
    """Return the array and the number brought into the range of the type."""
    (first, last), beyond = integer_bounds(dtype), side_of_range(number, dtype)
    node = e.astype(x, dtype)
    if beyond > 0:
        return e.call("minimum", node, constant(last - 1, dtype)), last
    if beyond < 0:
        return e.call("maximum", node, constant(first + 1, dtype)), first
    return x, number


def _with_list(
    dtype: DType, x: Node, numbers: NumberList, aligned: bool
) -> tuple[DType, Node, Any]:
    """Return an integer type that holds the numbers of both operands, if one exists, and the
    operands.

    With uint64, negative numbers need element-wise `aligned` operands.
    """
    wider = (uint64, int64) if dtype.kind == "uint" else (int64,)
    for candidate in (dtype, *wider):
        if numbers.is_representable_as(candidate) and not (dtype is uint64 and candidate is int64):
            return candidate, x, numbers
    if dtype is uint64 and aligned and numbers.is_representable_as(int64):
        return dtype, *_without_negative(x, leaf_of_values(numbers.values, int64))
    return dtype, x, numbers


def _without_negative(x: Node, number: Node) -> tuple[Node, Node]:
    """Return operands for comparing uint64 with int64 numbers.

    Negative numbers become 0, and the elements of x compared with them at least 1.
    """
    negative = e.call("less", number, constant(0, int64))
    above = e.where(negative, e.call("maximum", x, constant(1, uint64)), x)
    return above, e.astype(e.call("maximum", number, constant(0, int64)), uint64)
