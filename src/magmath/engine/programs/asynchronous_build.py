"""The build of steps that workers run on their own: a graph is split into programs for one worker.

What depends on the shared arrays, such as the rule of an optimizer, is computed by the program of
their server, while no other worker accesses them. All other work, such as the loss and the
gradients, is computed before that from private copies. Arrays that depend on the number of steps
alone, such as the state of a generator, need no server: each worker computes them for its step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from magmath.engine.programs.program_build import UNSENT, Compiled, lowered
from magmath.errors import MagmathError
from magmath.graph import Graph, Node
from magmath.graph.graph import topological
from magmath.graph.placed_nodes import layout_of
from magmath.graph.provenance.rebuild import rebuilt
from magmath.layout import Layout, Mesh
from magmath.ops.leaves import input_leaf
from magmath.passes.environment import Environment
from magmath.program.instructions import AsynchronousStep, Program, Slot, WorkerProgram


@final
@dataclass(frozen=True, eq=False)
class AsynchronousDivision:
    """The division of a step that each worker runs on its own.

    copies     the leaf of the private copy of each shared leaf that the gradients read
    servers    the shared leaves of each server; the last one has all other targets of the graph
    steps      leaves of counts: a step reads its own number
    updates    leaves of counts: the number of an update
    staleness  the number of updates that a copy may lack
    """

    copies: Mapping[Node, Node]
    servers: Sequence[Collection[Node]]
    steps: Collection[Node]
    updates: Collection[Node]
    staleness: int


def build_asynchronous(
    graph: Graph, division: AsynchronousDivision, environment: Environment
) -> Compiled:
    """Return the program of a step that each worker runs on its own, not yet sent to the workers.

    Raises MagmathError if an array that the step reads is divided over the workers.
    """
    split = _Split(graph, division)
    return _Assembly(graph, division, environment).compiled(split)


@final
class _Split:
    """The graph of a step, split into the graph that is computed first and one for each server.

    The update of an array reads its current value. All else reads the private copies, also of
    arrays in the last server that a module changes and reads, such as running statistics.
    """

    def __init__(self, graph: Graph, division: AsynchronousDivision) -> None:
        self._nodes = graph.nodes
        self._counts = set(division.updates)
        value = {t: x for x, t in graph.outputs_and_targets if t is not None}
        groups = [[t for t in value if t in server] for server in division.servers]
        named = {t for group in groups for t in group}.union(division.steps, self._counts)
        states = _step_states(graph.nodes, value, value.keys() - named)
        self.advance = Graph(tuple([value[t] for t in states]), tuple(states))
        """The next values of the arrays that depend on the number of steps alone."""
        others = [t for t in value if t not in named and t not in states]
        self._changing = {t for group in groups for t in group}.union(others)
        self._scalar = _of_numbers(graph.nodes)
        self.copies = {x: y for x, y in division.copies.items() if y in graph.leaves}
        """The leaves of the private copies of shared leaves."""
        self.sent: dict[Node, Node] = {}
        """The leaves by which the updates read values that are computed first."""
        parts = [self._updates(group, value) for group in groups]
        groups[-1] += others
        parts[-1] += self._updates(others, value)
        self.servers = groups
        self.updates = [
            Graph(tuple(part), tuple(group)) for part, group in zip(parts, groups, strict=True)
        ]
        first = Graph(tuple(self.sent), (), graph.emitted)
        read = [leaf for leaf in first.leaves if leaf in self._changing]
        self.first = first.substituted({leaf: self._copy_of(leaf) for leaf in read})

    def _updates(self, targets: Sequence[Node], value: Mapping[Node, Node]) -> list[Node]:
        """Return the next values of some targets. What does not depend on them, and is not computed
        from numbers alone, is a leaf."""
        roots = [value[t] for t in targets]
        own = _dependent(self._nodes, self._counts.union(targets))
        read = list(roots)
        for node in topological(roots):
            if node in own or node in self._scalar:
                read += node.inputs
        leaves = {}
        for node in read:
            if node in self._changing and node not in own:
                leaves[node] = self._copy_of(node)
            elif not (node.is_leaf or node in own or node in self._scalar):
                leaves[node] = self._leaf_of(node)
        return list(rebuilt(roots, leaves))

    def _leaf_of(self, node: Node) -> Node:
        if node not in self.sent:
            self.sent[node] = _private_leaf(node)
        return self.sent[node]

    def _copy_of(self, leaf: Node) -> Node:
        if leaf not in self.copies:
            self.copies[leaf] = _private_leaf(leaf)
        return self.copies[leaf]


def _private_leaf(node: Node) -> Node:
    return input_leaf(node.shape, node.dtype, Layout.whole(node.shape, Mesh.line(1)), None)


def _dependent(order: Sequence[Node], seeds: Collection[Node]) -> set[Node]:
    """Return the seeds and all nodes that depend on them."""
    dependent = set(seeds)
    for node in order:
        if not dependent.isdisjoint(node.inputs):
            dependent.add(node)
    return dependent


def _step_states(
    order: Sequence[Node], value: Mapping[Node, Node], candidates: Collection[Node]
) -> list[Node]:
    """Return the targets whose next value depends on such targets and on Python numbers alone."""
    states = set(candidates)
    while True:
        computed = _of_numbers(order, states)
        remaining = {t for t in states if value[t] in computed}
        if remaining == states:
            return [t for t in value if t in states]
        states = remaining


def _of_numbers(order: Sequence[Node], others: Collection[Node] = ()) -> set[Node]:
    """Return the nodes that depend on no leaves but Python numbers and some others."""
    nodes = set(others)
    for node in order:
        if node.name == "scalar" if node.is_leaf else nodes.issuperset(node.inputs):
            nodes.add(node)
    return nodes


@final
@dataclass
class _Assembly:
    """The program of all workers, with the slots of those for one worker."""

    graph: Graph
    division: AsynchronousDivision
    environment: Environment
    slots: list[Slot] = field(default_factory=list)
    slot: dict[Node, int] = field(default_factory=dict)
    changing: set[int] = field(default_factory=set)
    """The slots that change between the steps of a run."""

    def compiled(self, split: _Split) -> Compiled:
        """Return the program of all workers."""
        division, leaves = self.division, self.graph.leaves
        position = {leaf: i for i, leaf in enumerate(leaves)}
        private = set(split.copies.values())
        inputs = [x for x in leaves if x.name != "scalar" and x not in private]
        numbers = [x for x in leaves if x.name == "scalar"]
        for leaf in inputs:
            self._require_whole(leaf)
            self._new(leaf, layout_of(leaf), "input")
        targets = [t for t in self.graph.targets if t is not None]
        for leaf in (*private, *split.sent.values()):
            self._new(leaf, self.environment.whole(leaf.shape), "temporary")
        counted = [
            {leaf: self._private_copy(leaf) for leaf in counts if leaf in position}
            for counts in (division.steps, division.updates)
        ]
        steps, updates = counted
        states = {t: self._private_copy(t) for t in split.advance.targets if t is not None}
        slots = self.slot | steps | updates | states
        self.changing = {slots[x] for x in (*targets, *private, *split.sent.values())}
        advance = self._part(split.advance, slots, numbers, split.advance.targets)
        compute = self._part(split.first, slots, numbers, list(split.sent.values()))
        parts = [self._part(one, slots, numbers, one.targets) for one in split.updates]
        copies = [
            [(self.slot[x], self.slot[y]) for x, y in split.copies.items() if x in server]
            for server in split.servers
        ]
        program = Program(
            slots=self.slots,
            instructions=[],
            inputs=[self.slot[leaf] for leaf in inputs],
            outputs=[self.slot[t] for t in targets],
            scalars=[self._new(x, self.environment.whole(()), "scalar") for x in numbers],
            donated={i: inputs.index(t) for i, t in enumerate(targets)},
            workers=self.environment.workers,
            reads_peers=self.environment.shares_memory,
            asynchronous=AsynchronousStep(
                compute, parts, copies,
                [(self.slot[x], y) for x, y in steps.items()],
                [(self.slot[x], y) for x, y in updates.items()],
                division.staleness, advance,
                [(self.slot[x], y) for x, y in states.items()],
            ),
        )  # fmt: skip
        read, scalars = [tuple([position[x] for x in group]) for group in (inputs, numbers)]
        return Compiled(UNSENT, program, read, scalars)

    def _part(
        self,
        graph: Graph,
        slot: Mapping[Node, int],
        numbers: Sequence[Node],
        outputs: Sequence[Node | None],
    ) -> WorkerProgram:
        """Return the program of a graph for one worker."""
        alone = replace(self.environment, mesh=Mesh.line(1), shares_memory=False)
        new = {x: x.replace((), alone.whole(x.shape)) for x in graph.leaves if x.layout}
        former = {y: x for x, y in new.items()}
        changing = [y for x, y in new.items() if slot[x] in self.changing]
        placed = Graph(graph.outputs, graph.targets, graph.emitted).substituted(new)
        part = lowered(placed, alone, changing)
        read = [former.get(x, x) for x in placed.leaves]
        return WorkerProgram(
            part.program,
            [slot[read[i]] for i in part.inputs],
            [slot[x] for x in outputs if x is not None],
            [numbers.index(read[i]) for i in part.scalars],
        )

    def _new(self, leaf: Node, layout: Layout, kind: str) -> int:
        self.slots.append(Slot(leaf.shape, leaf.dtype, layout, kind))
        self.slot[leaf] = len(self.slots) - 1
        return self.slot[leaf]

    def _private_copy(self, leaf: Node) -> int:
        layout = self.environment.whole(leaf.shape)
        self.slots.append(Slot(leaf.shape, leaf.dtype, layout, "temporary"))
        return len(self.slots) - 1

    def _require_whole(self, leaf: Node) -> None:
        layout = layout_of(leaf)
        if layout.mesh.size != self.environment.workers or not layout.is_replicated:
            raise MagmathError(
                f"fit: every worker of an asynchronous strategy reads whole arrays, but an array "
                f"of shape {leaf.shape} that the step reads has the layout {layout}; replicate it "
                f"by x.redistribute(mm.Layout.replicated())"
            )
