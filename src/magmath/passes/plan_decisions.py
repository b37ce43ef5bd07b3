"""Decisions of the place pass about nodes, found by the states of their operands.

A decision about a node depends on its signature, the states of its operands, and the layout hint
of its result. A *state* is what decisions read of a placed array. States are interned, and nodes
with one signature are one *kind*, so a decision is found by the identities of a few objects, and
nodes that are equal in equal states have one decision, with one estimate of its cost: those of
repeated layers, and those of one layer in several searches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

from magmath.core.bounded_memo import store_bounded
from magmath.graph import Node
from magmath.graph.graph import topological_until
from magmath.graph.operation import NO_ATTRIBUTES, make_node, no_decomposition
from magmath.layout import Layout
from magmath.ops.leaves import INPUT
from magmath.passes.aliasing import is_materialized
from magmath.passes.candidate_cost import CostCache, OperandState, cost_cache_of
from magmath.passes.environment import Environment
from magmath.passes.node_cost import copy_seconds

MAX_CACHED_DECISIONS = 4096
"""Maximum number of states, of kinds, and of decisions about a kind."""


@final
class ArrayState:
    """What decisions read of a placed array; equal states are identical."""

    __slots__ = ("copied", "layout", "moves", "operand")

    def __init__(self, operand: OperandState) -> None:
        self.operand, self.layout = operand, operand.layout
        self.copied: dict[Layout, ArrayState] = {}
        """The states with one more copy, by its layout."""
        self.moves: dict[Layout, tuple[float, ArrayState]] = {}
        """The seconds of a copy in another layout, and its state."""


@final
@dataclass(frozen=True, eq=False, slots=True)
class Decision:
    """The decision about a node with operands in certain states.

    state           the state of the result
    seconds         predicted seconds without those of copies
    inputs          the layouts in which operands are read
    copy_layouts    for each operand, the layouts of the copies that lead there; None if there are
                    none
    cost            the cost by which decompositions are compared, in units of `RESOLUTION`
    moved_bytes     the bytes by which decompositions are compared
    decompositions  the decompositions of the node, each as its placements
    """

    state: ArrayState
    seconds: float
    inputs: tuple[Layout, ...]
    copy_layouts: tuple[tuple[Layout, ...], ...] | None
    cost: int
    moved_bytes: int
    decompositions: tuple[PlacementList, ...]


DecisionKey = tuple["ArrayState | None", ...]
"""The layout hint of a result, as a state, and the states of the operands."""


@final
class NodeKind:
    """All nodes with one signature, and with equal positions of repeated operands.

    `node` is such a node on operands of its own, without a line of user code; `decisions` are the
    decisions about them so far.
    """

    __slots__ = ("decisions", "is_move", "node")

    def __init__(self, node: Node) -> None:
        self.is_move = node.operation.is_move
        bare = {x: Node(INPUT, (), NO_ATTRIBUTES, x.shape, x.dtype) for x in node.inputs}
        self.node = make_node(
            node.operation,
            tuple([bare[x] for x in node.inputs]),
            node.attributes,
            node.shape,
            node.dtype,
            node.layout,
            signature=node.signature,
        )
        self.decisions: dict[DecisionKey, Decision] = {}


@final
class Decisions:
    """The interned states, and the decisions so far, of one environment."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.costs: CostCache = cost_cache_of(environment)
        self._states: dict[Hashable, ArrayState] = {}
        self._kinds: dict[Hashable, NodeKind] = {}

    def state(
        self, layout: Layout, itemsize: int, is_stored: bool, copies: tuple[Layout, ...] = ()
    ) -> ArrayState:
        """Return the state with these properties. Equal layouts of states are identical."""
        key = (layout, itemsize, is_stored, copies)
        cached = self._states.get(key)
        if cached is None:
            state = ArrayState(OperandState(layout.interned(), itemsize, is_stored, copies))
            cached = store_bounded(self._states, key, state, MAX_CACHED_DECISIONS)
        return cached

    def of_leaf(self, leaf: Node, layout: Layout | None) -> ArrayState:
        """Return the state of a leaf in this layout, or in its own, or replicated."""
        layout = layout or leaf.layout or self.environment.replicated(leaf.shape)
        return self.state(layout, leaf.dtype.itemsize, True)

    def with_copy(self, state: ArrayState, layout: Layout) -> ArrayState:
        """Return a state with one more copy."""
        copied = state.copied.get(layout)
        if copied is None:
            have, itemsize, is_stored, copies = state.operand
            copied = self.state(have, itemsize, is_stored, (*copies, layout))
            state.copied[layout] = copied
        return copied

    def move(self, state: ArrayState, layout: Layout) -> tuple[float, ArrayState]:
        """Return the seconds of a copy in another layout, and its state."""
        move = state.moves.get(layout)
        if move is None:
            have = state.operand
            seconds = copy_seconds(
                have.layout, layout, have.itemsize, have.is_stored, self.environment
            )
            copy = self.state(layout, have.itemsize, True)
            move = state.moves[layout] = (seconds, copy)
        return move

    def kind(self, node: Node) -> NodeKind:
        """Return the kind of a node. Kinds tell whether two operands are the same node."""
        if node.signature is None or node.name == "redistribute":
            return NodeKind(node)
        same = node.inputs if len(set(node.inputs)) < len(node.inputs) else ()
        key = (node.signature, tuple([same.index(x) for x in same]))
        kind = self._kinds.get(key)
        return kind or store_bounded(self._kinds, key, NodeKind(node), MAX_CACHED_DECISIONS)

    def decision(self, kind: NodeKind, key: DecisionKey) -> Decision:
        """Return the decision about a node of this kind."""
        decision = kind.decisions.get(key)
        if decision is None:
            hint, *operands = key
            states = [state for state in operands if state is not None]
            decided = self._decided(kind.node, hint, states)
            decision = store_bounded(kind.decisions, key, decided, MAX_CACHED_DECISIONS)
        return decision

    def _decided(
        self, node: Node, hint: ArrayState | None, operands: Sequence[ArrayState]
    ) -> Decision:
        costs, environment = self.costs, self.environment
        layout = None if hint is None else hint.layout
        best, nbytes = costs.best(node, tuple([state.operand for state in operands]), layout)
        copy_layouts = [
            costs.copy_layouts(state.layout, want)
            for state, want in zip(operands, best.candidate.inputs, strict=True)
        ]
        inputs = tuple(
            [
                layouts[-1] if layouts else state.layout
                for state, layouts in zip(operands, copy_layouts, strict=True)
            ]
        )
        output = best.candidate.output
        stored = node.name == "slice" and is_materialized(_with_layouts(node, inputs, output))
        computed = node.name != "constant"
        return Decision(
            self.state(output, node.dtype.itemsize, stored),
            environment.machine.call_seconds + best.arithmetic if computed else 0.0,
            inputs,
            tuple(copy_layouts) if any(copy_layouts) else None,
            best.rounded_cost,
            nbytes,
            self._decompositions(node, [state.layout for state in operands], hint),
        )

    def _decompositions(
        self, node: Node, layouts: Sequence[Layout], hint: ArrayState | None
    ) -> tuple[PlacementList, ...]:
        if node.operation.decompositions is no_decomposition or self.environment.deterministic:
            return ()
        decompositions = []
        for root in node.operation.decompositions(node, layouts):
            nodes = topological_until([root], node.inputs)
            hints = {} if hint is None else {root: 1}
            decompositions.append(PlacementList.of(nodes, node.inputs, hints, self))
        return tuple(decompositions)


@lru_cache(maxsize=16)
def decisions_of(environment: Environment) -> Decisions:
    """Return the decisions of an environment."""
    return Decisions(environment)


def _with_layouts(node: Node, inputs: Iterable[Layout], output: Layout) -> Node:
    """Return a node with operands and result in these layouts."""
    sources = [x.replace((), layout) for x, layout in zip(node.inputs, inputs, strict=True)]
    return node.replace(tuple(sources), output)


@final
class NodePlacement(NamedTuple):
    """The placing of a node: its kind, the positions of its operands in a list of values, and that
    of its layout hint in a list of hints (0 for none)."""

    kind: NodeKind
    operands: tuple[int, ...]
    hint: int


@final
@dataclass(frozen=True)
class PlacementList:
    """A graph, or a decomposition of a node, as a list of placements.

    position    the position of each node in a list of values: first those that are read (leaves, or
                operands of the node), then further leaves, then the nodes that are placed
    leaves      the further leaves
    nodes       the nodes that are placed; the last one of a decomposition computes its value
    placements  the placement of each of them
    """

    position: Mapping[Node, int]
    leaves: Sequence[Node]
    nodes: Sequence[Node]
    placements: Sequence[NodePlacement]

    @staticmethod
    def of(
        nodes: Iterable[Node],
        read: Sequence[Node],
        hints: Mapping[Node, int],
        decisions: Decisions,
    ) -> PlacementList:
        """Return the placements of nodes in topological order, which read some of them."""
        outside = set(read)
        inside = [node for node in nodes if node not in outside]
        leaves = [node for node in inside if node.is_leaf]
        position = {node: i for i, node in enumerate((*read, *leaves))}
        placed = [node for node in inside if not node.is_leaf]
        placements: list[NodePlacement] = []
        for i, node in enumerate(placed, len(read) + len(leaves)):
            operands = tuple([position[x] for x in node.inputs])
            position[node] = i
            placements.append(NodePlacement(decisions.kind(node), operands, hints.get(node, 0)))
        return PlacementList(position, leaves, placed, placements)
