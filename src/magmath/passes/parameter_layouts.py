"""Parameter layouts: chooses the cheapest layouts of a step's parameters, layer by layer.

Each layer of a step has a few options for the layouts of its parameters. Planning the whole step
for every layer and option takes time that is quadratic in the number of layers. This pass cuts the
step into one block per layer: the operations between the activations (and cotangents) that enter
the layer and those that leave it. A block is priced once for each option and each pair of layouts
at its borders, and equal blocks share these costs. Dynamic programming (Viterbi) then finds the
cheapest path through the chain of blocks, in time linear in the number of layers. The result is
exact for a chain, given the layouts that are allowed at borders. A value that skips over layers, as
in residual networks, has the layout of the first option's plan.

The pass compares the path with each option applied to all layers, by the predicted seconds of the
whole step, and chooses the cheapest. No plan is built for that (`passes/plan_seconds.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import final

from magmath.core.bounded_memo import store_bounded
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.graph import Graph, Node, Shape, users_of
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.layout import Layout
from magmath.ops.leaves import INPUT, input_leaf, variable_leaf
from magmath.passes.environment import Environment
from magmath.passes.plan_decisions import decisions_of
from magmath.passes.plan_seconds import PlanSeconds
from magmath.passes.simplify import simplify

MAX_CACHED_CHOICES = 4096
"""Maximum number of blocks, and of steps, whose costs are cached."""
WORTH = 0.999
"""A mixture of options must be cheaper than the best single option by this factor."""
BORDERS = ("rows", "columns", "whole")
"""Layouts of the values that pass from one layer to the next: split along the first dimension (for
activations, the samples of the batch), along the units or channels, or whole on every worker."""


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
@dataclass(frozen=True)
class ChosenOptions:
    """The chosen option of each layer, and the predicted seconds per step of the compared choices:
    each option for all layers, and "auto", the chosen one."""

    options: tuple[str, ...]
    seconds: Mapping[str, float]


@paused_gc()
def choose_options(
    step: Graph, layers: Sequence[LayerOptions], environment: Environment
) -> ChosenOptions:
    """Return the cheapest options for the layers of a step; cached for steps with the same key."""
    with stage("parameter layouts"):
        first = next(iter(layers[0].options))
        step, layers = _with_options(step, layers, [first] * len(layers))
        key = (step.key, tuple([layer.signature for layer in layers]), environment)
        found = _chosen.get(key)
        if found is None:
            found = store_bounded(
                _chosen, key, _choose(step, layers, environment), MAX_CACHED_CHOICES
            )
        return found


def clear_option_caches() -> None:
    """Clear the caches of earlier steps and blocks, for measurements of planning."""
    _chosen.clear()
    _block_seconds.clear()
    decisions_of.cache_clear()


_chosen: dict[Hashable, ChosenOptions] = {}


def _choose(step: Graph, layers: Sequence[LayerOptions], environment: Environment) -> ChosenOptions:
    """Return the options for an uncached step whose layers have their first option."""
    step = simplify(step)
    plan = PlanSeconds(step, environment)
    names = list(layers[0].options)
    first, layouts = plan.placement({})
    seconds = {names[0]: first}
    for name in names[1:]:
        seconds[name] = _whole_seconds(plan, layers, [name] * len(layers))
    best = min(names, key=seconds.__getitem__)
    choice, seconds["auto"] = [best] * len(layers), seconds[best]
    path = _cheapest_path(_blocks(step, layers, layouts, environment), names)
    if len(set(path)) > 1:
        along_path = _whole_seconds(plan, layers, path)
        if along_path < WORTH * seconds["auto"]:
            choice, seconds["auto"] = path, along_path
    return ChosenOptions(tuple(choice), seconds)


def _with_options(
    step: Graph, layers: Sequence[LayerOptions], choice: Sequence[str]
) -> tuple[Graph, list[LayerOptions]]:
    """Return the step and its layers with the parameters in the layouts of one option per layer."""
    new: dict[Node, Node] = {}
    for layer, name in zip(layers, choice, strict=True):
        for leaf, layout in layer.layouts(name):
            new[leaf] = variable_leaf(leaf.shape, leaf.dtype, layout, None)
    changed = [
        replace(layer, leaves=tuple([new[leaf] for leaf in layer.leaves])) for layer in layers
    ]
    return step.substituted(new), changed


def _whole_seconds(
    plan: PlanSeconds, layers: Sequence[LayerOptions], choice: Sequence[str]
) -> float:
    """Return the predicted seconds of a step with one option per layer."""
    pairs = zip(layers, choice, strict=True)
    return plan.seconds({x: y for layer, name in pairs for x, y in layer.layouts(name)})


# the cheapest path ------------------------------------------------------------------------------


def _cheapest_path(blocks: Sequence[_Block], options: Sequence[str]) -> list[str]:
    """Return the option of each block on the cheapest path through the layouts at the borders."""
    best = dict.fromkeys(BORDERS, 0.0)
    steps: list[dict[str, tuple[str, str]]] = []  # border → the previous border and the option
    for block in blocks:
        reached: dict[str, float] = {}
        taken: dict[str, tuple[str, str]] = {}
        for left, option, right in product(BORDERS, options, BORDERS):
            total = best[left] + block.seconds(left, option, right)
            if right not in reached or total < reached[right]:
                reached[right], taken[right] = total, (left, option)
        best = reached
        steps.append(taken)
    border = min(best, key=best.__getitem__)
    path: list[str] = []
    for taken in reversed(steps):
        border, option = taken[border]
        path.append(option)
    return path[::-1]


# blocks -----------------------------------------------------------------------------------------


@final
@dataclass
class _Block:
    """The operations of one layer, as a graph whose leaves at the borders have no layout yet.

    `own` are the positions of the layer's parameters that the block reads; `left` and `right` are
    the leaves for values that the previous and the next layer compute or read. `known` caches the
    costs of all blocks of this form, by choice and by the layouts of all these leaves.
    """

    graph: Graph
    layer: LayerOptions
    own: list[int]
    left: list[Node]
    right: list[Node]
    environment: Environment
    known: dict[Hashable, float] = field(default_factory=dict)

    @cached_property
    def signature(self) -> Hashable:
        """Equal for blocks that have the same costs."""
        number = {leaf: i for i, leaf in enumerate(self.graph.nodes)}
        own = tuple([number[self.layer.leaves[i]] for i in self.own])
        borders = [tuple([number[leaf] for leaf in side]) for side in (self.left, self.right)]
        return (
            self.graph.key,
            own,
            tuple(self.own),
            *borders,
            self.layer.signature,
            self.environment,
        )

    def seconds(self, left: str, option: str, right: str) -> float:
        """Return the predicted seconds with this option and these layouts at the borders."""
        chosen = (left, option, right)
        if chosen not in self.known:
            self.known[chosen] = self._planned_seconds(left, option, right)
        return self.known[chosen]

    def _planned_seconds(self, left: str, option: str, right: str) -> float:
        """Return these seconds, predicted once for all choices with the same layouts."""
        layouts = {leaf: self._bordering(leaf.shape, left) for leaf in self.left}
        layouts |= {leaf: self._bordering(leaf.shape, right) for leaf in self.right}
        for i in self.own:
            layouts[self.layer.leaves[i]] = self.layer.options[option][i]
        key = tuple(layouts.values())
        if key not in self.known:
            self.known[key] = self.plan.seconds(layouts)
        return self.known[key]

    @cached_property
    def plan(self) -> PlanSeconds:
        """The predicted seconds by layouts."""
        return PlanSeconds(self.graph, self.environment)

    def _bordering(self, shape: Shape, border: str) -> Layout:
        """Return the layout of an array at a border; replicated if the array is too short to
        split."""
        mesh = self.environment.mesh
        dim = {"rows": 0, "columns": _channel_dimension(len(shape))}.get(border)
        if dim is None or shape[dim] < mesh.size or (border == "columns" and dim == 0):
            return self.environment.whole(shape, shared=True)
        return Layout.even(shape, mesh, dim)


def _channel_dimension(ndim: int) -> int:
    """Return the dimension of the channels or units of activations: images (N, channels, *space),
    others (N, …, units)."""
    return 1 if ndim > 3 else ndim - 1


_block_seconds: dict[Hashable, dict[Hashable, float]] = {}


def _blocks(
    step: Graph,
    layers: Sequence[LayerOptions],
    layouts: Mapping[Node, Layout | None],
    environment: Environment,
) -> list[_Block]:
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
        cut = _Cut(number, owner, layouts, environment)
        block = cut.block(step, members[number], layer, users)
        known = _block_seconds.get(block.signature)
        block.known = (
            store_bounded(_block_seconds, block.signature, {}, MAX_CACHED_CHOICES)
            if known is None
            else known
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
    number = {leaf: i for i, layer in enumerate(layers) for leaf in layer.leaves}
    needs: dict[Node, int] = {}
    for node in step.nodes:
        needs[node] = max([number.get(node, -1), *[needs[source] for source in node.inputs]])
    last_update = dict.fromkeys(step.nodes, -1)
    for output, target in step.outputs_and_targets:
        if target in number:
            last_update[output] = max(last_update[output], number[target])
    for node in reversed(step.nodes):
        for source in node.inputs:
            last_update[source] = max(last_update[source], last_update[node])
    owner: dict[Node, int] = {}
    earliest: dict[Node, int] = {}  # for parameter-free nodes: the first reader's layer
    for node in reversed(step.nodes):
        if node.is_leaf_or_constant:
            continue
        direct = max([number.get(source, -1) for source in node.inputs], default=-1)
        if needs[node] < 0:
            owner[node] = max(0, earliest.get(node, 0))
        else:
            owner[node] = layer_of(direct, needs[node], last_update[node])
        for source in node.inputs:
            earliest[source] = min(owner[node], earliest.get(source, owner[node]))
    return owner


@final
@dataclass
class _Cut:
    """The state of cutting one block out of a step."""

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
    ) -> _Block:
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
        own = [i for i, leaf in enumerate(layer.leaves) if leaf in present]
        return _Block(graph, layer, own, self.sides[-1], self.sides[1], self.environment)

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
            layout = self.environment.whole(node.shape, shared=node.size > 1)
        return input_leaf(node.shape, node.dtype, layout, None)
