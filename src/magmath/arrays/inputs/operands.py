"""Operands: conversion of arrays, numbers and lists to nodes of one element type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import NotImplementedType
from typing import Any

import numpy as np

from magmath.arrays.inputs import complex_compare
from magmath.arrays.inputs.conversion import as_node, foreign_operand, leaf_of_values
from magmath.arrays.inputs.integer_compare import ALIGNED, comparable_operands
from magmath.arrays.inputs.number_list import (
    LISTS,
    NumberList,
    has_elements_of,
    is_number,
    number_list,
)
from magmath.arrays.lazy_array import LazyArray
from magmath.core.dtypes import (
    PYTHON_NUMBERS,
    DType,
    bool_,
    complex_dtype,
    float32,
    float64,
    int8,
    int64,
    is_same_kind,
    uint64,
)
from magmath.core.promotion import DEFAULT, common_dtype, floating_dtype
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, apply, apply_to
from magmath.graph.operation import Line
from magmath.ops import elementwise as e
from magmath.ops import leaves
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import full
from magmath.ops.elementwise.torch_gaps import check_exponent
from magmath.ops.manipulation import reshape

OPERANDS = (LazyArray, bool, int, float, complex, np.ndarray, np.generic, *LISTS)
_NUMBER_CLASSES = frozenset(PYTHON_NUMBERS)
FLOAT_SCALARS: dict[type, DType] = {np.float32: float32, np.float64: float64}
"""NumPy's floating-point scalars, which take part like Python numbers in operations with arrays of
their own type."""
_COMPARING = ALIGNED | {"isin", "searchsorted"}  # the operations that only compare operands


_COMPARES_ANY_OBJECT = ("equal", "not_equal")
_POWERS: Mapping[float, str] = {2: "square", 0.5: "sqrt", -1: "reciprocal"}
"""The operations of powers by these numbers."""
_EXPONENTS = frozenset({int, float, *FLOAT_SCALARS})


def operator_node(
    operation: str, x: LazyArray, other: Any, line: Line
) -> Node | NotImplementedType:
    """Return the node of an operator on an array and an operand on its right; NotImplemented for
    objects that are no operands.

    `==` and `!=` with None or text, which no number equals, are the same for every element, as in
    NumPy.
    """
    if not isinstance(other, OPERANDS):
        if operation in _COMPARES_ANY_OBJECT and (other is None or isinstance(other, (str, bytes))):
            return full(x.shape, leaves.constant(operation == "not_equal", bool_))
        return foreign_operand(operation, other)  # type: ignore[no-any-return]
    if operation == "power" and type(other) is int and other == 2:  # also of integers
        return unary_node("square", x._node, line)
    return binary_node(operation, x, other, line)


def binary_node(operation: str, x: Any, y: Any, line: Line) -> Node:
    """Return the node of an element-wise operation on two operands, promoted and broadcast.

    Powers by some numbers are other operations, which are faster and rounded exactly, as in NumPy.
    """
    if operation != "power" or type(y) not in _EXPONENTS or y not in _POWERS:
        return elementwise_node(operation, promoted_nodes(operation, x, y), line)
    nodes = promoted_nodes(operation, x, y)
    if nodes[0].dtype.kind in ("float", "complex"):
        return apply_to(e.OPERATIONS[_POWERS[y]], nodes[:1], line)
    return elementwise_node(operation, nodes, line)


def unary_node(operation: str, x: Node, line: Line) -> Node:
    """Return the node of an element-wise operation on one array, converted as NumPy does."""
    if operation in e.FLOATING:
        x = e.astype(x, floating_dtype(x.dtype))
    elif x.dtype is bool_:
        of_bools = e.OF_BOOLS.get(operation)
        if of_bools == "unchanged":
            return x
        if of_bools == "int8":
            x = e.astype(x, int8)
    return apply_to(e.OPERATIONS[operation], (x,), line)


def elementwise_node(operation: str, inputs: tuple[Node, ...], line: Line) -> Node:
    """Return the node of an element-wise operation on operands of one type. For bool, `add` is
    `logical_or` and `multiply` is `logical_and`; complex numbers are compared part by part."""
    dtype = inputs[0].dtype
    if dtype is bool_:
        of_bools = e.OF_BOOLS.get(operation)
        operation = of_bools if of_bools in e.OPERATIONS else operation
    elif dtype.kind == "complex" and operation in complex_compare.ORDERED:
        return complex_compare.compared(
            lambda name, *x: apply_to(e.OPERATIONS[name], x, line), operation, *inputs
        )
    return apply_to(e.OPERATIONS[operation], inputs, line)


def promoted_nodes(operation: str, *values: Any) -> tuple[Node, ...]:
    """Return nodes of one element type for arrays, Python numbers and nested lists of these.

    Numbers take the arrays' type (`promotion.common_dtype`). Raises TypeError if no operand is an
    array, DTypeError if there is no common type, RangeError for integers outside its range.
    """
    if len(values) == 2 and (nodes := _nodes_of_floats(*values)) is not None:
        return nodes
    operands: list[Any] = []
    kinds: list[DType | type] = []
    for value in values:
        kind: DType | type = type(value)
        if kind not in _NUMBER_CLASSES:
            value, kind = operand_and_kind(operation, value)
        operands.append(value)
        kinds.append(kind)
    if _NUMBER_CLASSES.issuperset(kinds) and all(map(is_number, operands)):
        numbers = ", ".join(map(repr, values))
        raise TypeError(
            f"{operation}: needs an array, was given {numbers}; make one with mm.asarray(x)"
        )
    dtype = _operand_type(DEFAULT.floating, operation, *dict.fromkeys(kinds))
    if dtype.is_integer and operation not in _COMPARING:
        dtype = _with_lists(dtype, operands)
    if operation == "power" and dtype.is_integer and is_number(operands[1]):
        check_exponent(operands[1])
    if operation in _COMPARING and dtype.is_integer:
        dtype, operands = comparable_operands(operation, dtype, operands, kinds)
    return tuple([node_of(operation, value, dtype) for value in operands])


def _nodes_of_floats(x: Any, y: Any) -> tuple[Node, Node] | None:
    """Return the nodes of two arrays of the same type of floats, or of one and a number; None for
    other operands. This is the fast path of `promoted_nodes`."""
    if isinstance(x, LazyArray):
        if x.is_weak or x._node.dtype.kind != "float":
            return None
        node = x._node
        if isinstance(y, LazyArray):
            return None if y.is_weak or y._node.dtype is not node.dtype else (node, y._node)
        number = _float_operand(y, node.dtype)
        return None if number is None else (node, number)
    if not isinstance(y, LazyArray) or y.is_weak or y._node.dtype.kind != "float":
        return None
    number = _float_operand(x, y._node.dtype)
    return None if number is None else (number, y._node)


def _float_operand(number: Any, dtype: DType) -> Node | None:
    """Return the node of a number that takes this type of floats; None for other operands."""
    kind = type(number)
    if kind is float or kind is int:
        return leaves.scalar(number, dtype)
    return leaves.scalar(float(number), dtype) if FLOAT_SCALARS.get(kind) is dtype else None


def _with_lists(dtype: DType, operands: Sequence[Any]) -> DType:
    """Return the type of integers that are combined with lists of integers: these have 64 bits, as
    in NumPy, so that sums and products with them do not wrap."""
    lists = [x for x in operands if isinstance(x, NumberList) and x.kind is int]
    return common_dtype(dtype, int64) if lists and dtype is not uint64 else dtype


def operand_and_kind(operation: str, value: Any) -> tuple[Any, DType | type]:
    """Return an operand as a number, a list of numbers or a node, and its input to type promotion.

    The latter is an element type or a class of Python numbers.
    """
    if is_number(value):
        return value, type(value)
    if isinstance(value, LISTS):
        numbers = number_list(value)
        if numbers is not None:
            return numbers, numbers.kind
    if isinstance(value, LazyArray):
        return value.node, value.operand_kind
    node = value if isinstance(value, Node) else node_of_value(operation, value)
    return node, node.dtype


def unpromoted_nodes(operation: str, *values: Any) -> list[Node]:
    """Return nodes for arrays and numbers, each array in its own type.

    Numbers and lists of numbers take the type that they have in an element-wise operation with the
    arrays, so that no digits are lost; without arrays they have their own.
    """
    pairs = [operand_and_kind(operation, value) for value in values]
    array_types = [kind for _, kind in pairs if isinstance(kind, DType)]
    if not array_types or len(array_types) == len(pairs):
        return [node_of_value(operation, value) for value in values]
    types = [
        kind
        if isinstance(kind, DType)
        else _operand_type(DEFAULT.floating, operation, *dict.fromkeys([*array_types, kind]))
        for _, kind in pairs
    ]
    return [
        node_of(operation, value, _with_lists(dtype, [value]) if dtype.is_integer else dtype)
        for (value, _), dtype in zip(pairs, types, strict=True)
    ]


def node_of_value(operation: str, value: Any) -> Node:
    """Return the node of a value as `as_node` does, or of a list that contains arrays."""
    if has_elements_of(value, LazyArray):
        return stacked_node(operation, value)
    return as_node(operation, value)


def node_in_type(operation: str, value: Any, dtype: DType) -> Node:
    """Return the node of a value (see `node_of_value`) in this type. Numbers, also those in lists,
    are converted once, from Python numbers."""
    if is_number(value) or (isinstance(value, LISTS) and not has_elements_of(value, LazyArray)):
        return leaf_of_values(value, dtype)
    node = node_of_value(operation, value)
    if node.dtype is dtype:
        return node
    return apply(e.ASTYPE, node, dtype=dtype, line=user_line())


def stacked_node(operation: str, values: Sequence[Any]) -> Node:
    """Return the node of a list of arrays, of lists of arrays, and of numbers, joined along a new
    first dimension in their common type. Gradients pass through it, unlike through values.

    Raises ShapeError if the elements have several shapes.
    """
    nodes = promoted_nodes(operation, *values)
    if len({node.shape for node in nodes}) > 1:
        raise ShapeError(
            f"{operation}: the elements of a list must have one shape, were given "
            f"{sorted({node.shape for node in nodes})}; arrays whose extents differ along one axis "
            f"are joined by mm.concat"
        )
    line = user_line()
    rows = [reshape(node, (1, *node.shape)) for node in nodes]
    return apply(CONCAT, *rows, axis=0, line=line)


def node_of(operation: str, value: Any, dtype: DType) -> Node:
    """Return the node of an operand that `operand_and_kind` returned, converted to `dtype`."""
    if isinstance(value, Node):
        return value if value.dtype is dtype else e.astype(value, dtype)
    if isinstance(value, NumberList):
        return leaf_of_values(value.values, dtype)
    return leaves.scalar(value, dtype, operation)


def written_operand(dtype: DType, value: Any, operation: str = "indexing") -> Node:
    """Return the node of a value to write into an array of this type.

    As in an update in place, values of the same kind, or of a less general one, are converted.
    Raises DTypeError for others.
    """
    if not isinstance(value, OPERANDS):
        value = leaf_of_values(value)
    elif dtype is bool_ and is_number(value):
        value = bool(value)  # as in NumPy: visited[i] = 1
    value, kind = operand_and_kind(operation, value)
    if isinstance(value, NumberList) and (dtype is bool_ or value.is_empty):
        return leaf_of_values(np.asarray(value.values), dtype)
    offered = kind if isinstance(kind, DType) else common_dtype(dtype, kind)
    if not is_same_kind(offered, dtype):
        loses_part = offered.kind == "complex"
        remedy = "mm.real(value) or mm.abs(value)" if loses_part else "mm.astype(value, …)"
        raise DTypeError(
            f"{operation}: cannot put {offered} into an array of {dtype}, whose type must not "
            f"change; convert the value with {remedy}"
        )
    return node_of(operation, value, dtype)


def same_kind_operand(
    operation: str, value: Any, dtype: DType, *, stays_complex: bool = False
) -> Node:
    """Return the node of an operand in this type, to which it is converted if its kind is not more
    general.

    stays_complex  complex numbers for a real type are converted to the complex type with such parts

    Raises DTypeError for others, RangeError for numbers that an integer type cannot hold.
    """
    if isinstance(value, LazyArray) and not value.is_weak:
        node: Node = value.node
        if node.dtype is dtype:
            return node
        value, offered = node, node.dtype
    else:
        value, kind = operand_and_kind(operation, value)
        offered = kind if isinstance(kind, DType) else common_dtype(dtype, kind)
    if stays_complex and offered.kind == "complex" and dtype.kind == "float":
        dtype = complex_dtype(dtype)
    if not is_same_kind(offered, dtype):
        raise DTypeError(
            f"{operation}: dtype={dtype} is the type of the result, to which {offered} is not "
            f"converted; convert the operand with mm.astype(x, mm.{dtype})"
        )
    return node_of(operation, value, dtype)


@lru_cache(maxsize=4096)
def _operand_type(default: DType, operation: str, *kinds: DType | type) -> DType:
    """Return the common type of operands of these kinds; uint64 for the comparison of uint64 with
    signed integers (`comparable_operands`).

    It depends on the default floating point type, which is an argument only for the cache key.
    """
    arrays = [kind for kind in kinds if isinstance(kind, DType)]
    inexact = any(kind.kind in ("float", "complex") for kind in arrays)
    if operation in e.FLOATING and not inexact:
        kinds = tuple([floating_dtype(k) if isinstance(k, DType) else k for k in kinds])
    try:
        dtype = common_dtype(*kinds)
    except DTypeError as error:
        if operation in ALIGNED and all(kind.is_integer for kind in arrays):
            return uint64
        raise DTypeError(f"{operation}: {error}") from None
    if operation in e.FLOATING and not dtype.is_floating and dtype.kind != "complex":
        return floating_dtype(dtype)  # integer operands
    if dtype is bool_ and e.OF_BOOLS.get(operation) == "int8":
        return int8
    if operation in _COMPARING and dtype.is_floating and not inexact:
        return float64  # integers and a Python float: the result has another type anyway
    return dtype
