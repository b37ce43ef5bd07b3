"""The application of operations: nodes whose shape and dtype are inferred and checked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from magmath.core.bounded_memo import store_bounded
from magmath.core.shapes import check_dimensions
from magmath.graph.operation import NO_ATTRIBUTES, Line, Node, Operation, make_node
from magmath.graph.signature import Signature
from magmath.layout import Layout

_signatures: dict[Hashable, Signature] = {}
_MAX_SIGNATURES = 10_000


def _key(operation: Operation, inputs: Sequence[Node]) -> Hashable:
    if len(inputs) == 2:
        x, y = inputs
        return operation, x.shape, x.dtype.name, y.shape, y.dtype.name
    return operation, *[(x.shape, x.dtype.name) for x in inputs]


def apply(
    operation: Operation,
    *inputs: Node,
    line: Line = None,
    **attributes: Any,
) -> Node:
    """Return a new node; infers and checks the shape and dtype of the result.

    Without a given line it has the line of its first operand.
    """
    return apply_to(operation, inputs, line, attributes or NO_ATTRIBUTES)


def apply_to(
    operation: Operation,
    inputs: tuple[Node, ...],
    line: Line,
    attributes: Mapping[str, Any] = NO_ATTRIBUTES,
    layout: Layout | None = None,
) -> Node:
    """Return a new node for operands and attributes that are already a tuple and a mapping.

    An inference depends only on the operation, its attributes and its operands' shapes and types,
    so it is cached for each combination of these.
    """
    if attributes:
        key: Hashable = (
            operation,
            *attributes.items(),
            *[(x.shape, x.dtype.name) for x in inputs],
        )
    else:
        key = _key(operation, inputs)
    signature = _signatures.get(key)
    if signature is None:
        shape, dtype = operation.infer(*inputs, **attributes)
        check_dimensions(operation.name, shape)
        signature = store_bounded(
            _signatures,
            key,
            Signature(key, MappingProxyType({**attributes}), shape, dtype),
            _MAX_SIGNATURES,
        )
    if line is None and inputs:
        line = inputs[0].line
    return make_node(
        operation,
        inputs,
        signature.attributes,
        signature.shape,
        signature.dtype,
        layout,
        line,
        None,
        signature,
    )
