"""Fold scales: multiplies hoisted weights by the factors of a normalization that follows them.

At inference the moments of batch normalization are hoisted values (`passes/hoisting.py`). So the
filters of the convolution, or the weights of the product, before the normalization are multiplied
by its factors once, and a bias remains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import final

from magmath.graph import Graph, Node, apply, apply_to, users_of
from magmath.ops.elementwise import add, multiply, subtract
from magmath.ops.manipulation import RESHAPE
from magmath.passes.hoisting import hoisted_nodes


@final
@dataclass(frozen=True)
class _Scaled:
    """Multiplying dimension `own` of operand `operand` multiplies dimension `result` of the
    result."""

    operand: int
    own: int
    result: int


def _scaled(node: Node) -> _Scaled | None:
    """Return how weights scale the result of a linear operation; None for other operations."""
    if node.name == "correlation":
        return _Scaled(1, 0, 1)
    if node.name == "correlation_input" and node.attributes["groups"] == 1:
        return _Scaled(1, 1, 1)
    if node.name == "gemm":
        return _Scaled(1, 0 if node.attributes["transpose_b"] else 1, 1)
    return None


def fold_scales(graph: Graph, varying: Collection[Node]) -> Graph:
    """Return the graph with hoisted `affine` maps folded into the hoisted weights of the linear
    operations before them, if nothing else reads their results.

    (x·w + c - m)·a + b = x·(w·a) + ((c - m)·a + b)
    """
    users, outputs = users_of(graph.nodes), set(graph.roots)
    hoisted = set(hoisted_nodes(graph, varying))
    single: set[Node] = set()
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([new[x] for x in node.inputs])
        current = node.with_inputs(inputs)
        if node in hoisted:
            hoisted.add(current)
        folded = _folded(current, single, hoisted) if node.name == "affine" else None
        new[node] = current if folded is None else folded
        if len(users[node]) == 1 and node not in outputs:
            single.add(new[node])
    return graph.mapped(new)


def _folded(node: Node, single: Collection[Node], hoisted: Collection[Node]) -> Node | None:
    x, m, a, b = node.inputs
    product, shift = _without_bias(x, hoisted)
    how = _scaled(product)
    if how is None or product not in single or x not in single or product.dtype != node.dtype:
        return None
    weights = product.inputs[how.operand]
    vectors = (m, a, b) if shift is None else (m, a, b, shift)
    along = [_is_along(v, node, how.result) for v in vectors]
    if not all(v in hoisted for v in (weights, *vectors)) or not all(along):
        return None
    shape = tuple([a.size if d == how.own else 1 for d in range(weights.ndim)])
    factor = apply(RESHAPE, a, shape=shape)
    inputs = list(product.inputs)
    inputs[how.operand] = multiply(weights, factor)
    scaled = apply_to(product.operation, tuple(inputs), node.line, product.attributes)
    centre = m if shift is None else subtract(m, shift)
    bias = subtract(b, multiply(centre, a))
    if node.ndim == 2:  # the bias of a product is a row
        bias = apply(RESHAPE, bias, shape=(bias.size,))
    return add(scaled, bias)


def _without_bias(x: Node, hoisted: Collection[Node]) -> tuple[Node, Node | None]:
    """Return a linear operation, and the hoisted vector that is added to its result, if any."""
    if x.name == "add":
        for product, shift in (x.inputs, x.inputs[::-1]):
            if shift in hoisted and product.shape == x.shape and _scaled(product) is not None:
                return product, shift
    return x, None


def _is_along(v: Node, node: Node, dim: int) -> bool:
    """Return True for a number, or a vector along one dimension of a node."""
    shape = (1,) * (node.ndim - v.ndim) + v.shape
    return prod(shape) == shape[dim]
