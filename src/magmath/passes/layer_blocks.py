"""Layer blocks: a training step, divided into one graph per layer.

A block has the operations between the activations (and cotangents) that enter the layer and those
that leave it. The values at its borders may be in a few layouts. The cost of a block is estimated
for each option of its layer and each pair of layouts at its borders, and equal blocks share these
costs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from magmath.core.bounded_memo import store_bounded
from magmath.graph import Graph, Node, Shape, users_of
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.layout import Layout
from magmath.ops.leaves import INPUT, input_leaf
from magmath.passes.environment import Environment
from magmath.passes.plan_seconds import PlanSeconds

MAX_CACHED_BLOCKS = 4096
"""Maximum number of blocks whose costs are cached."""
BORDERS = ("batch", "channel", "replicated")
"""Layouts of the values that pass from one layer to the next: split along the first dimension (for
activations, the samples of the batch), along the channels or features, or replicated."""


@final
@dataclass(frozen=True)
class LayerOptions:
    """A layer of a step: the leaves of its parameters, and their layouts under each option.

    The options of all layers of a step have the same names in the same order.
    """

    leaves: tuple[Node, ...]
    options: Mapping[str, tuple[Layout, ...]]

    @cached_property
    def signature(self) -> Hashable:
        """Equal for layers with the same options."""
        return tuple(self.options.items())

    def restricted(self, option: str) -> LayerOptions:
        """Return the layer with the layouts of one option under every option."""
        return LayerOptions(self.leaves, dict.fromkeys(self.options, self.options[option]))

    def layouts(self, option: str) -> Iterable[tuple[Node, Layout]]:
        """Return the leaves and their layouts under an option."""
        return zip(self.leaves, self.options[option], strict=True)


@final
@dataclass
class BlockSeconds:
    """The predicted seconds of all blocks of one form, so far.

    by_choice   by the layout at the left border, the option, and the layout at the right border
    by_layouts  by the layouts of the leaves, which several choices may have in common
    """

    by_choice: dict[tuple[str, str, str], float] = field(default_factory=dict)
    by_layouts: dict[tuple[Layout, ...], float] = field(default_factory=dict)


@final
@dataclass
class LayerBlock:
    """The operations of one layer, as a graph whose leaves at the borders have no layout yet.

    `own` are the positions of the layer's parameters that the block reads; `left` and `right` are
    the leaves for values that the previous and the next layer compute or read.
    """

    graph: Graph
    layer: LayerOptions
    own: list[int]
    left: list[Node]
    right: list[Node]
    environment: Environment
    cached: BlockSeconds = field(default_factory=BlockSeconds)

    @cached_property
    def signature(self) -> Hashable:
        """Equal for blocks that have the same costs."""
        position_of = {leaf: i for i, leaf in enumerate(self.graph.nodes)}
        own_positions = tuple([position_of[self.layer.leaves[i]] for i in self.own])
        borders = [tuple([position_of[leaf] for leaf in side]) for side in (self.left, self.right)]
        return (
            self.graph.key,
            own_positions,
            tuple(self.own),
            *borders,
            self.layer.signature,
            self.environment,
        )

    def seconds(self, left: str, option: str, right: str) -> float:
        """Return the predicted seconds with this option and these layouts at the borders."""
        cached, choice = self.cached.by_choice, (left, option, right)
        if choice not in cached:
            cached[choice] = self._planned_seconds(left, option, right)
        return cached[choice]

    def _planned_seconds(self, left: str, option: str, right: str) -> float:
        """Return these seconds, predicted once for all choices with the same layouts."""
        layouts = {leaf: self._bordering(leaf.shape, left) for leaf in self.left}
        layouts |= {leaf: self._bordering(leaf.shape, right) for leaf in self.right}
        for i in self.own:
            layouts[self.layer.leaves[i]] = self.layer.options[option][i]
        cached, key = self.cached.by_layouts, tuple(layouts.values())
        if key not in cached:
            cached[key] = self.plan.seconds(layouts)
        return cached[key]

    @cached_property
    def plan(self) -> PlanSeconds:
        """The predicted seconds by layouts."""
        return PlanSeconds(self.graph, self.environment)

    def _bordering(self, shape: Shape, border: str) -> Layout:
        """Return the layout of an array at a border; replicated if the array is too short to
        split."""
        mesh = self.environment.mesh
        dim = {"batch": 0, "channel": _channel_dimension(len(shape))}.get(border)
        if dim is None or shape[dim] < mesh.size or (border == "channel" and dim == 0):
            return self.environment.replicated(shape, shared=True)
        return Layout.even(shape, mesh, dim)


def _channel_dimension(ndim: int) -> int:
    """Return the dimension of the channels or features of activations: images are (N, channels,
    *space), others (N, …, features)."""
    return 1 if ndim > 3 else ndim - 1


block_seconds: dict[Hashable, BlockSeconds] = {}
"""The predicted seconds of blocks, by their signatures."""


def blocks_of(
    step: Graph,
    layers: Sequence[LayerOptions],
    layouts: Mapping[Node, Layout | None],
    environment: Environment,
) -> list[LayerBlock]:
    """Return the step as one block per layer; `layouts` are those of its nodes under the first
    option."""
    owner = _owners(step, layers)
    members: list[list[Node]] = [[] for _ in layers]
    for node in step.nodes:
        if node in owner:
            members[owner[node]].append(node)
    users = users_of(step.nodes)
    blocks = []
    for number, layer in enumerate(layers):
        extraction = _Extraction(number, owner, layouts, environment)
        block = extraction.block(step, members[number], layer, users)
        cached = block_seconds.get(block.signature)
        block.cached = cached or store_bounded(
            block_seconds, block.signature, BlockSeconds(), MAX_CACHED_BLOCKS
        )
        blocks.append(block)
    return blocks


def layer_of(direct: int, needed: int, last_update: int) -> int:
    """Return the number of the layer to which a part of a training step belongs.

    direct       the last layer whose parameters it reads, to which it belongs
    needed       the last layer on which it depends: its own, if it is of the forward pass
    last_update  the last layer whose update depends on it: its own, if it is of the backward pass

    The numbers are -1 for no layer. The smaller one of the latter two counts, since all updates
    depend on a forward node and a backward node depends on all layers.
    """
    return max(direct, needed if last_update < 0 else min(needed, last_update))


def _owners(step: Graph, layers: Sequence[LayerOptions]) -> dict[Node, int]:
    """Return the number of the layer of every computed node.

    It is that of `layer_of`. A node that depends on no parameters belongs to the first layer that
    reads it.
    """
    layer_of_leaf = {leaf: i for i, layer in enumerate(layers) for leaf in layer.leaves}
    needs: dict[Node, int] = {}
    for node in step.nodes:
        own = layer_of_leaf.get(node, -1)
        needs[node] = max([own, *[needs[source] for source in node.inputs]])
    last_update = dict.fromkeys(step.nodes, -1)
    for output, target in step.outputs_and_targets:
        if target in layer_of_leaf:
            last_update[output] = max(last_update[output], layer_of_leaf[target])
    for node in reversed(step.nodes):
        for source in node.inputs:
            last_update[source] = max(last_update[source], last_update[node])
    owner: dict[Node, int] = {}
    earliest: dict[Node, int] = {}  # for parameter-free nodes: the first reader's layer
    for node in reversed(step.nodes):
        if node.is_leaf_or_constant:
            continue
        direct = max([layer_of_leaf.get(source, -1) for source in node.inputs], default=-1)
        if needs[node] < 0:
            owner[node] = max(0, earliest.get(node, 0))
        else:
            owner[node] = layer_of(direct, needs[node], last_update[node])
        for source in node.inputs:
            earliest[source] = min(owner[node], earliest.get(source, owner[node]))
    return owner


@final
@dataclass
class _Extraction:
    """The state while one block is extracted from a step."""

    number: int
    owner: Mapping[Node, int]
    layouts: Mapping[Node, Layout | None]
    environment: Environment
    new: dict[Node, Node] = field(default_factory=dict)
    sides: dict[int, list[Node]] = field(default_factory=lambda: {-1: [], 1: []})

    def block(
        self,
        step: Graph,
        members: Iterable[Node],
        layer: LayerOptions,
        users: Mapping[Node, Sequence[Node]],
    ) -> LayerBlock:
        """Return the block of these nodes."""
        members = list(members)
        for node in members:
            inputs = tuple([self._operand(source) for source in node.inputs])
            self.new[node] = node.with_inputs(inputs)
        inside = set(members)
        ends = {node: None for node in members if any(user not in inside for user in users[node])}
        outputs = [self.new[node] for node in ends]
        targets = [self._target(node, users[node]) for node in ends]
        for output, target in step.outputs_and_targets:
            if output in inside:
                outputs.append(self.new[output])
                targets.append(target)
        emitted = tuple([self.new[node] for node in step.emitted if node in inside])
        graph = Graph(tuple(outputs), tuple(targets), emitted)
        present = set(graph.nodes)
        own_leaves = [i for i, leaf in enumerate(layer.leaves) if leaf in present]
        return LayerBlock(graph, layer, own_leaves, self.sides[-1], self.sides[1], self.environment)

    def _operand(self, source: Node) -> Node:
        """Return a node of the block, a leaf, or a border leaf for a node of another block."""
        if source not in self.new:
            if source.is_leaf_or_constant:
                self.new[source] = source
            else:
                side = self.owner[source] - self.number
                self.new[source] = self._border(source, side)
        return self.new[source]

    def _target(self, node: Node, users: Sequence[Node]) -> Node | None:
        """Return a leaf with the layout hint of a result that another block reads; None for any
        layout."""
        sides = {self.owner[user] - self.number for user in users if user in self.owner}
        side = 1 if 1 in sides else -1
        return self._border(node, side) if side in sides and node.size > 1 else None

    def _border(self, node: Node, side: int) -> Node:
        """Return a leaf for a node at a border: without a layout next to this block, otherwise in
        the layout of the first plan."""
        if node.size > 1 and side in self.sides:
            leaf = Node(INPUT, (), NO_ATTRIBUTES, node.shape, node.dtype)
            self.sides[side].append(leaf)
            return leaf
        layout = self.layouts.get(node)
        if node.size == 1 or layout is None or layout.is_partial:
            layout = self.environment.replicated(node.shape, shared=node.size > 1)
        return input_leaf(node.shape, node.dtype, layout, None)
