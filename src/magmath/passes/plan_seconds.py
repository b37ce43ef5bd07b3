"""Plan seconds: predicts the seconds of a graph's plan for any layouts of its leaves, without
building the plan.

A search over layouts needs the costs of many plans of one graph. This module places the nodes as
`place` does (`passes/placing.py`) and subtracts what `fold_epilogues` saves
(`passes/epilogue_savings.py`), but builds no nodes. The result is that of the passes, with one
exception: products that are computed in panels are estimated without epilogues.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import final

from magmath.core.stage_times import count
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.passes.environment import Environment
from magmath.passes.epilogue_savings import EpilogueGroup
from magmath.passes.fold_epilogues import epilogue_groups
from magmath.passes.layout_hints import HintSource, hint_sources
from magmath.passes.placing import PlacedValue, Placing
from magmath.passes.plan_decisions import ArrayState, PlacementList, decisions_of


@final
class PlanSeconds:
    """The predicted seconds of one graph's plan, as a function of the layouts of its leaves."""

    def __init__(self, graph: Graph, environment: Environment) -> None:
        self.graph = graph
        self.decisions = decisions_of(environment)
        leaves = graph.leaves
        hints = hint_sources(graph, environment.mesh)
        self._sources = list(dict.fromkeys((None, *hints.values(), *graph.targets)))
        hint_positions = {source: i for i, source in enumerate(self._sources)}
        self._placements = PlacementList.of(
            graph.nodes,
            leaves,
            {node: hint_positions[source] for node, source in hints.items()},
            self.decisions,
        )
        position = self._placements.position
        self._outputs = [(position[x], hint_positions[t]) for x, t in graph.outputs_and_targets]
        self._emitted = [(position[x], environment.replicated(x.shape)) for x in graph.emitted]
        self._groups = [
            EpilogueGroup.of(nodes, self._placements, self.decisions)
            for nodes in epilogue_groups(graph)
        ]

    def seconds(self, layouts: Mapping[Node, Layout]) -> float:
        """Return the predicted seconds with these layouts of leaves; other leaves have their own,
        or are replicated."""
        return self._evaluate(layouts)[0]

    def placement(self, layouts: Mapping[Node, Layout]) -> tuple[float, Mapping[Node, Layout]]:
        """Return the seconds, and the layouts of all nodes in this plan."""
        seconds, values = self._evaluate(layouts)
        position = self._placements.position
        return seconds, {node: values[i].state.layout for node, i in position.items()}

    def _evaluate(self, layouts: Mapping[Node, Layout]) -> tuple[float, list[PlacedValue]]:
        """Evaluate a plan; return its seconds, and the values at its end."""
        count("evaluated nodes", len(self.graph.nodes))
        decisions, placing = self.decisions, Placing(self.decisions)
        values = [PlacedValue(decisions.of_leaf(x, layouts.get(x))) for x in self.graph.leaves]
        hints = [self._hint_state(source, layouts) for source in self._sources]
        chosen = placing.run(self._placements, values, hints).decisions
        for i, hint in self._outputs:
            placing.deliver(values[i], hints[hint])
        for i, whole in self._emitted:
            placing.move_to(values[i], whole)
        saved, merged = 0.0, dict[Hashable, float]()
        for group in self._groups:
            savings = group.savings(chosen)
            if savings is not None:
                saved += savings.seconds
                for name, operand, seconds in savings.merged:
                    merged[name, group.operands[operand]] = seconds
        return placing.seconds - saved + sum(merged.values()), values

    def _hint_state(
        self, source: HintSource | None, layouts: Mapping[Node, Layout]
    ) -> ArrayState | None:
        if isinstance(source, Node):
            source = layouts.get(source) or source.layout
        return None if source is None else self.decisions.state(source, 0, True)
