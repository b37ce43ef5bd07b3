"""Hoisted values: finds what a compiled function computes from variables and captured arrays alone.

They are the same in every call until one of the variables changes, so the engine computes them
once (`engine/hoisted_values.py`), and the function's program reads them. At inference these are the
moments of batch normalization: `fold_scales` multiplies the filters of the convolution, or the
weights of the product, before the normalization by its factors, and a bias remains. A convolution
with frozen filters also gets the version of their values as an operand, so that its kernel can keep
the filters in the form that it computes with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import final

from magmath.core.dtypes import int64
from magmath.graph import Graph, Node, applied, apply, topological, users_of
from magmath.ops.elementwise import add, multiply, subtract
from magmath.ops.leaves import scalar
from magmath.ops.manipulation import RESHAPE

_VIEWS = ("reshape", "permute_dims", "broadcast_to", "slice", "redistribute")
"""Operations that compute nothing: their results are not worth memory of their own."""


def hoisted_nodes(graph: Graph, varying: Collection[Node]) -> set[Node]:
    """Return the nodes that depend on none of the leaves `varying`; numbers alone do not count.

    Factorizations are not among them: their failures belong to the call that computes them.
    """
    hoisted: set[Node] = set()
    numbers: set[Node] = set()
    for node in graph.nodes:
        if node in varying:
            continue
        if node.name in ("scalar", "constant"):
            numbers.add(node)
        elif node.is_leaf:
            hoisted.add(node)
        elif not node.operation.uses_lapack and all(
            x in hoisted or x in numbers for x in node.inputs
        ):
            (numbers if numbers.issuperset(node.inputs) else hoisted).add(node)
    return hoisted | numbers if hoisted else set()


def values_to_keep(graph: Graph, hoisted: Collection[Node]) -> list[Node]:
    """Return the hoisted values that the others read and that need no more memory than the arrays
    from which they are computed."""
    outputs = set(graph.outputs)
    kept: dict[Node, None] = {}
    read = [x for node in graph.nodes if node not in hoisted for x in node.inputs if x in hoisted]
    seen: set[Node] = set()
    while read:
        node = read.pop()
        if node in seen or node.is_leaf_or_constant:
            continue
        seen.add(node)
        if node not in outputs and _is_worth_memory(node):
            kept[node] = None
        else:
            read += node.inputs
    return list(kept)


def _is_worth_memory(node: Node) -> bool:
    below = topological([node])
    if all(x.is_leaf_or_constant or x.name in _VIEWS for x in below):
        return False
    return node.nbytes <= sum(x.nbytes for x in below if x.name in ("input", "variable"))


# normalization folded into weights ----------------------------------------------------------------


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
    scaled = applied(product.operation, tuple(inputs), node.line, product.attributes)
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


# versions of frozen filters -----------------------------------------------------------------------


def with_versions(graph: Graph, hoisted: Collection[Node]) -> tuple[Graph, Mapping[Node, Node]]:
    """Return the graph with versions as operands of convolutions whose filters are among the leaves
    `hoisted`, and the leaf of each version.

    A version is a number (int64), equal as long as the data of the leaf are the same.
    """
    versions: dict[Node, Node] = {}  # of leaves
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([new[x] for x in node.inputs])
        if node.name == "correlation" and node.inputs[1] in hoisted and len(inputs) == 2:
            version = versions.setdefault(node.inputs[1], scalar(None, int64))
            attributes = {**node.attributes, "frozen": True}
            inputs = (*inputs, version)
            new[node] = applied(node.operation, inputs, node.line, attributes, node.layout)
        else:
            new[node] = node.with_inputs(inputs)
    return graph.mapped(new), {version: leaf for leaf, version in versions.items()}


def with_leaves(graph: Graph, values: Sequence[Node], leaves: Sequence[Node]) -> Graph:
    """Return the graph with leaves in place of some of its values."""
    return graph.substituted(dict(zip(values, leaves, strict=True)))
