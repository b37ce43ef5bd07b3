"""The build of steps that workers run on their own: a graph is split into programs for one worker.

What depends on the shared arrays, such as the rule of an optimizer, is computed by the program of
their server, while no other worker accesses them. Everything else, such as the loss and the
gradients, is computed before that from private copies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from magmath.engine.program_build import UNSENT, Compiled, lowered
from magmath.errors import MagmathError
from magmath.graph import Graph, Node
from magmath.graph.graph import topological
from magmath.graph.rebuild import rebuilt
from magmath.layout import Layout, Mesh
from magmath.ops.leaves import input_leaf
from magmath.passes.environment import Environment
from magmath.program.instructions import Independent, Part, Program, Slot


@dataclass(frozen=True, eq=False)
class Independence:
    """The division of a step that each worker runs on its own.

    copies     the leaf of the private copy of each shared leaf that the step reads before its
               update
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


def build_independent(
    graph: Graph, independence: Independence, environment: Environment
) -> Compiled:
    """Return the program of a step that each worker runs on its own, not yet sent to the workers.

    Raises MagmathError if an array that the step reads is divided over the workers.
    """
    split = _Split(graph, independence)
    return _Assembly(graph, independence, environment).compiled(split)


@final
class _Split:
    """The graph of a step, split into the graph that is computed first and one for each server."""

    def __init__(self, graph: Graph, independence: Independence) -> None:
        value = {t: x for x, t in zip(graph.outputs, graph.targets, strict=True) if t is not None}
        counts = {*independence.steps, *independence.updates}
        servers = [[t for t in value if t in server] for server in independence.servers]
        known = {t for server in servers for t in server}
        servers[-1] += [t for t in value if t not in known and t not in counts]
        seeds = {t for server in servers for t in server}.union(independence.updates)
        self._dependent = _dependent(graph.nodes, seeds)
        self._scalar = _of_numbers(graph.nodes)
        self.sent: dict[Node, Node] = {}
        """The leaves by which the updates read values that are computed first."""
        self.updates = []
        for targets in servers:
            self.updates.append(Graph(self._updates([value[t] for t in targets]), tuple(targets)))
        self.first = Graph(tuple(self.sent), (), graph.emitted)

    def _updates(self, roots: Sequence[Node]) -> tuple[Node, ...]:
        """Return the roots with leaves in place of the values that are computed before."""
        read = list(roots)
        for node in topological(roots):
            if self._is_part(node):
                read += node.inputs
        before = [node for node in read if not (node.is_leaf or self._is_part(node))]
        return tuple(rebuilt(roots, {node: self._leaf_of(node) for node in before}))

    def _is_part(self, node: Node) -> bool:
        """Return True if the updates compute a node."""
        return node in self._dependent or node in self._scalar

    def _leaf_of(self, node: Node) -> Node:
        if node not in self.sent:
            layout = Layout.whole(node.shape, Mesh.line(1))
            self.sent[node] = input_leaf(node.shape, node.dtype, layout, None)
        return self.sent[node]


def _dependent(order: Sequence[Node], seeds: Collection[Node]) -> set[Node]:
    """Return the seeds and all nodes that depend on them."""
    found = set(seeds)
    for node in order:
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found


def _of_numbers(order: Sequence[Node]) -> set[Node]:
    """Return the nodes that depend on no leaves but Python numbers."""
    found: set[Node] = set()
    for node in order:
        if node.name == "parameter" if node.is_leaf else found.issuperset(node.inputs):
            found.add(node)
    return found


@final
@dataclass
class _Assembly:
    """The program of all workers, with the slots of those for one worker."""

    graph: Graph
    independence: Independence
    environment: Environment
    slots: list[Slot] = field(default_factory=list)
    slot: dict[Node, int] = field(default_factory=dict)
    changing: set[int] = field(default_factory=set)
    """The slots that change between the steps of a run."""

    def compiled(self, split: _Split) -> Compiled:
        """Return the program of all workers."""
        independence, leaves = self.independence, self.graph.leaves
        position = {leaf: i for i, leaf in enumerate(leaves)}
        private = {x for x in independence.copies.values() if x in position}
        inputs = [x for x in leaves if x.name != "parameter" and x not in private]
        numbers = [x for x in leaves if x.name == "parameter"]
        for leaf in inputs:
            self._require_whole(leaf)
            self._new(leaf, leaf.layout, "input")
        targets = [t for t in self.graph.targets if t is not None]
        for leaf in (*private, *split.sent.values()):
            self._new(leaf, self.environment.whole(leaf.shape), "temporary")
        counted = [
            {leaf: self._private_count(leaf) for leaf in counts if leaf in position}
            for counts in (independence.steps, independence.updates)
        ]
        steps, updates = counted
        known = self.slot | steps | updates
        self.changing = {known[x] for x in (*targets, *private, *split.sent.values())}
        compute = self._part(split.first, known, numbers, list(split.sent.values()))
        parts = [self._part(one, known, numbers, one.targets) for one in split.updates]
        copies = [
            [
                (self.slot[x], self.slot[y])
                for x, y in independence.copies.items()
                if x in server and y in private
            ]
            for server in independence.servers
        ]
        program = Program(
            slots=self.slots,
            instructions=[],
            inputs=[self.slot[leaf] for leaf in inputs],
            outputs=[self.slot[t] for t in targets],
            parameters=[self._new(x, self.environment.whole(()), "parameter") for x in numbers],
            donated={i: inputs.index(t) for i, t in enumerate(targets)},
            workers=self.environment.workers,
            reads_peers=self.environment.shares_memory,
            independent=Independent(
                compute, parts, copies,
                [(self.slot[x], y) for x, y in steps.items()],
                [(self.slot[x], y) for x, y in updates.items()],
                independence.staleness,
            ),
        )  # fmt: skip
        read, given = [tuple([position[x] for x in group]) for group in (inputs, numbers)]
        return Compiled(UNSENT, program, read, given)

    def _part(
        self,
        graph: Graph,
        slot: Mapping[Node, int],
        numbers: Sequence[Node],
        outputs: Sequence[Node | None],
    ) -> Part:
        """Return the program of a graph for one worker."""
        alone = replace(self.environment, mesh=Mesh.line(1), shares_memory=False)
        new = {x: x.replace((), alone.whole(x.shape)) for x in graph.leaves if x.layout}
        former = {y: x for x, y in new.items()}
        changing = [y for x, y in new.items() if slot[x] in self.changing]
        placed = Graph(graph.outputs, graph.targets, graph.emitted).substituted(new)
        found = lowered(placed, alone, changing)
        read = [former.get(x, x) for x in placed.leaves]
        return Part(
            found.program,
            [slot[read[i]] for i in found.inputs],
            [slot[x] for x in outputs if x is not None],
            [numbers.index(read[i]) for i in found.parameters],
        )

    def _new(self, leaf: Node, layout: Layout | None, kind: str) -> int:
        assert layout is not None
        self.slots.append(Slot(leaf.shape, leaf.dtype, layout, kind))
        self.slot[leaf] = len(self.slots) - 1
        return self.slot[leaf]

    def _private_count(self, leaf: Node) -> int:
        self.slots.append(Slot((), leaf.dtype, self.environment.whole(()), "temporary"))
        return len(self.slots) - 1

    def _require_whole(self, leaf: Node) -> None:
        layout = leaf.layout
        assert layout is not None
        if layout.mesh.size != self.environment.workers or not layout.is_replicated:
            raise MagmathError(
                f"fit: every worker of an asynchronous strategy reads whole arrays, but an array "
                f"of shape {leaf.shape} that the step reads has the layout {layout}; replicate it "
                f"by x.redistribute(mm.Layout.replicated())"
            )
