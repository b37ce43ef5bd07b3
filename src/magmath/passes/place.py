"""Place: chooses a layout for every node and inserts the redistributions that the layouts need.

The candidates of a node (`passes/candidates.py`) have costs (`passes/candidate_cost.py`). The pass
chooses, node by node, the cheapest candidate that fits the memory. An operation with decompositions
is placed in each of them, and the cheapest is chosen. The value of the result does not depend on
the layouts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from magmath.graph import Graph, Node
from magmath.graph.operation import Line
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout
from magmath.ops.product.panel_products import panels_of
from magmath.ops.redistribute import redistribute
from magmath.passes.aliasing import is_materialized
from magmath.passes.candidate_cost import (
    CandidateCost,
    CostCache,
    NodeCosts,
    OperandState,
    cost_cache_of,
)
from magmath.passes.candidates import is_contraction
from magmath.passes.default_reduction import default_reduction
from magmath.passes.environment import Environment
from magmath.passes.layout_hints import layout_hints


def place(graph: Graph, environment: Environment) -> Graph:
    """Return the graph with a layout on every node; outputs with targets end in their target's
    layout."""
    return place_with_nodes(graph, environment)[0]


def place_with_nodes(graph: Graph, environment: Environment) -> tuple[Graph, Mapping[Node, Node]]:
    """Return the placed graph, and for each node of the given graph its placed node."""
    hints = layout_hints(graph, environment.mesh)
    placing = _Placing(cost_cache_of(environment), hints, lines=_lines_of_users(graph))
    for node in graph.nodes:
        placing.add(node)
    outputs = tuple(
        placing.deliver(placing.new[node], target.layout)
        if target is not None and target.layout is not None
        else placing.complete_reduction(placing.new[node])
        for node, target in graph.outputs_and_targets
    )
    emitted = tuple(
        placing.move_to(placing.new[node], environment.replicated(node.shape))
        for node in graph.emitted
    )
    return Graph(outputs, graph.targets, emitted), placing.new


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
    placing = _Placing(cost_cache_of(environment), layout_hints(graph, environment.mesh))
    candidates = []
    for node in graph.nodes:
        shown = node.operation.uses_lapack or is_contraction(node.index_notation)
        costs = placing.node_costs(node) if shown else None
        ranked = [] if costs is None else costs.ranked()
        placing.add(node)
        if costs is not None:
            panels = panels_of(node, placing.decomposed.get(node, node))
            candidates.append(NodeCandidates(costs, ranked, panels))
    return candidates


Copies = Mapping[Layout, Node]
NO_COPIES: Copies = {}


@final
@dataclass
class _Placing:
    """The state of one pass: the placed node of each node, and the copies so far."""

    costs: CostCache
    hints: Mapping[Node, Layout]
    new: ChainMap[Node, Node] = field(default_factory=ChainMap)
    copies: ChainMap[Node, Copies] = field(default_factory=ChainMap)
    cost: int = 0  # of all placed nodes, in units of RESOLUTION
    decomposed: dict[Node, Node] = field(default_factory=dict)  # nodes → chosen decompositions
    lines: Mapping[Node, Line] = field(default_factory=dict)  # of nodes that have none
    line: Line = None  # user's line of the node being decomposed, for other nodes without one
    moved_bytes: int = 0  # maximum bytes that an operation needs for moved operands

    @property
    def environment(self) -> Environment:
        """The environment of the costs."""
        return self.costs.environment

    def add(self, node: Node) -> None:
        """Place a node whose inputs are placed."""
        if node.is_leaf:
            self.new[node] = self._leaf_with_layout(node)
        elif node.name == "redistribute":
            x = self.new[node.inputs[0]]
            self.new[node] = self.move_to(x, layout_of(node), self._line_of(node))
        elif node.name == "recompute":
            x, *after = (self.new[source] for source in node.inputs)
            x = self.complete_reduction(x)
            self.new[node] = node.replace((x, *after), x.layout, self._line_of(node))
        else:
            self._add_cheapest_form(node)

    def _add_cheapest_form(self, node: Node) -> None:
        """Place a node itself, or the cheapest of its decompositions."""
        layouts = [layout_of(self.new[source]) for source in node.inputs]
        decompositions = (
            [] if self.environment.deterministic else node.operation.decompositions(node, layouts)
        )
        if not decompositions:
            self.new[node] = self._in_cheapest_layouts(node)
            return
        trials = [(graph, self._trial(node, graph)) for graph in (node, *decompositions)]
        self.decomposed[node], best = min(
            trials, key=lambda trial: (trial[1].excess, trial[1].cost)
        )
        self.new.update(best.new.maps[0])
        self.copies.update(best.copies.maps[0])
        self.cost = best.cost
        self.moved_bytes = max(self.moved_bytes, best.moved_bytes)

    @property
    def excess(self) -> int:
        """Bytes by which moved operands exceed those of the environment."""
        return max(0, self.moved_bytes - self.environment.max_moved_bytes)

    def _trial(self, node: Node, decomposition: Node) -> _Placing:
        """Return the state after `node` has been placed as `decomposition`, or as itself."""
        hints = self.hints
        if node in hints:
            hints = {**hints, decomposition: hints[node]}
        new, copies = self.new.new_child(), self.copies.new_child()
        trial = _Placing(
            self.costs, hints, new, copies, self.cost,
            lines=self.lines, line=self._line_of(node),
        )  # fmt: skip
        if decomposition is node:
            new[node] = trial._in_cheapest_layouts(node)
        else:
            trial._add_with_inputs(decomposition)
            new[node] = new[decomposition]
        return trial

    def _line_of(self, node: Node) -> Line:
        return self.lines.get(node, self.line) if node.line is None else node.line

    def _add_with_inputs(self, node: Node) -> None:
        """Place a node after all nodes that it needs."""
        if node not in self.new:
            for source in node.inputs:
                self._add_with_inputs(source)
            self.add(node)

    def _leaf_with_layout(self, node: Node) -> Node:
        if node.layout is not None:
            return node
        return node.replace((), self.environment.replicated(node.shape))

    def node_costs(self, node: Node) -> NodeCosts:
        """Return the costs of the candidates of a node with placed operands."""
        operands = self._operands([self.new[source] for source in node.inputs])
        return NodeCosts(self.costs, node, operands, self.hints.get(node))

    def _operands(self, nodes: Sequence[Node]) -> tuple[OperandState, ...]:
        """Return the states of placed nodes as operands."""
        return tuple(
            [
                OperandState(
                    layout_of(node),
                    node.dtype.itemsize,
                    is_materialized(node),
                    tuple(self.copies.get(node, NO_COPIES)),
                )
                for node in nodes
            ]
        )

    def _in_cheapest_layouts(self, node: Node) -> Node:
        """Return a node with moved operands, in the layouts of its cheapest candidate."""
        operands = [self.new[source] for source in node.inputs]
        best, nbytes = self.costs.best(node, self._operands(operands), self.hints.get(node))
        self.cost += best.rounded_cost
        self.moved_bytes = max(self.moved_bytes, nbytes)
        line = self._line_of(node)
        moved = tuple(
            [
                self.move_to(operand, layout, line)
                for operand, layout in zip(operands, best.candidate.inputs, strict=True)
            ]
        )
        return node.replace(moved, best.candidate.output, line)

    def move_to(self, node: Node, layout: Layout, line: Line = None) -> Node:
        """Return `node` in `layout`, by existing copies if there are some."""
        have = layout_of(node)
        if have is not layout:
            for copy_layout in self.costs.copy_layouts(have, layout):
                node = self._copy(node, copy_layout, line)
        return node

    def _copy(self, node: Node, layout: Layout, line: Line) -> Node:
        copies = self.copies.get(node, NO_COPIES)
        if layout not in copies:  # a trial must not change the copies of other trials
            copies = self.copies[node] = {**copies, layout: redistribute(node, layout, line)}
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
