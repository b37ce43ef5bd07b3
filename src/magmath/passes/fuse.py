"""Fuse: fold into a matrix product what one BLAS call or its epilogue can do.

Works on a placed graph, so it folds only what lies on the same worker in the same layout: the
conversion of the result back to half types, a bias row, a ReLU, and the weight update
`w - rate·(xᵀ·d)`, which becomes one accumulating product where no reduction over workers stands
between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magmath.graph import Graph, Node, users_of
from magmath.graph.operation import apply
from magmath.ops.elementwise import negative
from magmath.passes.simplify import is_constant, merge_equal


def fuse(graph: Graph) -> Graph:
    """The graph with biases, activations and updates folded into their products."""
    return merge_equal(_folded(graph, (_conversion, _bias, _activation, _update)))


Rule = Callable[[Node, set[Node]], Node | None]
PRODUCTS = ("gemm", "contract")


def _folded(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """The graph with the first rule that fits applied to each node. A rule receives the products
    that it may consume: those that one node alone reads, and that are not wanted themselves."""
    users = users_of(graph.nodes)
    wanted = set(graph.roots)
    single: set[Node] = set()
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(new[source] for source in node.inputs)
        current = node if inputs == node.inputs else node.replace(inputs)
        for rule in rules:
            folded = rule(current, single)
            if folded is not None:
                current = folded
                break
        new[node] = current
        if new[node].name in PRODUCTS and len(users[node]) == 1 and node not in wanted:
            single.add(new[node])
    return graph.mapped(new)


def _remade(product: Node, node: Node, *rest: Node, **changes: object) -> Node:
    """`product` with more folded in, in the place of `node`."""
    attributes = {**product.attributes, **changes}
    made = apply(product.operation, *product.inputs, *rest, line=node.line, **attributes)
    made.layout = node.layout
    return made


def _is_plain(product: Node, single: set[Node]) -> bool:
    attributes = product.attributes
    return (
        product in single
        and product.name == "gemm"
        and not (
            attributes["bias"] or attributes["accumulate"] or attributes["activation"] != "none"
        )
    )


def _conversion(node: Node, single: set[Node]) -> Node | None:
    """A product of half types, converted back to them."""
    if node.name != "astype":
        return None
    product = node.inputs[0]
    back = product in single and product.inputs[0].dtype is node.dtype
    if not back or product.layout != node.layout:
        return None
    return _remade(product, node, dtype=node.dtype)


def _bias(node: Node, single: set[Node]) -> Node | None:
    """product + row."""
    if node.name != "add":
        return None
    for product, row in (node.inputs, node.inputs[::-1]):
        fits = _is_plain(product, single) and row.ndim == 1 and row.shape[0] == node.shape[-1]
        if fits and product.layout == node.layout and node.shape == product.shape:
            return _remade(product, node, row, bias=True)
    return None


def _activation(node: Node, single: set[Node]) -> Node | None:
    """max(product, 0)."""
    if node.name != "maximum" or not is_constant(node.inputs[1], 0):
        return None
    product = node.inputs[0]
    if product not in single or product.name != "gemm":
        return None
    if product.attributes["activation"] != "none":
        return None
    if product.attributes["accumulate"] or product.layout != node.layout:
        return None
    return _remade(product, node, activation="relu")


def _update(node: Node, single: set[Node]) -> Node | None:
    """c - alpha·product and c + alpha·product."""
    if node.name not in ("subtract", "add") or node.inputs[1].name != "multiply":
        return None
    c, scaled = node.inputs
    for alpha, product in (scaled.inputs, scaled.inputs[::-1]):
        fits = _is_plain(product, single) and alpha.shape == () and c.shape == node.shape
        if fits and product.layout == scaled.layout == node.layout == _own(c, node):
            factor = negative(alpha) if node.name == "subtract" else alpha
            factor.layout = alpha.layout
            return _remade(product, node, c, factor, accumulate=True)
    return None


def _own(c: Node, node: Node) -> object:
    """The layout in which `node` reads c."""
    return c.layout if c.layout is not None and not c.layout.shared else node.layout
