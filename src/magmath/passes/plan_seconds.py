"""Plan seconds: predicts the seconds of a graph's plan for any layouts of its leaves, without
building the plan.

A search over layouts needs the costs of many plans of one graph. This module makes the decisions of
`place` (`passes/plan_decisions.py`) and subtracts what `fold_epilogues` saves
(`passes/epilogue_savings.py`), but builds no nodes. The result is that of the passes, with one
exception: products that are computed in panels are estimated without epilogues.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, final

from magmath.core.stage_times import count
from magmath.graph import Graph, Node
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout
from magmath.passes.default_reduction import default_reduction
from magmath.passes.environment import Environment
from magmath.passes.epilogue_savings import EpilogueGroup
from magmath.passes.fold_epilogues import epilogue_groups
from magmath.passes.layout_hints import HintSource, hint_sources
from magmath.passes.node_cost import call_seconds
from magmath.passes.plan_decisions import ArrayState, Decision, Decisions, PlacementList, decisions_of


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

    def _evaluate(self, layouts: Mapping[Node, Layout]) -> tuple[float, list[_Value]]:
        """Evaluate a plan; return its seconds, and the values at its end."""
        count("evaluated nodes", len(self.graph.nodes))
        decisions, plan = self.decisions, _Plan(self.decisions)
        values = [_Value(decisions.of_leaf(x, layouts.get(x))) for x in self.graph.leaves]
        hints = [self._hint_state(source, layouts) for source in self._sources]
        chosen = plan.run(self._placements, values, hints)
        for i, hint in self._outputs:
            plan.deliver(values[i], hints[hint])
        for i, whole in self._emitted:
            plan.move_to(values[i], whole)
        saved, merged = 0.0, dict[Hashable, float]()
        for group in self._groups:
            savings = group.savings(chosen)
            if savings is not None:
                saved += savings.seconds
                for name, operand, seconds in savings.merged:
                    merged[name, group.operands[operand]] = seconds
        return plan.seconds - saved + sum(merged.values()), values

    def _hint_state(
        self, source: HintSource | None, layouts: Mapping[Node, Layout]
    ) -> ArrayState | None:
        if isinstance(source, Node):
            source = layouts.get(source) or source.layout
        return None if source is None else self.decisions.state(source, 0, True)


@final
class _Value:
    """A placed array in one plan: its state, and the copies of it in other layouts."""

    __slots__ = ("copies", "state")

    def __init__(self, state: ArrayState) -> None:
        self.state = state
        self.copies: Mapping[Layout, _Value] = _NO_COPIES


_NO_COPIES: Mapping[Layout, _Value] = {}


@final
class _Change(NamedTuple):
    """A value that got another copy, with its state and its copies before."""

    value: _Value
    state: ArrayState
    copies: Mapping[Layout, _Value]


@final
class _Plan:
    """One plan: its predicted seconds so far, and what decompositions are compared by."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self.seconds, self._cost, self._moved_bytes = 0.0, 0, 0
        self._journal: list[_Change] = []  # since the plan began, to undo a trial

    def run(
        self, placements: PlacementList, values: list[_Value], hints: Sequence[ArrayState | None]
    ) -> list[Decision | None]:
        """Place nodes: append their values to those of the nodes that they read; return the
        decisions about all values, None for those without."""
        decisions = self._decisions
        values += [_Value(decisions.of_leaf(leaf, None)) for leaf in placements.leaves]
        chosen: list[Decision | None] = [None] * len(values)
        for kind, operands, hint in placements.placements:
            decision: Decision | None = None
            if kind.is_move:
                value = self._place_move(kind.node, [values[i] for i in operands])
            else:
                key = (hints[hint], *[values[i].state for i in operands])
                decision = kind.decisions.get(key) or decisions.decision(kind, key)
                if not decision.decompositions:
                    value = self._apply(decision, values, operands)
                else:
                    inputs = [values[i] for i in operands]
                    value = self._apply_cheapest(decision, inputs, hints[hint])
                    decision = None
            values.append(value)
            chosen.append(decision)
        return chosen

    def _apply(
        self, decision: Decision, values: Sequence[_Value], operands: Iterable[int]
    ) -> _Value:
        """Place a node with these operands; return its value."""
        if decision.copy_layouts is not None:
            for i, layouts in zip(operands, decision.copy_layouts, strict=True):
                value = values[i]
                for layout in layouts:
                    value = self._copy(value, layout)
        self.seconds += decision.seconds
        self._cost += decision.cost
        if decision.moved_bytes > self._moved_bytes:
            self._moved_bytes = decision.moved_bytes
        return _Value(decision.state)

    def _place_move(self, node: Node, inputs: Sequence[_Value]) -> _Value:
        """Place a redistribution, or the operand of a second computation; return its value."""
        if node.name == "redistribute":
            return self.move_to(inputs[0], layout_of(node))
        x = self._complete_reduction(inputs[0])
        layouts = [x.state.layout, *[after.state.layout for after in inputs[1:]]]
        environment = self._decisions.environment
        self.seconds += call_seconds(node, layouts, x.state.layout, environment)
        return _Value(self._decisions.state(x.state.layout, node.dtype.itemsize, True))

    def move_to(self, value: _Value, layout: Layout) -> _Value:
        """Return a value in a layout, by existing copies if there are some."""
        have = value.state.layout
        if have is not layout:
            for copy_layout in self._decisions.costs.copy_layouts(have, layout):
                value = self._copy(value, copy_layout)
        return value

    def deliver(self, value: _Value, target: ArrayState | None) -> None:
        """Move an output to the layout of its target; complete its reduction if there is none."""
        if target is None:
            self._complete_reduction(value)
        elif value.state.layout is not target.layout:
            state = self.move_to(value, target.layout).state
            if state.layout is not target.layout:
                self.seconds += self._decisions.move(state, target.layout)[0]

    def _complete_reduction(self, value: _Value) -> _Value:
        """Return a value without pending reductions."""
        layout = value.state.layout
        return self.move_to(value, default_reduction(layout)) if layout.is_partial else value

    def _copy(self, value: _Value, layout: Layout) -> _Value:
        copy = value.copies.get(layout)
        if copy is None:
            seconds, state = self._decisions.move(value.state, layout)
            self.seconds += seconds
            copy = _Value(state)
            self._journal.append(_Change(value, value.state, value.copies))
            value.copies = {**value.copies, layout: copy}
            value.state = self._decisions.with_copy(value.state, layout)
        return copy

    # decompositions -----------------------------------------------------------------------------

    def _apply_cheapest(
        self, decision: Decision, inputs: list[_Value], hint: ArrayState | None
    ) -> _Value:
        """Place a node as itself or as its cheapest decomposition; return its value."""
        before = self.seconds, self._cost, self._moved_bytes, len(self._journal)
        costs = []
        forms = (None, *decision.decompositions)
        for form in forms:
            self._apply_form(form, decision, inputs, hint)
            limit = self._decisions.environment.max_moved_bytes
            costs.append((max(0, self._moved_bytes - limit), self._cost))
            self.seconds, self._cost, self._moved_bytes, length = before
            while len(self._journal) > length:
                value, state, copies = self._journal.pop()
                value.state, value.copies = state, copies
        best = costs.index(min(costs))
        return self._apply_form(forms[best], decision, inputs, hint)

    def _apply_form(
        self,
        decomposition: PlacementList | None,
        decision: Decision,
        inputs: list[_Value],
        hint: ArrayState | None,
    ) -> _Value:
        """Place a node as itself (None) or as one of its decompositions; return its value."""
        if decomposition is None:
            return self._apply(decision, inputs, range(len(inputs)))
        values = list(inputs)
        self.run(decomposition, values, (None, hint))
        return values[-1]
