"""Epilogues: folds element-wise work into the kernels that can apply it before they store their
result.

The operation's record lists the epilogues of a kernel (`Operation.epilogues`). The pass works on a
placed graph, so it folds only nodes that are stored on the same worker in the same layout: the
conversion of a product back to half types, a bias row, an activation, and the weight update `w -
rate·(xᵀ·d)`, which becomes one accumulating product unless a reduction over workers separates the
two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magmath.graph import Graph, Node, Shape, apply_to, users_of
from magmath.ops.elementwise import OPERATIONS, negative
from magmath.passes.simplify import is_constant


def epilogue_groups(graph: Graph) -> list[list[Node]]:
    """Return groups of nodes, inputs first, such that `fold_epilogues` on each group alone folds
    the same nodes as on the graph, whatever the layouts are.

    A group is a product with the element-wise nodes that alone read it or one another, or a single
    relu. In all other nodes `fold_epilogues` changes nothing.
    """
    return [group for group in _candidate_groups(graph) if any(x.name in RULES for x in group)]


def _candidate_groups(graph: Graph) -> list[list[Node]]:
    """Return these groups, and others in which no rule may apply."""
    users = users_of(graph.nodes)
    roots = set(graph.roots)
    groups: dict[Node, list[Node]] = {}  # by their last node
    alone: list[list[Node]] = []
    for node in graph.nodes:
        group: list[Node] = []
        if node.operation.is_elementwise:
            for source in dict.fromkeys(node.inputs):
                if source in groups and source not in roots and len(users[source]) == 1:
                    group += groups.pop(source)
        if group or node.operation.epilogues:
            groups[node] = [*group, node]
        elif _is_relu(node):
            alone.append([node])
    return [*groups.values(), *alone]


EpilogueRule = Callable[[Node, set[Node]], Node | None]


def fold_epilogues(graph: Graph, *, bias: bool = True, sums: bool = True) -> Graph:
    """Return the graph with the first matching rule for its name applied to each node.

    bias  fold biases
    sums  fold what changes the rounding: biases, residuals and updates. Whether they can be folded
          depends on the layouts, and so on the number of workers

    A rule receives the nodes that it may consume: those that exactly one node reads and that are
    not roots.
    """
    omitted = {*(() if bias else (_bias,)), *(() if sums else (_bias, _residual, _update))}
    users = users_of(graph.nodes)
    roots = set(graph.roots)
    single: set[Node] = set()
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([new[source] for source in node.inputs])
        current = node.with_inputs(inputs)
        for rule in RULES.get(node.operation.name, ()):
            folded = None if rule in omitted else rule(current, single)
            if folded is not None:
                current = folded
                break
        new[node] = current
        if len(users[node]) == 1 and node not in roots:
            single.add(current)
    return graph.mapped(new)


def _with_epilogue(product: Node, node: Node, *operands: Node, **changes: object) -> Node:
    """Return `product` with an epilogue, more operands and attributes, in place of `node`."""
    attributes = {**product.attributes, **changes}
    inputs = (*product.inputs, *operands)
    return apply_to(product.operation, inputs, node.line, attributes, node.layout)


def _is_open(product: Node, epilogue: str, single: set[Node]) -> bool:
    """Return True if an epilogue can be folded into a node, which has no later epilogue yet."""
    if product not in single or epilogue not in product.operation.epilogues:
        return False
    if product.name == "correlation" and not product.dtype.is_floating:
        return False  # torch lacks the arithmetic of epilogues for unsigned integers
    attributes = product.attributes
    if attributes.get("accumulate") or attributes.get("activation", "none") != "none":
        return False
    if epilogue == "relu":
        return True
    return not attributes.get("residual") and (epilogue == "residual" or not attributes.get("bias"))


def _conversion(node: Node, single: set[Node]) -> Node | None:
    """Fold the conversion of a product of half types back to its type."""
    product = node.inputs[0]
    convertible = product in single and "convert" in product.operation.epilogues
    back = convertible and product.inputs[0].dtype is node.dtype
    if not back or product.layout != node.layout:
        return None
    return _with_epilogue(product, node, dtype=node.dtype)


def _bias(node: Node, single: set[Node]) -> Node | None:
    """Fold product + row, or the sum with another vector along the operation's axis."""
    for product, row in (node.inputs, node.inputs[::-1]):
        fits = _is_open(product, "bias", single) and row.shape == _bias_shape(product)
        if fits and product.layout == node.layout and node.shape == product.shape:
            return _with_epilogue(product, node, row, bias=True)
    return None


def _bias_shape(product: Node) -> Shape:
    """Return the shape of a bias: (n,) along the last axis, otherwise (1, n, 1, …)."""
    axis, shape = product.operation.bias_axis, product.shape
    if axis == -1:
        return shape[-1:]
    return tuple([n if d == axis else 1 for d, n in enumerate(shape)])


def _residual(node: Node, single: set[Node]) -> Node | None:
    """Fold product + array, which may be an operand of the product: `assign_buffers` then computes
    the result in other memory."""
    for product, addend in (node.inputs[::-1], node.inputs):
        fits = _is_open(product, "residual", single) and addend.shape == node.shape == product.shape
        if fits and product.layout == node.layout == addend.layout and addend is not product:
            return _with_epilogue(product, node, addend, residual=True)
    return None


def _is_relu(node: Node) -> bool:
    return node.name == "maximum" and is_constant(node.inputs[1], 0)


def _activation(node: Node, single: set[Node]) -> Node | None:
    """Fold max(product, 0)."""
    if not _is_relu(node):
        return None
    product = node.inputs[0]
    if product.layout != node.layout or not _is_open(product, "relu", single):
        return None
    return _with_epilogue(product, node, activation="relu")


def _relu(node: Node, single: set[Node]) -> Node | None:
    """Replace max(x, 0), which no kernel has taken, by the operation that compiled loops compute
    with the same bits."""
    if not _is_relu(node) or node.dtype.kind != "float":
        return None
    return apply_to(OPERATIONS["relu"], node.inputs[:1], node.line, {}, node.layout)


def _update(node: Node, single: set[Node]) -> Node | None:
    """Fold c - alpha·product and c + alpha·product."""
    c, scaled = node.inputs
    if scaled.name != "multiply" or scaled not in single:
        return None
    for alpha, product in (scaled.inputs, scaled.inputs[::-1]):
        fits = alpha.shape == () and c.shape == node.shape
        fits = fits and _is_open(product, "accumulate", single)
        if fits and product.layout == scaled.layout == node.layout == _layout_read(c, node):
            factor = alpha
            if node.name == "subtract":
                factor = negative(alpha).replace((alpha,), alpha.layout)
            return _with_epilogue(product, node, c, factor, accumulate=True)
    return None


def _layout_read(c: Node, node: Node) -> object:
    """Return the layout in which `node` reads c."""
    return c.layout if c.layout is not None and not c.layout.shared else node.layout


RULES: Mapping[str, Sequence[EpilogueRule]] = {
    "astype": (_conversion,),
    "add": (_bias, _residual, _update),
    "maximum": (_activation, _relu),
    "subtract": (_update,),
}
"""The rules for the nodes of each name; the first one that matches is applied."""
