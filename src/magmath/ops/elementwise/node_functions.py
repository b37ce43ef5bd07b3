"""Functions that apply element-wise operations to nodes.

A record of an element-wise operation contains its gradient, which applies other operations of the
family. The functions here therefore look records up by name, in a table that the package fills when
it is loaded.
"""

from __future__ import annotations

from magmath.core.dtypes import DType, compute_dtype
from magmath.core.type_aliases import Number
from magmath.graph import Node, Operation, apply, apply_to
from magmath.graph.arithmetic import define_operators
from magmath.ops.leaves import constant

OPERATIONS: dict[str, Operation] = {}
"""The records of all element-wise operations, by name."""


def call(name: str, *inputs: Node) -> Node:
    """Apply the element-wise operation of this name."""
    return apply(OPERATIONS[name], *inputs)


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
    return apply(OPERATIONS["sqrt"], x)


def where(condition: Node, x: Node, y: Node) -> Node:
    """Return x where the condition is true, otherwise y."""
    return apply(OPERATIONS["where"], condition, x, y)


def astype(x: Node, dtype: DType) -> Node:
    """Convert x to `dtype`; return x itself if it has that type already."""
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


def apply_to_numbers(name: str, *operands: Node | Number) -> Node:
    """Apply an operation to nodes and Python numbers.

    Numbers become constants of the first node's type.
    """
    (node, *_) = [x for x in operands if isinstance(x, Node)]
    inputs = tuple([x if isinstance(x, Node) else constant(x, node.dtype) for x in operands])
    return apply_to(OPERATIONS[name], inputs, node.line)


define_operators(apply_to_numbers)
