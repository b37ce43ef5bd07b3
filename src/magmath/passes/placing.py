"""Placing: decides about the nodes of a graph, one after the other, and predicts their seconds.

`place` builds the placed graph by the decisions (`passes/plan_decisions.py`); `PlanSeconds` reads
the seconds alone. An operation with decompositions is placed in each of them, and the cheapest is
chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, final

from magmath.graph import Node
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout
from magmath.passes.default_reduction import default_reduction
from magmath.passes.node_cost import call_seconds
from magmath.passes.plan_decisions import ArrayState, Decision, Decisions, PlacementList


@final
class PlacedValue:
    """A placed array: its state, and the copies of it in other layouts."""

    __slots__ = ("copies", "state")

    def __init__(self, state: ArrayState) -> None:
        self.state = state
        self.copies: Mapping[Layout, PlacedValue] = _NO_COPIES


_NO_COPIES: Mapping[Layout, PlacedValue] = {}


@final
class ChosenForm(NamedTuple):
    """How a node that has decompositions is computed: by itself, as the decision about it says, or
    by one of its decompositions, with the choices about the nodes of this."""

    decision: Decision
    decomposition: PlacementList | None = None
    choices: Choices | None = None


@final
class Choices(NamedTuple):
    """What was chosen for the nodes of a graph, by their positions in the list of values.

    decisions  the decisions, None for leaves, for moves, and for nodes with decompositions
    forms      the forms of nodes with decompositions
    """

    decisions: list[Decision | None]
    forms: dict[int, ChosenForm]


@final
class _Change(NamedTuple):
    """A value that got another copy, with its state and its copies before."""

    value: PlacedValue
    state: ArrayState
    copies: Mapping[Layout, PlacedValue]


@final
class Placing:
    """The placing of one graph: its predicted seconds so far, and what decompositions are compared
    by: the bytes of moved operands beyond those of the environment, then the cost."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self.seconds, self._cost, self._moved_bytes = 0.0, 0, 0
        self._journal: list[_Change] = []  # since the beginning, to undo a trial

    def run(
        self,
        placements: PlacementList,
        values: list[PlacedValue],
        hints: Sequence[ArrayState | None],
    ) -> Choices:
        """Place nodes: append their values to those of the nodes that they read; return what was
        chosen for all values."""
        decisions = self._decisions
        values += [PlacedValue(decisions.of_leaf(leaf, None)) for leaf in placements.leaves]
        chosen: list[Decision | None] = [None] * len(values)
        forms: dict[int, ChosenForm] = {}
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
                    value, form = self._apply_cheapest(decision, inputs, hints[hint])
                    forms[len(values)], decision = form, None
            values.append(value)
            chosen.append(decision)
        return Choices(chosen, forms)

    def _apply(
        self, decision: Decision, values: Sequence[PlacedValue], operands: Iterable[int]
    ) -> PlacedValue:
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
        return PlacedValue(decision.state)

    def _place_move(self, node: Node, inputs: Sequence[PlacedValue]) -> PlacedValue:
        """Place a redistribution, or the operand of a second computation; return its value."""
        if node.name == "redistribute":
            return self.move_to(inputs[0], layout_of(node))
        x = self._complete_reduction(inputs[0])
        layouts = [x.state.layout, *[after.state.layout for after in inputs[1:]]]
        environment = self._decisions.environment
        self.seconds += call_seconds(node, layouts, x.state.layout, environment)
        return PlacedValue(self._decisions.state(x.state.layout, node.dtype.itemsize, True))

    def move_to(self, value: PlacedValue, layout: Layout) -> PlacedValue:
        """Return a value in a layout, by existing copies if there are some."""
        have = value.state.layout
        if have is not layout:
            for copy_layout in self._decisions.costs.copy_layouts(have, layout):
                value = self._copy(value, copy_layout)
        return value

    def deliver(self, value: PlacedValue, target: ArrayState | None) -> None:
        """Move an output to the layout of its target; complete its reduction if there is none."""
        if target is None:
            self._complete_reduction(value)
        elif value.state.layout is not target.layout:
            state = self.move_to(value, target.layout).state
            if state.layout is not target.layout:
                self.seconds += self._decisions.move(state, target.layout)[0]

    def _complete_reduction(self, value: PlacedValue) -> PlacedValue:
        """Return a value without pending reductions."""
        layout = value.state.layout
        return self.move_to(value, default_reduction(layout)) if layout.is_partial else value

    def _copy(self, value: PlacedValue, layout: Layout) -> PlacedValue:
        copy = value.copies.get(layout)
        if copy is None:
            seconds, state = self._decisions.move(value.state, layout)
            self.seconds += seconds
            copy = PlacedValue(state)
            self._journal.append(_Change(value, value.state, value.copies))
            value.copies = {**value.copies, layout: copy}
            value.state = self._decisions.with_copy(value.state, layout)
        return copy

    # decompositions -----------------------------------------------------------------------------

    def _apply_cheapest(
        self, decision: Decision, inputs: list[PlacedValue], hint: ArrayState | None
    ) -> tuple[PlacedValue, ChosenForm]:
        """Place a node as itself or as its cheapest decomposition; return its value, and which."""
        before, moved_bytes = (self.seconds, self._cost, len(self._journal)), self._moved_bytes
        limit = self._decisions.environment.max_moved_bytes
        costs = []
        decompositions = (None, *decision.decompositions)
        for decomposition in decompositions:
            self._moved_bytes = 0  # those of the trial are compared
            self._apply_form(decision, decomposition, inputs, hint)
            costs.append((max(0, self._moved_bytes - limit), self._cost))
            self.seconds, self._cost, length = before
            while len(self._journal) > length:
                value, state, copies = self._journal.pop()
                value.state, value.copies = state, copies
        self._moved_bytes = moved_bytes
        best = costs.index(min(costs))
        return self._apply_form(decision, decompositions[best], inputs, hint)

    def _apply_form(
        self,
        decision: Decision,
        decomposition: PlacementList | None,
        inputs: list[PlacedValue],
        hint: ArrayState | None,
    ) -> tuple[PlacedValue, ChosenForm]:
        """Place a node as itself (None) or as one of its decompositions; return its value, and how
        it is computed."""
        if decomposition is None:
            return self._apply(decision, inputs, range(len(inputs))), ChosenForm(decision)
        values = list(inputs)
        choices = self.run(decomposition, values, (None, hint))
        return values[-1], ChosenForm(decision, decomposition, choices)
