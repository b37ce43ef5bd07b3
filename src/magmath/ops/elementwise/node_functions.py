"""Functions that apply element-wise operations to nodes.

A record of an element-wise operation contains its gradient, which applies other operations of the
family. The functions here therefore look records up by name, in a table that the package fills when
it is loaded.
"""

from __future__ import annotations

from typing import Any

from magmath.core.dtypes import DType, compute_dtype
from magmath.core.type_aliases import Number
from magmath.graph import Node, Operation, apply, apply_to
from magmath.graph.arithmetic import define_operators
from magmath.ops.elementwise.weak_scalar import WeakScalar
from magmath.ops.leaves import constant

OPERATIONS: dict[str, Operation] = {}
"""The records of all element-wise operations, by name."""


def call(name: str, *operands: Node | Number) -> Node:
    """Apply the element-wise operation of this name to nodes, Python numbers and weak scalars.

    Numbers become constants of the last node's type, weak scalars are converted to it. Without a
    node the result is a weak scalar, if it is a real number.
    """
    for x in operands:
        if not isinstance(x, Node):
            result: Node = _call_with_numbers(name, operands)
            return result
    return apply(OPERATIONS[name], *operands)  # type: ignore[arg-type]


def _call_with_numbers(name: str, operands: tuple[Any, ...]) -> Any:
    nodes = [x for x in operands if isinstance(x, Node)]
    if not nodes:
        result = call(name, *[x.node if isinstance(x, WeakScalar) else x for x in operands])
        return WeakScalar(result) if result.dtype.is_floating else result
    node = nodes[-1]
    inputs = tuple([x if isinstance(x, Node) else _as_node(x, node.dtype) for x in operands])
    return apply_to(OPERATIONS[name], inputs, node.line)


def _as_node(x: WeakScalar | Number, dtype: DType) -> Node:
    return astype(x.node, dtype) if isinstance(x, WeakScalar) else constant(x, dtype)


define_operators(call)


def add(x: Node, y: Node) -> Node:
    """Return x + y."""
    return apply(OPERATIONS["add"], x, y)


def subtract(x: Node, y: Node) -> Node:
    """Return x - y."""
    return apply(OPERATIONS["subtract"], x, y)


def multiply(x: Node, y: Node) -> Node:
    """Return x * y."""
    return apply(OPERATIONS["multiply"], x, y)


def negative(x: Node) -> Node:
    """Return -x."""
    return apply(OPERATIONS["negative"], x)


def sqrt(x: Node) -> Node:
    """Return the square root of x."""
    return call("sqrt", x)


def where(condition: Node, x: Node, y: Node) -> Node:
    """Return x where the condition is true, otherwise y."""
    return call("where", condition, x, y)


def astype(x: Node | WeakScalar, dtype: DType) -> Node:
    """Convert x to `dtype`; return x itself if it has that type already."""
    if isinstance(x, WeakScalar):
        x = x.node
    return x if x.dtype is dtype else apply(OPERATIONS["astype"], x, dtype=dtype)


def conj(x: Node) -> Node:
    """Return the complex conjugate; x itself if its type is real."""
    return call("conj", x) if x.dtype.kind == "complex" else x


def real(x: Node) -> Node:
    """Return the real part; x itself if its type is real."""
    return call("real", x) if x.dtype.kind == "complex" else x


def squared_sizes(x: Node) -> Node:
    """Return |x|², a real number, of each element; half types give float32.

    It is a sum of squares, which unlike the square of |x| has all derivatives at 0.
    """
    if x.dtype.kind == "complex":
        return squared_sizes(call("real", x)) + squared_sizes(call("imag", x))
    return call("square", astype(x, compute_dtype(x.dtype)))
