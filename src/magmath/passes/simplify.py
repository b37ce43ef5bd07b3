"""Simplify: merges equal nodes and applies algebraic rules that cost nothing.

Operations that are defined by others are expanded into them. Equal nodes become one. Contractions
read permuted operands directly, and become `gemm` if they are products of two matrices. Stretching
and filling disappear if the consumer broadcasts anyway. The gradient of a pooling after a ReLU is
masked before it is scattered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

from magmath.core.dtypes import compute_dtype
from magmath.core.optional_passes import MERGE_EQUAL, POOLED_MASKS
from magmath.core.shapes import broadcast
from magmath.graph import Graph, Node, apply, rewrite
from magmath.ops.conv.pooling import MAX_POOL, MAX_POOL_SCATTER
from magmath.ops.elementwise import call
from magmath.ops.product.contraction import CONTRACT, Subscripts, subscripts_of
from magmath.ops.product.gemm import gemm
from magmath.ops.redistribute import redistribute
from magmath.ops.slicing import SET_SLICE
from magmath.passes.expand import expand

MAX_PARTS = 256
"""Parts of an array whose sum is computed as writes; for more, the pairs to compare are too
many."""


def simplify(graph: Graph, without: Collection[str] = ()) -> Graph:
    """Return an equal graph with fewer and cheaper nodes. `without`: names of omitted steps."""
    for name, step in STEPS:
        if name not in without:
            graph = step(graph)
    return graph


def merge_equal(graph: Graph) -> Graph:
    """Merge nodes that compute the same value (common subexpressions)."""
    first: dict[Hashable, Node] = {}
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        operation = node.operation
        if operation.is_leaf:
            new[node] = node
            continue
        inputs = tuple([new[source] for source in node.inputs])
        form = node.signature or (operation.name, *node.attributes.items())
        key = (form, inputs, node.layout)
        merged = first.get(key)
        if merged is None:
            merged = first[key] = node.with_inputs(inputs)
        new[node] = merged
    return graph.mapped(new, in_order=True)


def _apply_identities(graph: Graph) -> Graph:
    return rewrite(graph, _simpler)


def _simpler(node: Node) -> Node | None:
    if node.name == "astype" and node.inputs[0].name in ("astype", "redistribute"):
        return _simpler_conversion(node)
    if node.operation.is_elementwise:
        return _simpler_elementwise(node)
    if node.name == "contract":
        return _simpler_contraction(node)
    if node.name == "permute_dims" and node.inputs[0].name == "permute_dims":
        return _joined_permutation(node)
    return None


def _simpler_contraction(node: Node) -> Node:
    """Replace transposed operands by other subscripts, and a product of two matrices by `gemm`."""
    subscripts = subscripts_of(node)
    (a, in_a), (b, in_b) = (
        _unpermuted(x, letters)
        for x, letters in zip(node.inputs, (subscripts.a, subscripts.b), strict=True)
    )
    subscripts = Subscripts(in_a, in_b, subscripts.out)
    dtype = node.attributes["dtype"]
    groups = (subscripts.rows, subscripts.columns, subscripts.summed)
    if not subscripts.batch and all(len(group) == 1 for group in groups):
        if subscripts.out != subscripts.rows + subscripts.columns:  # the transposed product
            a, b, subscripts = b, a, Subscripts(subscripts.b, subscripts.a, subscripts.out)
        product = gemm(
            a,
            b,
            transpose_a=subscripts.a == subscripts.summed + subscripts.rows,
            transpose_b=subscripts.b == subscripts.columns + subscripts.summed,
            dtype=dtype,
        )
    else:
        product = apply(CONTRACT, a, b, subscripts=str(subscripts), dtype=dtype)
    return product.at_line(node.line)


def _unpermuted(x: Node, letters: str) -> tuple[Node, str]:
    """Return the node that x permutes, or x, and the letters of its dimensions."""
    if x.name != "permute_dims":
        return x, letters
    axes = x.attributes["axes"]
    return x.inputs[0], "".join([letters[axes.index(d)] for d in range(x.ndim)])


def _joined_permutation(node: Node) -> Node:
    inner = node.inputs[0]
    first, second = inner.attributes["axes"], node.attributes["axes"]
    axes = tuple(first[d] for d in second)
    if axes == tuple(range(len(axes))):
        return inner.inputs[0]
    return apply(node.operation, inner.inputs[0], axes=axes)


def _simpler_conversion(node: Node) -> Node | None:
    """Convert to a narrower type before a redistribution, which moves fewer bytes then, unless its
    result is a pending reduction; omit a conversion to a wider type and back."""
    inner = node.inputs[0]
    if inner.name == "redistribute":
        is_wider = node.dtype.itemsize >= inner.dtype.itemsize
        if is_wider or inner.layout is None or inner.layout.is_partial:
            return None
        narrow = apply(node.operation, inner.inputs[0], dtype=node.dtype, line=node.line)
        return redistribute(narrow, inner.layout)
    return _undone_conversion(node)


def _undone_conversion(node: Node) -> Node | None:
    """Return x if a node converts x to a wider type and back; otherwise None."""
    x = node.inputs[0].inputs[0]
    wide = compute_dtype(x.dtype) is node.inputs[0].dtype
    return x if x.dtype is node.dtype and wide else None


def is_constant(node: Node, value: float) -> bool:
    """Return True for a constant node equal to `value`."""
    return node.name == "constant" and node.attributes["value"] == value


def _simpler_elementwise(node: Node) -> Node | None:
    x = node.inputs
    if node.name == "multiply":
        for factor, other in ((x[0], x[1]), (x[1], x[0])):
            if is_constant(factor, 1) and other.shape == node.shape:
                return other
    if node.name == "add":
        if x[1].name == "negative" and x[1].shape == node.shape:
            return call("subtract", x[0], x[1].inputs[0])
        return _joined_parts(x[0], x[1]) or _simpler_operands(node)
    if node.name in ("stop_gradient", "argument"):
        return x[0]
    return _simpler_operands(node)


def _simpler_operands(node: Node) -> Node | None:
    """Return an element-wise operation on smaller operands, or None if all are needed."""
    inputs = list(node.inputs)
    for i in range(len(inputs)):
        inputs[i] = _unstretched(inputs, i, node)
    if inputs == list(node.inputs):
        return None
    return apply(node.operation, *inputs, line=node.line, **node.attributes)


def _joined_parts(x: Node, y: Node) -> Node | None:
    """Return the sum of parts that were written into zeros, such as the gradients by the slices of
    an array: all written into one array, if they have no element in common."""
    parts, other_parts = _parts_in_zeros(x), _parts_in_zeros(y)
    if not parts or not other_parts or x.shape != y.shape:
        return None
    if any(_can_overlap(part, other) for part in parts for other in other_parts):
        return None
    for part in reversed(other_parts):
        x = apply(SET_SLICE, x, part.inputs[1], line=part.line, **part.attributes)
    return x


def _parts_in_zeros(node: Node) -> list[Node]:
    """Return the writes of slices into zeros that make a node, the last one first; none for a node
    that is made otherwise."""
    writes: list[Node] = []
    while node.operation is SET_SLICE and len(writes) < MAX_PARTS:
        writes.append(node)
        node = node.inputs[0]
    is_zero = node.name == "full" and is_constant(node.inputs[0], 0)
    return writes if is_zero else []


def _can_overlap(some: Node, other: Node) -> bool:
    """Return False if the ranges of two slices have nothing in common along an axis. Steps count as
    1, so True does not say that there is a common element."""
    pairs = zip(some.attributes["bounds"], other.attributes["bounds"], strict=True)
    return all(
        step < 0 or other_step < 0 or max(first, second) < min(last, end)
        for (first, last, step), (second, end, other_step) in pairs
    )


def _mask_before_scatter(graph: Graph) -> Graph:
    if any(node.operation is MAX_POOL_SCATTER for node in graph.nodes):
        return rewrite(graph, _masked_before_scatter)
    return graph


def _masked_before_scatter(node: Node) -> Node | None:
    """Return the gradient of max_pool(relu(x)) with the mask of the relu applied to the maxima,
    which are fewer than the elements; None for another node or mask.

    A cotangent goes to an element that is the maximum, so the maximum has the same mask.
    """
    if node.name != "where_positive" or node.inputs[0].name != "max_pool_scatter":
        return None
    scattered, y = node.inputs
    if scattered.inputs[1] is not y:
        return None
    g, window = scattered.inputs[0], scattered.attributes
    maxima = apply(MAX_POOL, y, line=y.line, **window)
    return apply(MAX_POOL_SCATTER, call("where_positive", g, maxima), y, line=node.line, **window)


def _unstretched(inputs: Sequence[Node], position: int, consumer: Node) -> Node:
    """Return the node that was stretched or filled into an input, if the consumer broadcasts it
    alike; otherwise the input."""
    for inner in _stretched_from(inputs[position]):
        shapes = [inner.shape if i == position else x.shape for i, x in enumerate(inputs)]
        if broadcast(consumer.name, *shapes) == consumer.shape:
            return inner
    return inputs[position]


def _stretched_from(node: Node) -> list[Node]:
    """Return smaller nodes that hold the same values, the smallest first: a single number, or a
    node that was stretched and not reshaped since."""
    smaller: list[Node] = []
    inner, reshaped = node, False
    while inner.name in ("broadcast_to", "full", "reshape"):
        reshaped = reshaped or inner.name == "reshape"
        inner = inner.inputs[0]
        if inner.shape == () or not reshaped:
            smaller.append(inner)
    return smaller[::-1]


STEPS: Sequence[tuple[str, Callable[[Graph], Graph]]] = (
    ("expand", expand),
    (MERGE_EQUAL, merge_equal),
    ("identities", _apply_identities),
    (POOLED_MASKS, _mask_before_scatter),
    (MERGE_EQUAL, merge_equal),
)
"""The steps of `simplify`, by name."""
