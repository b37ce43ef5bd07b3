"""Epilogue savings: the seconds that `fold_epilogues` saves on groups of nodes whose layouts are
decided.

The pass itself runs on a small graph for each form of a group, once for equal decisions about its
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, final

from magmath.core.bounded_memo import store_bounded
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.passes.environment import Environment
from magmath.passes.fold_epilogues import fold_epilogues
from magmath.passes.node_cost import node_seconds
from magmath.passes.plan_decisions import (
    MAX_CACHED_DECISIONS,
    Decision,
    Decisions,
    NodeKind,
    PlacementList,
)
from magmath.passes.simplify import merge_equal


@final
class Savings(NamedTuple):
    """The seconds that `fold_epilogues` saves on a group, and the nodes that it adds, which groups
    share: the name, the operand (by its position in the group) and the seconds of each."""

    seconds: float
    merged: Sequence[tuple[str, int, float]]


@final
@dataclass(frozen=True, eq=False)
class GroupForm:
    """A form of epilogue groups: the kinds of its nodes, and their operands. These are positions of
    nodes of the group, or, counted from -1 downwards, of others.

    `savings` are those of the groups of this form so far, by the decisions about their nodes.
    """

    kinds: tuple[NodeKind, ...]
    operands: tuple[tuple[int, ...], ...]
    environment: Environment
    savings: dict[tuple[Decision | None, ...], Savings | None] = field(default_factory=dict)

    def savings_with(self, decisions: tuple[Decision | None, ...]) -> Savings | None:
        """Return the savings from `fold_epilogues` on the group with these decisions; None for a
        group with a decomposed node."""
        decided = [decision for decision in decisions if decision is not None]
        if len(decided) < len(decisions):
            return None
        graph, operand = self._graph_with(decided)
        nodes = set(graph.nodes)
        saved = sum([decision.seconds for decision in decided])
        merged = []
        for node in merge_equal(fold_epilogues(graph)).nodes:
            seconds = node_seconds(node, self.environment)
            is_added = node.shape == () and not node.is_leaf and node not in nodes
            if is_added and node.inputs[0] in operand:
                merged.append((node.name, operand[node.inputs[0]], seconds))
            else:
                saved -= seconds
        return Savings(saved, merged)

    def _graph_with(self, decisions: Sequence[Decision]) -> tuple[Graph, dict[Node, int]]:
        """Return the group with these decisions as a graph of its own, and its leaves that are
        operands from outside of the group, with their positions.

        A node of the group that another one reads in another layout is a leaf, too.
        """
        leaves: dict[tuple[int, Layout], Node] = {}
        nodes: list[Node] = []
        read: set[Node] = set()
        for kind, operands, decision in zip(self.kinds, self.operands, decisions, strict=True):
            inputs: list[Node] = []
            for i, operand in enumerate(operands):
                is_copied = decision.copy_layouts and decision.copy_layouts[i]
                if operand >= 0 and not is_copied:
                    inputs.append(nodes[operand])
                else:
                    key = operand, decision.inputs[i]
                    if key not in leaves:
                        leaves[key] = kind.node.inputs[i].replace((), decision.inputs[i])
                    inputs.append(leaves[key])
            read.update(inputs)
            nodes.append(kind.node.replace(tuple(inputs), decision.state.layout))
        graph = Graph(tuple([node for node in nodes if node not in read]))
        return graph, {leaf: -1 - operand for (operand, _), leaf in leaves.items() if operand < 0}


@lru_cache(maxsize=1024)
def _form(
    kinds: tuple[NodeKind, ...], operands: tuple[tuple[int, ...], ...], decisions: Decisions
) -> GroupForm:
    return GroupForm(kinds, operands, decisions.environment)


@final
@dataclass(frozen=True)
class EpilogueGroup:
    """An epilogue group of a graph: its form, and the positions of its nodes and of its operands in
    a list of values."""

    form: GroupForm
    nodes: tuple[int, ...]
    operands: tuple[int, ...]

    @staticmethod
    def of(nodes: Sequence[Node], placements: PlacementList, decisions: Decisions) -> EpilogueGroup:
        """Return the group of these nodes; constants that they read belong to it."""
        constants = [x for node in nodes for x in node.inputs if x.name == "constant"]
        nodes = list(dict.fromkeys((*constants, *nodes)))
        position = {node: i for i, node in enumerate(nodes)}
        outside: dict[Node, int] = {}
        operands = [
            tuple([position[x] if x in position else outside.setdefault(x, -1 - len(outside))
                   for x in node.inputs])
            for node in nodes
        ]  # fmt: skip
        return EpilogueGroup(
            _form(tuple([decisions.kind(node) for node in nodes]), tuple(operands), decisions),
            tuple([placements.position[node] for node in nodes]),
            tuple([placements.position[x] for x in outside]),
        )

    def savings(self, chosen: Sequence[Decision | None]) -> Savings | None:
        """Return the savings with the decisions of a plan."""
        key = tuple([chosen[i] for i in self.nodes])
        cached = self.form.savings
        if key not in cached:
            store_bounded(cached, key, self.form.savings_with(key), MAX_CACHED_DECISIONS)
        return cached[key]
