"""Random expressions and random programs of steps, with NumPy's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import float64
from magmath.core.shapes import broadcast
from magmath.engine.engine import Engine
from magmath.engine.remote_array import RemoteArray
from magmath.errors import ShapeError
from magmath.graph import Graph, Node, apply, topological
from magmath.layout import Layout
from magmath.ops import OPERATIONS
from magmath.ops.leaves import constant, input_leaf, scalar
from magmath.ops.manipulation import permute, reshape
from magmath.ops.product.contraction import matmul
from magmath.ops.sums import broadcast_to
from operation_bodies import placements

SHAPES = [(4, 6), (6, 4), (6,), (1, 6), (4, 1), (), (6, 6)]
UNARY = ("negative", "tanh", "square", "sin", "stop_gradient")
BINARY = ("add", "subtract", "multiply", "maximum", "hypot")


def _data(engine: Engine, values: Any, layout: Layout) -> RemoteArray:
    tensor = torch.from_numpy(np.asarray(values, dtype=np.float64).copy())
    number = engine.pool.put(tensor, layout)
    return RemoteArray(engine.pool, number, tuple(tensor.shape), float64, layout)


def leaf_of(engine: Engine, values: Any, layout: Layout) -> Node:
    """Values on the workers."""
    data = _data(engine, values, layout)
    return input_leaf(data.shape, float64, layout, data)


def held_variable(engine: Engine, values: Any, layout: Layout) -> Variable:
    """A variable with these values."""
    return Variable("v", _data(engine, values, layout))


class Builder:
    """Grows an expression, node by random node; values stay small."""

    def __init__(self, random: np.random.Generator, leaves: Sequence[Node]) -> None:
        self.random = random
        self.nodes = list(leaves)

    def any(self) -> Node:
        """One of the nodes, the later ones more often."""
        place = max(self.random.integers(len(self.nodes), size=2))
        return self.nodes[place]

    def grow(self, steps: int) -> None:
        """Add some nodes."""
        makers = [self.unary, self.binary, self.binary, self.reduced, self.product, self.moved,
                  self.relu, self.scaled, self.chosen, self.again, self.sliced,
                  self.overwritten, self.joined]  # fmt: skip
        for _ in range(steps):
            made = makers[self.random.integers(len(makers))]()
            if made is not None and made.size <= 400:
                self.nodes.append(made)

    def unary(self) -> Node:
        return apply(OPERATIONS[str(self.random.choice(UNARY))], self.any())

    def binary(self) -> Node | None:
        x, y = self.any(), self.any()
        try:
            broadcast("binary", x.shape, y.shape)
        except ShapeError:
            return None
        return tame(apply(OPERATIONS[str(self.random.choice(BINARY))], x, y))

    def reduced(self) -> Node | None:
        x = self.any()
        axes = tuple(d for d in range(x.ndim) if self.random.random() < 0.5)
        name = str(self.random.choice(["sum", "max", "min"]))
        keepdims = bool(self.random.random() < 0.5)
        return tame(apply(OPERATIONS[name], x, axis=axes, keepdims=keepdims))

    def product(self) -> Node | None:
        x, y = self.any(), self.any()
        if x.ndim != 2 or y.ndim != 2:
            return None
        if self.random.random() < 0.3:
            x = permute(x, (1, 0))
        if self.random.random() < 0.3:
            y = permute(y, (1, 0))
        if x.shape[1] != y.shape[0]:
            return None
        made = matmul(x, y)
        rows = [n for n in self.nodes if n.shape == (made.shape[1],)]
        if rows and self.random.random() < 0.5:
            made = apply(OPERATIONS["add"], made, rows[0])
            if self.random.random() < 0.5:
                made = apply(OPERATIONS["maximum"], made, constant(0, float64))
        return tame(made) if self.random.random() < 0.5 else made

    def moved(self) -> Node:
        x = self.any()
        if x.ndim == 2 and self.random.random() < 0.4:
            return permute(x, (1, 0))
        if x.ndim == 2 and self.random.random() < 0.5:
            return reshape(x, (x.shape[1], x.shape[0]))
        if x.ndim == 1:
            return broadcast_to(x, (4, *x.shape))
        return reshape(x, (1, *x.shape)) if x.ndim < 2 else x

    def relu(self) -> Node:
        return apply(OPERATIONS["maximum"], self.any(), constant(0, float64))

    def scaled(self) -> Node:
        factor = scalar(float(self.random.uniform(-1, 1)), float64)
        return apply(OPERATIONS["multiply"], factor, self.any())

    def chosen(self) -> Node:
        x = self.any()
        positive = apply(OPERATIONS["greater"], x, constant(0, float64))
        return apply(OPERATIONS["where"], positive, x, constant(0.25, float64))

    def sliced(self) -> Node | None:
        x = self.any()
        if 0 in x.shape or not x.ndim:
            return None
        return apply(OPERATIONS["slice"], x, bounds=self._bounds(x.shape))

    def overwritten(self) -> Node | None:
        """An array with the elements of a slice replaced, by those of another slice or of
        itself."""
        x = self.any()
        if 0 in x.shape or not x.ndim:
            return None
        bounds = self._bounds(x.shape)
        extents = tuple(len(range(*bound)) for bound in bounds)
        moved = tuple(
            (first := int(self.random.integers(n - e + 1)), first + e, 1)
            for n, e in zip(x.shape, extents, strict=True)
        )
        values = apply(OPERATIONS["slice"], x, bounds=moved)
        return apply(OPERATIONS["set_slice"], x, values, bounds=bounds)

    def _bounds(self, shape: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        """At least one element along every axis, forwards or backwards."""
        bounds = []
        for n in shape:
            first, last = sorted(int(i) for i in self.random.integers(n, size=2))
            step = int(self.random.choice([1, 1, 2]))
            backwards = self.random.random() < 0.2
            bounds.append((last, first - 1, -step) if backwards else (first, last + 1, step))
        return tuple(bounds)

    def joined(self) -> Node | None:
        x = self.any()
        fitting = [n for n in self.nodes if n.shape == x.shape]
        if not x.ndim:
            return None
        other = fitting[self.random.integers(len(fitting))]
        axis = int(self.random.integers(x.ndim))
        return apply(OPERATIONS["concat"], x, other, axis=axis)

    def again(self) -> Node:
        """The same value as an existing one, built again."""
        x = self.any()
        return x if x.is_leaf else x.replace(x.inputs)


def tame(node: Node) -> Node:
    """The node's tanh: keeps repeated steps from growing."""
    return apply(OPERATIONS["tanh"], node)


def numpy_values(nodes: Sequence[Node], known: dict[Node, Any]) -> list[Any]:
    """The nodes' values, by the operations' NumPy references."""
    for node in topological(nodes):
        if node in known:
            continue
        if node.name == "scalar":
            known[node] = np.float64(node.value)
            continue
        operands = [known[source] for source in node.inputs]
        known[node] = np.asarray(node.operation.reference(*operands, **node.attributes))
    return [known[node] for node in nodes]


@dataclass
class Steps:
    """A program that changes variables in steps, and the NumPy values of its leaves."""

    graph: Graph
    values: dict[Node, Any]
    variables: list[Variable]  # to which their leaves refer weakly

    def advance(self) -> list[float]:
        """One step by NumPy: the emitted scalars; the variables' values change."""
        fresh = numpy_values([*self.graph.outputs, *self.graph.emitted], dict(self.values))
        count = len(self.graph.outputs)
        for target, value in zip(self.graph.targets, fresh[:count], strict=True):
            assert target is not None
            self.values[target] = value
        return [float(v) for v in fresh[count:]]


@st.composite
def expressions(draw: st.DrawFn, engine: Engine) -> tuple[list[Node], dict[Node, Any]]:
    """Some nodes to be evaluated in one program, and the values of the leaves."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    known: dict[Node, Any] = {}
    for _ in range(draw(st.integers(1, 4))):
        value = random.uniform(-1, 1, SHAPES[random.integers(len(SHAPES))])
        layout = draw(placements(torch.empty(value.shape), engine, partial=False))
        known[leaf_of(engine, value, layout)] = value
    builder = Builder(random, list(known))
    builder.grow(draw(st.integers(1, 14)))
    outputs = [builder.any() for _ in range(draw(st.integers(1, 3)))]
    return outputs, known


@st.composite
def stepping(draw: st.DrawFn, engine: Engine) -> Steps:
    """Variables in any layouts, changed in place by functions of all of them."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    known: dict[Node, Any] = {}
    variables: list[Variable] = []
    shapes = [SHAPES[i] for i in random.integers(len(SHAPES), size=2)]  # few: values change places
    for i in range(draw(st.integers(1, 5))):
        value = random.uniform(-1, 1, shapes[random.integers(2)])
        layout = draw(placements(torch.empty(value.shape), engine, partial=False))
        if i == 0 or draw(st.booleans()):
            variables.append(held_variable(engine, value, layout))
            known[variables[-1].leaf] = value
        else:
            known[leaf_of(engine, value, layout)] = value
    builder = Builder(random, list(known))
    builder.grow(draw(st.integers(2, 14)))
    outputs: list[Node] = []
    targets = [v.leaf for v in variables]
    for leaf in targets:
        outputs.append(_update(builder, leaf, outputs, draw))
    emitted = [_scalar(builder.any()) for _ in range(draw(st.integers(0, 2)))]
    graph = Graph(tuple(outputs), tuple(targets), tuple(emitted))
    return Steps(graph, known, variables)


def _scalar(node: Node) -> Node:
    """The node itself if it is 0-d, else its sum."""
    if node.ndim == 0:
        return node
    return tame(apply(OPERATIONS["sum"], node, axis=tuple(range(node.ndim)), keepdims=False))


def _update(builder: Builder, variable: Node, before: list[Node], draw: st.DrawFn) -> Node:
    """A next value for the variable: of its own and others' values, or that of one `before`."""
    fitting = [n for n in builder.nodes if n.shape == variable.shape]
    kind = draw(st.sampled_from(["swap", "descend", "descend", "mixed", "same", "common"]))
    if kind == "same":
        return variable
    if kind == "common":
        fitting = [n for n in before if n.shape == variable.shape] or fitting
    other = fitting[builder.random.integers(len(fitting))]
    if kind in ("swap", "common"):
        return other
    rate = scalar(0.125, float64)
    scaled = apply(OPERATIONS["multiply"], rate, other)
    if kind == "descend":
        return apply(OPERATIONS["subtract"], variable, scaled)
    return tame(apply(OPERATIONS["add"], other, variable))
