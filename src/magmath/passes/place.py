"""Place: choose a layout for every node and insert the redistributions that this needs.

The candidates of a node (`passes/candidates.py`) are priced: moving operands into place (copies
made before are free), the local arithmetic, and what the result must still go through; the cheapest
that fits the memory is taken, node by node. An operation that can also be computed as a graph of
others is placed in every such way, and the cheapest stays. Whatever layouts users chose, the result
is the same.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from magmath.graph import Graph, Node
from magmath.graph.structure import structure_of
from magmath.layout import Layout, plan, price
from magmath.layout.redistribution import SMALL
from magmath.ops.movement import redistribute
from magmath.ops.panels import panels_of
from magmath.passes.candidates import Candidate, candidates, is_contraction
from magmath.passes.compute import compute_seconds, reduction_seconds, traffic
from magmath.passes.environment import Environment
from magmath.passes.reduced import reduced

RESOLUTION = 5e-7  # seconds; candidates closer than this count as equal, and the first is taken


def place(graph: Graph, environment: Environment) -> Graph:
    """The graph with a layout on every node; outputs with targets end in their target's layout."""
    placing = _Placing(environment, _wanted_layouts(graph))
    for node in graph.nodes:
        placing.place(node)
    outputs = tuple(
        placing.delivered(placing.new[node], target.layout)
        if target is not None and target.layout is not None
        else placing.resolved(placing.new[node])
        for node, target in zip(graph.outputs, _padded_targets(graph), strict=True)
    )
    emitted = tuple(
        placing.moved(placing.new[node], environment.whole(node.shape)) for node in graph.emitted
    )
    return Graph(outputs, graph.targets, emitted)


@dataclass(frozen=True)
class Option:
    """A candidate with its price: predicted seconds, bytes between workers and messages, and the
    bytes that a worker needs for moved operands and the result."""

    candidate: Candidate
    seconds: float
    moved: int
    messages: int
    memory: int


@dataclass(frozen=True)
class Choice:
    """What `place` chooses from at a contraction or a factorisation, the option taken first; or,
    where that would need too much memory at a time, the number of `panels` that are summed one
    after the other; 0 panels where other operations compute it."""

    node: Node
    options: list[Option]
    panels: int


def choices(graph: Graph, environment: Environment) -> list[Choice]:
    """What `place` chooses from at each contraction and each factorisation of a graph."""
    placing = _Placing(environment, _wanted_layouts(graph))
    found = []
    for node in graph.nodes:
        shown = node.operation.lapack or is_contraction(structure_of(node))
        options = placing.options(node) if shown else None
        placing.place(node)
        if options is not None:
            found.append(Choice(node, options, panels_of(node, placing.taken.get(node, node))))
    return found


def _padded_targets(graph: Graph) -> tuple[Node | None, ...]:
    return graph.targets or (None,) * len(graph.outputs)


def _wanted_layouts(graph: Graph) -> dict[Node, Layout]:
    """The layouts that outputs must end in."""
    pairs = zip(graph.outputs, _padded_targets(graph), strict=True)
    return {node: t.layout for node, t in pairs if t is not None and t.layout is not None}


@dataclass
class _Placing:
    """The state of one pass: what each node became, and the copies made so far."""

    environment: Environment
    wanted: Mapping[Node, Layout]
    new: ChainMap[Node, Node] = field(default_factory=ChainMap)
    copies: ChainMap[tuple[Node, Layout], Node] = field(default_factory=ChainMap)
    cost: int = 0  # of all that has been placed, in units of RESOLUTION
    taken: dict[Node, Node] = field(default_factory=dict)  # graphs that stand for a node
    workspace: int = 0  # the most bytes that an operation needs for moved operands

    def place(self, node: Node) -> None:
        if node.is_leaf:
            self.new[node] = self._placed_leaf(node)
        elif node.name == "redistribute":
            assert node.layout is not None
            self.new[node] = self.moved(self.new[node.inputs[0]], node.layout)
        else:
            self._place_cheapest(node)

    def _place_cheapest(self, node: Node) -> None:
        """Place a node as it stands, or as the cheapest of the graphs that compute the same."""
        layouts = [_layout(self.new[source]) for source in node.inputs]
        ways = [] if self.environment.deterministic else node.operation.ways(node, layouts)
        if not ways:
            self.new[node] = self._placed(node)
            return
        trials = [(way, self._tried(node, way)) for way in (node, *ways)]
        self.taken[node], best = min(trials, key=lambda trial: (trial[1].excess, trial[1].cost))
        self.new.update(best.new.maps[0])
        self.copies.update(best.copies.maps[0])
        self.cost = best.cost
        self.workspace = max(self.workspace, best.workspace)

    @property
    def excess(self) -> int:
        """How far the workspace exceeds what an operation should need."""
        return max(0, self.workspace - self.environment.workspace)

    def _tried(self, node: Node, way: Node) -> _Placing:
        """The state after this one in which `node` has been computed in a certain way."""
        wanted = {**self.wanted, way: self.wanted[node]} if node in self.wanted else self.wanted
        new, copies = self.new.new_child(), self.copies.new_child()
        trial = _Placing(self.environment, wanted, new, copies, self.cost)
        if way is node:
            new[node] = trial._placed(node)
        else:
            trial._place_all(way)
            new[node] = new[way]
        return trial

    def _place_all(self, node: Node) -> None:
        """Place a node after all that it needs."""
        if node not in self.new:
            for source in node.inputs:
                self._place_all(source)
            self.place(node)

    def _placed_leaf(self, node: Node) -> Node:
        if node.layout is not None:
            return node
        return node.replace((), self.environment.whole(node.shape))

    def options(self, node: Node) -> list[Option]:
        """The candidates of a node whose operands are placed, in the order of preference."""
        operands = [self.new[source] for source in node.inputs]
        return [
            Option(
                candidate,
                self._seconds(node, operands, candidate),
                *self._traffic(node, operands, candidate),
                self._memory(node, operands, candidate),
            )
            for _, candidate in self._ranked(node, operands)
        ]

    def _ranked(self, node: Node, operands: list[Node]) -> list[tuple[int, Candidate]]:
        """The candidates that fit the memory (or all, where none does) and their costs, the
        cheapest first, and of equally cheap ones that which moves least."""
        layouts = tuple(_layout(operand) for operand in operands)
        found = list(candidates(node, layouts, self.environment))
        limit = self.environment.memory
        if limit is not None:
            fitting = [c for c in found if self._memory(node, operands, c) <= limit]
            found = fitting or found
        if node.operation.collective is not None:
            found = self._lean(node, operands, found)
        costs = [round(self._seconds(node, operands, c) / RESOLUTION) for c in found]
        tied = costs.count(min(costs)) > 1
        moved = [
            self._traffic(node, operands, c)[0] if tied and cost == min(costs) else 0
            for cost, c in zip(costs, found, strict=True)
        ]
        order = sorted(range(len(found)), key=lambda i: (costs[i], moved[i]))
        return [(costs[i], found[i]) for i in order]

    def _lean(self, node: Node, operands: list[Node], found: list[Candidate]) -> list[Candidate]:
        """Of ways to compute what can be computed together, those for which a worker stores at
        most so much more than for the leanest as an operation should need, and not much of what it
        may hold at all."""
        stored = [self._stored(node, operands, c) for c in found]
        spare, limit = self.environment.workspace, self.environment.memory
        most = min(stored) + (spare if limit is None else min(spare, limit // 8))
        return [c for c, nbytes in zip(found, stored, strict=True) if nbytes <= most]

    def _stored(self, node: Node, operands: list[Node], candidate: Candidate) -> int:
        """The bytes of moved operands and of the result, as the heap counts them."""
        result = candidate.output.max_local_size * node.dtype.itemsize
        return self._brought(operands, candidate) + result

    def _brought(self, operands: list[Node], candidate: Candidate) -> int:
        """The bytes of moved operands as the heap counts them: what all share, everyone has room
        for."""
        return sum(
            layout.max_local_size * operand.dtype.itemsize
            for operand, layout in zip(operands, candidate.inputs, strict=True)
            if not self._is_there(operand, layout)
        )

    def _needs(self, node: Node, operands: list[Node], candidate: Candidate) -> int:
        """The bytes by which ways to compute something are compared: a product gains from a copy
        of an operand that all share, and a factorisation holds its result while it computes."""
        if node.operation.lapack:
            return self._stored(node, operands, candidate)
        if is_contraction(structure_of(node)):
            return self._workspace(node, operands, candidate)
        return self._brought(operands, candidate)

    def _placed(self, node: Node) -> Node:
        operands = [self.new[source] for source in node.inputs]
        cost, best = self._ranked(node, operands)[0]
        self.cost += cost
        self.workspace = max(self.workspace, self._needs(node, operands, best))
        moved = tuple(
            self.moved(operand, layout)
            for operand, layout in zip(operands, best.inputs, strict=True)
        )
        return node.replace(moved, best.output)

    def moved(self, node: Node, layout: Layout) -> Node:
        """`node` in `layout`, by a copy made before if there is one.

        Workers that share memory gather into one shared copy, and reduce in one step.
        """
        have = _layout(node)
        if _serves(have, layout):
            return node
        if layout.is_replicated and not (
            have.is_replicated or (have.is_partial and node.size <= SMALL)
        ):
            layout = self._gathered(node, layout)
        for stage in plan(have, layout).stages:
            if (node, stage.target) not in self.copies:
                self.copies[node, stage.target] = redistribute(node, stage.target)
            node = self.copies[node, stage.target]
        return node

    def delivered(self, node: Node, layout: Layout) -> Node:
        """`node` in exactly this layout: copied out of a shared copy where that is not shared."""
        moved = self.moved(node, layout)
        return moved if moved.layout == layout else redistribute(moved, layout)

    def _gathered(self, node: Node, layout: Layout) -> Layout:
        """Replicated, as one copy for all workers of a host where they share memory."""
        shared = self.environment.whole(node.shape, shared=True)
        return shared if layout.mesh == shared.mesh and node.shape != () else layout

    def resolved(self, node: Node) -> Node:
        """`node` without pending reductions."""
        layout = _layout(node)
        return self.moved(node, reduced(layout)) if layout.is_partial else node

    # prices, in seconds -----------------------------------------------------------------------

    def _seconds(self, node: Node, operands: list[Node], candidate: Candidate) -> float:
        moves = sum(
            self._price(operand, layout)
            for operand, layout in zip(operands, candidate.inputs, strict=True)
        )
        compute = compute_seconds(node, candidate.inputs, candidate.output, self.environment)
        return moves + compute + self._afterwards(node, candidate)

    def _memory(self, node: Node, operands: list[Node], candidate: Candidate) -> int:
        """The bytes of moved operands and of the result on the busiest worker."""
        result = candidate.output.max_local_size * node.dtype.itemsize
        return self._workspace(node, operands, candidate) + result

    def _workspace(self, node: Node, operands: list[Node], candidate: Candidate) -> int:
        """The bytes of moved operands on the busiest worker; what all share, each has a part of."""
        total = 0
        for operand, layout in zip(operands, candidate.inputs, strict=True):
            if not self._is_there(operand, layout):
                shared = layout.is_replicated and self.environment.shares_memory
                nbytes = layout.max_local_size * operand.dtype.itemsize
                total += nbytes // layout.mesh.size if shared else nbytes
        return total

    def _traffic(self, node: Node, operands: list[Node], candidate: Candidate) -> tuple[int, int]:
        """The bytes and messages between workers: of the operands, while they compute together,
        and of a reduction."""
        steps = [
            (plan(_layout(operand), layout), operand.dtype.itemsize)
            for operand, layout in zip(operands, candidate.inputs, strict=True)
            if not self._is_there(operand, layout)
        ]
        if candidate.output.is_partial:
            summed = plan(candidate.output, reduced(candidate.output))
            steps.append((summed, node.dtype.itemsize))
        moved, messages = traffic(node, candidate.inputs, candidate.output)
        return (
            moved + sum(step.total_bytes(itemsize) for step, itemsize in steps),
            messages + sum(step.messages for step, _ in steps),
        )

    def _is_there(self, operand: Node, layout: Layout) -> bool:
        """True where an operand can be read in a layout without being moved."""
        if _serves(_layout(operand), layout) or (operand, layout) in self.copies:
            return True
        shared = self.environment.whole(operand.shape, shared=True)
        return layout.is_replicated and (operand, shared) in self.copies

    def _price(self, operand: Node, layout: Layout) -> float:
        if self._is_there(operand, layout):
            return 0.0
        have, itemsize, copied = _layout(operand), operand.dtype.itemsize, 0
        if layout.is_replicated:
            shared = self.environment.whole(operand.shape, shared=True)
            if layout.mesh == shared.mesh:
                layout = shared
                copied = have.max_local_size if operand.is_leaf else 0  # what is computed is not
        seconds = _price(have, layout, itemsize, self.environment)
        return seconds + copied * itemsize / self.environment.bandwidth

    def _afterwards(self, node: Node, candidate: Candidate) -> float:
        """What the result must still go through: its reduction, its way to where it is wanted."""
        output, itemsize = candidate.output, node.dtype.itemsize
        cost = 0.0
        if output.is_partial:
            summed = reduced(output)
            cost += _price(output, summed, itemsize, self.environment)
            cost += reduction_seconds(node, summed, self.environment)
            output = summed
        if node in self.wanted:
            return cost + _price(output, self.wanted[node], itemsize, self.environment)
        little = node.size * itemsize <= self.environment.workspace  # it may be wanted whole
        if little and not output.is_replicated and all(x.is_replicated for x in candidate.inputs):
            whole = self.environment.whole(node.shape)
            cost += 0.5 * _price(output, whole, itemsize, self.environment)
        return cost


def _layout(node: Node) -> Layout:
    assert node.layout is not None, f"{node} has no layout"
    return node.layout


def _serves(have: Layout, want: Layout) -> bool:
    """True if an array in layout `have` can be read as if it were in `want`."""
    if have == want:
        return True
    return (
        have.shared
        and not want.shared
        and have.is_replicated
        and (want.is_replicated and want.mesh == have.mesh)
    )


@lru_cache(maxsize=65536)
def _price(have: Layout, want: Layout, itemsize: int, environment: Environment) -> float:
    if have == want:
        return 0.0
    return price(plan(have, want), itemsize, environment.link)
