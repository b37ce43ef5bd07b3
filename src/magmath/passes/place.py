"""Place: chooses a layout for every node and inserts the redistributions that the layouts need.

The candidates of a node (`passes/candidates.py`) have costs (`passes/candidate_cost.py`). The pass
chooses, node by node, the cheapest candidate that fits the memory. An operation with decompositions
is placed in each of them, and the cheapest is chosen (`passes/placing.py`). This module builds the
graph as it was chosen. The value of the result does not depend on the layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from magmath.graph import Graph, Node
from magmath.graph.operation import Line
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout
from magmath.ops.product.panel_products import panels_of
from magmath.ops.redistribute import redistribute
from magmath.passes.candidate_cost import CandidateCost, CostCache, NodeCosts
from magmath.passes.candidates import is_contraction
from magmath.passes.default_reduction import default_reduction
from magmath.passes.environment import Environment
from magmath.passes.layout_hints import layout_hints
from magmath.passes.placing import Choices, PlacedValue, Placing
from magmath.passes.plan_decisions import ArrayState, Decisions, PlacementList, decisions_of


def place(graph: Graph, environment: Environment) -> Graph:
    """Return the graph with a layout on every node; outputs with targets end in their target's
    layout."""
    return place_with_nodes(graph, environment)[0]


def place_with_nodes(graph: Graph, environment: Environment) -> tuple[Graph, Mapping[Node, Node]]:
    """Return the placed graph, and for each node of the given graph its placed node."""
    decisions = decisions_of(environment)
    placements, values, hints = _placements_of(graph, decisions)
    choices = Placing(decisions).run(placements, values, hints)
    builder = _Builder(decisions.costs, _lines_of_users(graph))
    placed = [builder.leaf_with_layout(leaf) for leaf in graph.leaves]
    builder.build(placements, placed, choices)
    new = {node: placed[i] for node, i in placements.position.items()}
    outputs = tuple(
        builder.deliver(new[node], target.layout)
        if target is not None and target.layout is not None
        else builder.complete_reduction(new[node])
        for node, target in graph.outputs_and_targets
    )
    emitted = tuple(
        builder.move_to(new[node], environment.replicated(node.shape)) for node in graph.emitted
    )
    return Graph(outputs, graph.targets, emitted), new


def _placements_of(
    graph: Graph, decisions: Decisions
) -> tuple[PlacementList, list[PlacedValue], list[ArrayState | None]]:
    """Return the placements of a graph, the values of its leaves, and its layout hints."""
    hints = layout_hints(graph, decisions.environment.mesh)
    hint_positions = {node: i for i, node in enumerate(hints, 1)}
    placements = PlacementList.of(graph.nodes, graph.leaves, hint_positions, decisions)
    values = [PlacedValue(decisions.of_leaf(leaf, None)) for leaf in graph.leaves]
    states = [decisions.state(layout, 0, True) for layout in hints.values()]
    return placements, values, [None, *states]


def _lines_of_users(graph: Graph) -> dict[Node, Line]:
    """Return, for nodes without a line of the user's code, the line of a node that uses them."""
    lines: dict[Node, Line] = {}
    for node in reversed(graph.nodes):
        line = lines.get(node) if node.line is None else node.line
        for source in node.inputs:
            if source.line is None and line is not None and not source.is_leaf:
                lines.setdefault(source, line)
    return lines


@final
class _Builder:
    """Builds placed nodes, as it was chosen; stores the copies of each so far.

    lines  of nodes of the graph that have none
    """

    def __init__(self, costs: CostCache, lines: Mapping[Node, Line]) -> None:
        self._costs = costs
        self._lines = lines
        self._copies: dict[Node, dict[Layout, Node]] = {}

    def build(
        self, placements: PlacementList, placed: list[Node], choices: Choices, line: Line = None
    ) -> None:
        """Append the placed nodes to those of the nodes that are read.

        `line`: the user's line of nodes that have none, in a decomposition.
        """
        placed += [self.leaf_with_layout(leaf) for leaf in placements.leaves]
        for node, (_, operands, _) in zip(placements.nodes, placements.placements, strict=True):
            inputs = [placed[i] for i in operands]
            own_line = self._lines.get(node, line) if node.line is None else node.line
            placed.append(self._placed(node, inputs, choices, len(placed), own_line))

    def leaf_with_layout(self, leaf: Node) -> Node:
        """Return a leaf with its layout, or replicated."""
        if leaf.layout is not None:
            return leaf
        return leaf.replace((), self._costs.environment.replicated(leaf.shape))

    def _placed(
        self, node: Node, inputs: list[Node], choices: Choices, position: int, line: Line
    ) -> Node:
        """Return a node on placed operands, as it was chosen for its position."""
        if node.name == "redistribute":
            return self.move_to(inputs[0], layout_of(node), line)
        if node.name == "recompute":
            x = self.complete_reduction(inputs[0])
            return node.replace((x, *inputs[1:]), x.layout, line)
        decision = choices.decisions[position]
        if decision is None:
            decision, decomposition, inner_choices = choices.forms[position]
            if decomposition is not None and inner_choices is not None:
                self.build(decomposition, inputs, inner_choices, line)
                return inputs[-1]
        if decision.copy_layouts is not None:
            for i, layouts in enumerate(decision.copy_layouts):
                for layout in layouts:
                    inputs[i] = self._copy(inputs[i], layout, line)
        return node.replace(tuple(inputs), decision.state.layout, line)

    def move_to(self, node: Node, layout: Layout, line: Line = None) -> Node:
        """Return `node` in `layout`, by existing copies if there are some."""
        have = layout_of(node)
        if have is not layout:
            for copy_layout in self._costs.copy_layouts(have, layout):
                node = self._copy(node, copy_layout, line)
        return node

    def _copy(self, node: Node, layout: Layout, line: Line) -> Node:
        copies = self._copies.setdefault(node, {})
        if layout not in copies:
            copies[layout] = redistribute(node, layout, line)
        return copies[layout]

    def deliver(self, node: Node, layout: Layout) -> Node:
        """Return `node` in exactly this layout: copied out of a shared copy if the layout is not
        shared."""
        copy = self.move_to(node, layout)
        return copy if copy.layout == layout else redistribute(copy, layout)

    def complete_reduction(self, node: Node) -> Node:
        """Return `node` without pending reductions."""
        layout = layout_of(node)
        return self.move_to(node, default_reduction(layout)) if layout.is_partial else node


@final
@dataclass(frozen=True)
class NodeCandidates:
    """The candidates of `place` at a contraction or a factorization, the chosen one first.

    `costs` computes what else a candidate needs: transfers between workers, and memory.
    `panels` is the number of panels that are summed one after the other, if the whole would need
    too much memory at a time; 0 if other operations compute the node.
    """

    costs: NodeCosts
    ranked: list[CandidateCost]
    panels: int


def node_candidates(graph: Graph, environment: Environment) -> list[NodeCandidates]:
    """Return the candidates of `place` at each contraction and each factorization of a graph."""
    decisions = decisions_of(environment)
    placements, values, hints = _placements_of(graph, decisions)
    placing = Placing(decisions)
    candidates = []
    for node, placement in zip(placements.nodes, placements.placements, strict=True):
        kind, operands, hint = placement
        states, hint_state, position = [values[i].state for i in operands], hints[hint], len(values)
        choices = placing.run(replace(placements, placements=[placement]), values, hints)
        if node.operation.uses_lapack or is_contraction(node.index_notation):
            hinted = None if hint_state is None else hint_state.layout
            costs = NodeCosts(
                decisions.costs, node, tuple([state.operand for state in states]), hinted
            )
            form = choices.forms.get(position)
            decomposition = None if form is None else form.decomposition
            root = kind.node if decomposition is None else decomposition.nodes[-1]
            candidates.append(NodeCandidates(costs, costs.ranked(), panels_of(kind.node, root)))
    return candidates
