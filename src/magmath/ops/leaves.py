"""Leaves of a graph, which are evaluated arrays, variables and numbers of a run, and constants.

A `scalar` is a number in user code: each run passes its value to the program. A `constant` is a
number in an operation's definition (the 0 of relu) and is part of the program.

A `variable` represents the value that a variable has when a program runs. An expression refers to
the value at the user's line, so it reads a `version`: the variable, and the leaf with its value at
that line. A gradient with respect to the variable includes all of its versions.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, convert_number
from magmath.core.shapes import check_dimensions
from magmath.core.type_aliases import BoundCall, Number
from magmath.graph import KernelCall, Node, Operation, Shape, apply, make_node
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.layout import Layout
from magmath.ops.index_letters import LETTERS
from magmath.ops.shared_fields import no_flops, no_gradient, unreachable


def _leaf(name: str) -> Operation:
    return Operation(
        name=name,
        infer=unreachable,
        axes=lambda node: f"->{LETTERS[: node.ndim]}",
        reduction=None,
        vjp=no_gradient,
        kernel=unreachable,
        native=None,
        reference=unreachable,
        flops=no_flops,
        is_leaf=True,
    )


INPUT = _leaf("input")
VARIABLE = _leaf("variable")
SCALAR = _leaf("scalar")


VERSION = Operation(
    name="version",
    infer=lambda variable, value, *, number: (value.shape, value.dtype),
    axes=unreachable,
    reduction=None,
    vjp=lambda node, cotangent: (cotangent, None),
    kernel=unreachable,
    native=None,
    reference=lambda variable, value, *, number: value,
    flops=no_flops,
    expansion=lambda node: node.inputs[1],
    is_version=True,
)


def _constant_kernel(call: KernelCall) -> BoundCall:
    value = call.attributes["value"]
    return lambda: call.out.fill_(value)


CONSTANT = Operation(
    name="constant",
    infer=lambda *, value, dtype: ((), dtype),
    axes=lambda node: "->",
    reduction=None,
    vjp=no_gradient,
    kernel=_constant_kernel,
    native=None,  # written as a literal
    reference=lambda *, value, dtype: np.asarray(value),
    flops=no_flops,
)


NUMBERS = frozenset({CONSTANT, SCALAR})
"""The operations of nodes that are numbers."""


def is_known_number(node: Node) -> bool:
    """Return True for a constant, or a number of the user's code.

    The number that an argument is has no value: like an array, it may have a gradient.
    """
    return node.operation is CONSTANT or (node.operation is SCALAR and node.value is not None)


def input_leaf(shape: Shape, dtype: DType, layout: Layout, value: Any) -> Node:
    """Create a leaf for an evaluated array. Raises ShapeError for too many dimensions."""
    check_dimensions("asarray", shape)
    return Node(INPUT, (), NO_ATTRIBUTES, shape, dtype, layout, None, value)


def variable_leaf(shape: Shape, dtype: DType, layout: Layout, reference: Any) -> Node:
    """Create a leaf for a variable.

    `reference` is a weak reference to it, or None if the graph is only planned.
    """
    return Node(VARIABLE, (), NO_ATTRIBUTES, shape, dtype, layout=layout, value=reference)


def version(variable: Node, value: Node, number: int, leaf: Node | None = None) -> Node:
    """Create a node for version `number` of a variable; `leaf` is the leaf with its value."""
    attributes = MappingProxyType({"number": number})
    return make_node(VERSION, (variable, value), attributes, value.shape, value.dtype, value=leaf)


def scalar(value: Number | None, dtype: DType, operation: str = "") -> Node:
    """Create a leaf for a Python number from user code, as a 0-d array of `dtype`.

    None means that the value is set later. Raises RangeError, on behalf of `operation`, for an
    integer that the type cannot represent.
    """
    if value is not None:
        value = convert_number(value, dtype, operation)
    return Node(SCALAR, (), NO_ATTRIBUTES, (), dtype, value=value, is_of_numbers=True)


def constant(value: Number, dtype: DType) -> Node:
    """Create a node for a number that belongs to an operation's definition."""
    return apply(CONSTANT, value=value, dtype=dtype)


OPERATIONS = {
    operation.name: operation for operation in (INPUT, VARIABLE, VERSION, SCALAR, CONSTANT)
}
