"""Fold bias: computes a product and its bias, and the gradients of both, from one matrix.

A bias is a product too, of a column of ones and a row. Therefore x·W + b = [1 x]·[b; W], and
[1 x]ᵀ·g contains the gradients of both: the sum of the rows of g above xᵀ·g. There are two ways to
store [1 x]. *Widened*: it is a concatenation, and the operation that computes x writes into it
(`assign_buffers.py`). *Realigned*: x is stored at the beginning of the wider matrix, and its rows
are moved apart (SHM-Learn-Dist report, §4; `kernels/realignment_groups.py`).

The pass follows `fold_epilogues`, which adds a bias in the epilogue of its product. For each x it
compares the costs of both ways to fold its products, its gradients, or both. It folds what saves at
least a tenth of the seconds by the cost model, and is the fastest form when it is measured
(`executor/bias_tuner.py`): the model does not know that rows of one more element can slow down a
product. It folds only what one worker stores: neither the columns of x nor the rows of W may be
divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from magmath.graph import Graph, Node, apply_to
from magmath.graph.placed_nodes import layout_of, local_bytes
from magmath.layout import Layout, Split
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import FULL
from magmath.ops.leaves import constant
from magmath.ops.manipulation import RESHAPE
from magmath.ops.product.gemm import GEMM
from magmath.ops.realignment import INSERT_COLUMN
from magmath.ops.slicing import SLICE
from magmath.passes.aliasing import is_slice_view
from magmath.passes.assign_buffers import can_be_part
from magmath.passes.environment import Environment
from magmath.passes.node_cost import node_seconds

SEPARATE, EPILOGUE, REALIGNED, WIDENED = FORMS = ("separate", "epilogue", "realigned", "widened")
"""How a bias is added: by an operation of its own, in the epilogue of the product, or as a row of
the weights, with inputs that are realigned or stored in a wider matrix."""
FOLDED: Final = (WIDENED, REALIGNED)
GAIN: Final = 0.1
"""The smallest share of the predicted seconds for which a form is measured."""


def fold_bias(graph: Graph, environment: Environment) -> Graph:
    """Return the graph with biases and their gradients folded where that is cheaper, or wherever it
    is possible if the environment names the form."""
    form = environment.fold_bias
    is_auto = form == "auto"
    if environment.deterministic or form in (SEPARATE, EPILOGUE):
        return graph
    expressions: dict[Node, Node] = {}
    roots = set(graph.roots)
    for x, layers in _layers(graph).items():
        forms = FOLDED if is_auto else (environment.fold_bias,)
        options = [_Folded(x, form, x not in roots, environment) for form in forms]
        for option in options:
            option.fold(layers, only_faster=is_auto)
        best = min(options, key=lambda option: option.seconds)
        if best.expressions and (not is_auto or best.seconds < 0.0):
            expressions |= best.expressions
    return graph.replaced(expressions) if expressions else graph


@final
@dataclass(frozen=True)
class _Layer:
    """The nodes that read x and can be folded: products with a bias, and pairs (gradient of the
    weights, gradient of the bias)."""

    products: list[Node] = field(default_factory=list)
    gradients: list[tuple[Node, Node]] = field(default_factory=list)


def _layers(graph: Graph) -> Mapping[Node, _Layer]:
    """Return the nodes that can be folded, by the operand x that they read.

    The sum of the rows of g becomes a part of [1 x]ᵀ·g, so x must be known where it is computed.
    """
    layers: dict[Node, _Layer] = {}
    number = {node: i for i, node in enumerate(graph.nodes)}
    # a sum may be paired with several products: all contain its value, the last one that is folded
    # supplies it
    sums = {node.inputs[0]: node for node in graph.nodes if _is_sum_of_rows(node)}
    for node in graph.nodes:
        if node.operation is not GEMM or node.attributes["accumulate"]:
            continue
        x, y = node.inputs[:2]
        if node.attributes["bias"] and _is_product(node):
            layers.setdefault(x, _Layer()).products.append(node)
        elif y in sums and number[x] < number[sums[y]] and _is_gradient(node, x, 0, sums[y]):
            layers.setdefault(x, _Layer()).gradients.append((node, sums[y]))
        elif x in sums and number[y] < number[sums[x]] and _is_gradient(node, y, 1, sums[x]):
            layers.setdefault(y, _Layer()).gradients.append((node, sums[x]))
    return layers


def _is_sum_of_rows(node: Node) -> bool:
    attributes = node.attributes
    return node.name == "sum" and attributes["axis"] == (0,) and node.inputs[0].ndim == 2


def _is_product(node: Node) -> bool:
    """Return True for x·W + b, or x·Wᵀ + b, with nothing divided but the rows of x and the
    columns."""
    x, weight, bias = node.inputs
    units = 0 if node.attributes["transpose_b"] else 1
    plain = not node.attributes["transpose_a"] and _is_plain(node, x, weight, bias)
    if not plain:
        return False
    divided = _splits(weight)[units]
    return _splits(x)[1] is None and _splits(weight) == _at(units, divided)


def _is_gradient(node: Node, x: Node, axis: int, total: Node) -> bool:
    """Return True for xᵀ·g (axis 0) or gᵀ·x (axis 1) whose bias has a gradient in the same layout:
    `total` is the sum of the rows of g."""
    attributes, g = node.attributes, total.inputs[0]
    has_no_epilogue = not attributes["bias"] and attributes["activation"] == "none"
    transposed = attributes["transpose_a"] and not attributes["transpose_b"]
    if x is g or not (has_no_epilogue and transposed and _is_plain(x, g)):
        return False
    if total.attributes["keepdims"]:
        return False
    if node.dtype is not x.dtype or total.dtype is not x.dtype or _have_boxes(node, total):
        return False
    (divided,) = _splits(total)
    same = layout_of(node).partial == layout_of(total).partial
    return same and _splits(x)[1] is None and _splits(node) == _at(1 - axis, divided)


def _is_plain(*nodes: Node) -> bool:
    """Return True for arrays of one type, float32 or wider, that each worker stores by itself."""
    dtype = nodes[0].dtype
    if dtype.name not in ("float32", "float64") or any(x.dtype is not dtype for x in nodes):
        return False
    layouts = [layout_of(x) for x in nodes]
    return not (_have_boxes(*nodes) or any(y.is_partial or y.shared for y in layouts))


def _have_boxes(*nodes: Node) -> bool:
    return any(layout_of(x).boxes is not None for x in nodes)


def _splits(node: Node) -> tuple[Split | None, ...]:
    return layout_of(node).splits


def _at(position: int, split: Split | None) -> tuple[Split | None, ...]:
    """Return the splits of a matrix that is divided in one dimension at most."""
    return (split, None) if position == 0 else (None, split)


@final
@dataclass(frozen=True)
class _Replacement:
    """Nodes that replace others, with the predicted seconds of both."""

    seconds: float
    saved: float
    expressions: Mapping[Node, Node]


@final
class _Folded:
    """One way to store [1 x], with the nodes that replace others and the seconds that they add.

    `is_private`: nothing outside of the graph reads x.
    """

    def __init__(self, x: Node, form: str, is_private: bool, environment: Environment) -> None:
        self._x = x
        self._form = form
        self._environment = environment
        self.expressions: dict[Node, Node] = {}
        if form == WIDENED:
            self._wide, self.seconds = self._widened(is_private)
        else:
            self._wide, self.seconds = self._realigned(is_private)

    def fold(self, layer: _Layer, *, only_faster: bool) -> None:
        """Fold the products and gradients of x, or only those that become faster."""
        for node in layer.products:
            self._add(self._product(node), only_faster)
        for product, total in layer.gradients:
            gradient = self._gradient(product, total)
            if not only_faster or (self._has_gain(gradient) and self._is_fastest(product, total)):
                self._add(gradient, only_faster)

    def _add(self, folded: _Replacement, only_faster: bool) -> None:
        if not only_faster or self._has_gain(folded):
            self.seconds += folded.seconds - folded.saved
            self.expressions |= folded.expressions

    def _has_gain(self, folded: _Replacement) -> bool:
        return folded.seconds < (1.0 - GAIN) * folded.saved

    def _is_fastest(self, product: Node, total: Node) -> bool:
        """Return True if this form of the gradients is the fastest one by measurement."""
        measure = self._environment.fastest_gradients
        if measure is None:
            return False
        here = self._environment.mesh.workers[0]
        rows, inputs = layout_of(self._x).local_shape(here)
        (units,) = layout_of(total).local_shape(here)
        transposed, threads = product.inputs[1] is self._x, self._environment.threads
        name = self._x.dtype.name
        fastest = measure(rows, inputs, units, name, transposed=transposed, threads=threads)
        return fastest == self._form

    # [1 x]

    def _widened(self, is_private: bool) -> tuple[Node, float]:
        x = self._x
        one = constant(1, x.dtype)
        one = one.replace((), Layout.replicated_on((), layout_of(x).mesh))
        attributes = {"shape": (x.shape[0], 1), "dtype": x.dtype}
        ones = self._placed(FULL, (one,), (_splits(x)[0], None), **attributes)
        wide = self._placed(CONCAT, (ones, x), (_splits(x)[0], None), axis=1)
        copied = (
            0.0
            if is_private and can_be_part(x) and not _is_viewed_slice(x)
            else self._copy_seconds(x)
        )
        return wide, self._seconds(ones) + self._environment.machine.call_seconds + copied

    def _realigned(self, is_private: bool) -> tuple[Node, float]:
        """Return [1 x] by realignment: other nodes then read x in it."""
        x = self._x
        is_inside = is_private and not (
            x.is_leaf_or_constant or x.name == "recompute" or _is_viewed_slice(x)
        )
        moved = x.replace(x.inputs) if is_inside else x
        splits = (_splits(x)[0], None)
        wide = self._placed(INSERT_COLUMN, (moved,), splits, value=1.0)
        if is_inside:
            self.expressions[x] = self._part(wide, 1, 1, x.shape[1] + 1, x)
        return wide, self._seconds(wide)

    # What reads it

    def _product(self, node: Node) -> _Replacement:
        """Return [1 x]·[b; W] for x·W + b."""
        _, weight, bias = node.inputs
        axis = 1 if node.attributes["transpose_b"] else 0
        joined, seconds = self._joined(weight, bias, axis)
        attributes = {**node.attributes, "bias": False}
        product = apply_to(GEMM, (self._wide, joined), node.line, attributes, node.layout)
        return _Replacement(seconds + self._seconds(product), self._seconds(node), {node: product})

    def _joined(self, weight: Node, bias: Node, axis: int) -> tuple[Node, float]:
        """Return [b; W], and the seconds of making it."""
        shape = (1, weight.shape[1]) if axis == 0 else (weight.shape[0], 1)
        row = self._placed(RESHAPE, (bias,), _splits(weight), shape=shape)
        joined = self._placed(CONCAT, (row, weight), _splits(weight), axis=axis)
        return joined, self._seconds(row) + self._seconds(joined)

    def _gradient(self, product: Node, total: Node) -> _Replacement:
        """Return the parts of [1 x]ᵀ·g, or gᵀ·[1 x], for the gradients of weights and bias."""
        axis = 0 if product.inputs[0] is self._x else 1
        inputs = tuple([self._wide if x is self._x else x for x in product.inputs])
        shape = tuple([n + (d == axis) for d, n in enumerate(product.shape)])
        layout = _with_shape(layout_of(product), shape)
        both = apply_to(GEMM, inputs, product.line, product.attributes, layout)
        weight = self._part(both, axis, 1, shape[axis], product)
        row = self._part(both, axis, 0, 1, product)
        bias = apply_to(RESHAPE, (row,), total.line, {"shape": total.shape}, total.layout)
        seconds = sum(map(self._seconds, (both, weight, row, bias)))
        saved = self._seconds(product) + self._seconds(total)
        return _Replacement(seconds, saved, {product: weight, total: bias})

    # Nodes and costs

    def _placed(
        self, operation: Any, inputs: tuple[Node, ...], splits: Iterable[Any], **attributes: Any
    ) -> Node:
        """Return a node without pending reductions, divided by these splits."""
        node = apply_to(operation, inputs, self._x.line, attributes)
        layout = Layout(node.shape, layout_of(self._x).mesh, tuple(splits))
        return node.replace(node.inputs, layout)

    def _part(self, wide: Node, axis: int, start: int, stop: int, like: Node) -> Node:
        """Return rows or columns of a matrix, in the layout of another one."""
        bounds = tuple([(start, stop, 1) if d == axis else (0, n, 1) for d, n in _extents(wide)])
        part = apply_to(SLICE, (wide,), like.line, {"bounds": bounds})
        return part.replace(part.inputs, _with_shape(layout_of(like), part.shape))

    def _seconds(self, node: Node) -> float:
        return 0.0 if _is_viewed_slice(node) else node_seconds(node, self._environment)

    def _copy_seconds(self, x: Node) -> float:
        return 2 * local_bytes(x) / self._environment.bandwidth


def _extents(node: Node) -> Iterable[tuple[int, int]]:
    return enumerate(node.shape)


def _with_shape(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """Return a layout for an array whose undivided dimensions have other extents."""
    return Layout(shape, layout.mesh, layout.splits, layout.partial)


def _is_viewed_slice(node: Node) -> bool:
    """Return True for a slice that is computed without a copy."""
    return node.name == "slice" and is_slice_view(node)
