"""Operators on small arrays in the dispatch cache: operations on two operands, without a function.

The call key consists of the operation, and the types and shapes of the operands. Numbers are
operands of the repeated call, so `x * 2.0` and `x * 3.0` have one key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from magmath.arrays.inputs.operands import FLOAT_SCALARS
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.number_leaves import number_leaf
from magmath.arrays.protocols.cached_functions import part_of_key
from magmath.core.dtypes import bool_
from magmath.core.promotion import DEFAULT
from magmath.engine import session
from magmath.engine.eager.eager_calls import call_of
from magmath.engine.lifetimes.kept_expressions import keep_expression
from magmath.engine.user_line import user_line
from magmath.graph import Node
from magmath.graph.operation import Line

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation

_REAL = frozenset((float, int))
"""Classes of numbers that operators take as operands."""
_KeyedOperands: TypeAlias = tuple[tuple[Any, ...], tuple[Node, ...], tuple[Any, ...]]
"""The key of an operation, the leaves of its different arrays, and its numbers. No class, since
each operator makes one."""
_NodeOf: TypeAlias = Callable[[str, Any, Any, Line], Any]
"""A function that returns the node of an operation on two operands, or NotImplemented."""


def operator_result(operation: str, x: Any, y: Any, node_of: _NodeOf, frames: int) -> Any:
    """Return a leaf with the result of an element-wise operation on two operands, if it is computed
    at its line, otherwise its pending node; NotImplemented for objects that are no operands.

    `frames` are those up to the user's line (`OPERATOR_FRAMES`).
    """
    line, eager = user_line(frames), session.eager_computation()
    keyed = None if eager is None else _keyed_operands(eager, operation, x, y)
    leaf: Node | None
    if eager is not None and keyed is not None:
        key, leaves, numbers = keyed
        leaf = eager.dispatch_cache.repeat(eager, key, leaves, line, numbers)
        if leaf is not None:
            return leaf
    node = node_of(operation, x, y, line)
    leaf = session.leaf_of_new_node(node) if isinstance(node, Node) else None
    if leaf is None:
        return node
    keep_expression(node)
    if eager is not None and keyed is not None and eager.dispatch_cache.is_new(key):
        eager.dispatch_cache.record(key, call_of(eager, leaf, leaves, len(numbers)))
    return leaf


def _keyed_operands(
    eager: EagerComputation, operation: str, x: Any, y: Any
) -> _KeyedOperands | None:
    """Return the key and the operands of an operation on two stored arrays, or on one and a number;
    otherwise None."""
    first, second = type(x), type(y)
    key: tuple[Any, ...]
    leaves: tuple[Node, ...]
    a: Node | None
    b: Node | None
    numbers: tuple[Any, ...]
    if second in _REAL:
        if not isinstance(x, LazyArray):
            return None
        a = x._node
        if a is not x._leaf and (a := x.stored_leaf()) is None:
            return None
        key = operation, DEFAULT.floating.name, a.shape, a.dtype.name, second
        leaves, numbers = (a,), (y,)
    elif first in _REAL:
        if not isinstance(y, LazyArray):
            return None
        b = y._node
        if b is not y._leaf and (b := y.stored_leaf()) is None:
            return None
        key = operation, DEFAULT.floating.name, first, b.shape, b.dtype.name
        leaves, numbers = (b,), (x,)
    elif second is first and isinstance(x, LazyArray):
        a, b = x._node, y._node
        if a is not x._leaf or b is not y._leaf:
            a, b = x.stored_leaf(), y.stored_leaf()
            if a is None and b is not None:
                a = number_leaf(eager, x)
            elif b is None and a is not None:
                b = number_leaf(eager, y)
            if a is None or b is None:
                return None
        is_same = a is b
        key = (
            operation,
            DEFAULT.floating.name,
            a.shape,
            a.dtype.name,
            b.shape,
            b.dtype.name,
            is_same,
        )
        leaves, numbers = ((a,) if is_same else (a, b)), ()
    elif isinstance(x, LazyArray) and FLOAT_SCALARS.get(second) is x._node.dtype:
        return _keyed_operands(eager, operation, x, float(y))
    elif isinstance(y, LazyArray) and FLOAT_SCALARS.get(first) is y._node.dtype:
        return _keyed_operands(eager, operation, float(x), y)
    else:
        return None
    if operation == "power":  # which is another operation for some numbers
        if leaves[0].dtype is bool_:  # the operator's squares are int8, the function's int64
            return None
        key, numbers = (*key, *map(part_of_key, numbers)), ()
    return key, leaves, numbers
