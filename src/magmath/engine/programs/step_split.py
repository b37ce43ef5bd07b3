"""The split of a step that workers run on their own, into graphs for one worker.

What depends on the shared arrays, such as the rule of an optimizer, is computed by the program of
their server, while no other worker accesses them. All other work, such as the loss and the
gradients, is computed before that from private copies. Arrays that depend on the number of steps
alone, such as the state of a generator, need no server: each worker computes them for its step.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from magmath.graph import Graph, Node
from magmath.graph.graph import dependents, substituted, topological
from magmath.layout import Layout, Mesh
from magmath.ops.leaves import input_leaf


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

    def key(self, graph: Graph) -> Hashable:
        """Return what is equal for divisions of graphs with one key that have one program."""
        position: dict[Node, int] = {}
        for node in (*graph.leaves, *graph.targets):
            if node is not None:
                position.setdefault(node, len(position))

        def positions(nodes: Iterable[Node]) -> tuple[int, ...]:
            return tuple([position[x] for x in nodes if x in position])

        copies = [(x, y) for x, y in self.copies.items() if x in position and y in position]
        counted = [frozenset(positions(nodes)) for nodes in (self.steps, self.updates)]
        servers = tuple(map(positions, self.servers))
        return positions(x for pair in copies for x in pair), servers, *counted, self.staleness


@final
class StepSplit:
    """The graph of a step, split into the graph that is computed first and one for each server.

    first    computes the emitted scalars, and what the updates read of it
    updates  for each server, computes the next values of its arrays
    advance  computes the next values of the arrays that depend on the number of steps alone
    servers  the shared leaves of each server
    copies   the leaves of the private copies of shared leaves
    sent     the values that are computed first, with the leaves by which the updates read them

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
        unassigned = [t for t in value if t not in named and t not in states]
        self._changing = {t for group in groups for t in group}.union(unassigned)
        self._of_numbers = _of_numbers(graph.nodes)
        self.copies = {x: y for x, y in division.copies.items() if y in graph.leaves}
        self.sent: dict[Node, Node] = {}
        parts = [self._updates(group, value) for group in groups]
        groups[-1] += unassigned
        parts[-1] += self._updates(unassigned, value)
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
        dependent_nodes = dependents(self._nodes, self._counts.union(targets))
        read = list(roots)
        for node in topological(roots):
            if node in dependent_nodes or node in self._of_numbers:
                read += node.inputs
        leaves = {}
        for node in read:
            if node in self._changing and node not in dependent_nodes:
                leaves[node] = self._copy_of(node)
            elif not (node.is_leaf or node in dependent_nodes or node in self._of_numbers):
                leaves[node] = self._leaf_of(node)
        return list(substituted(roots, leaves))

    def _leaf_of(self, node: Node) -> Node:
        if node not in self.sent:
            self.sent[node] = _private_leaf(node)
        return self.sent[node]

    def _copy_of(self, leaf: Node) -> Node:
        if leaf not in self.copies:
            self.copies[leaf] = _private_leaf(leaf)
        return self.copies[leaf]


def _private_leaf(node: Node) -> Node:
    return input_leaf(node.shape, node.dtype, Layout.replicated_on(node.shape, Mesh.line(1)), None)


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


def _of_numbers(order: Sequence[Node], other_leaves: Collection[Node] = ()) -> set[Node]:
    """Return the nodes that depend on no leaves but Python numbers and some others."""
    nodes = set(other_leaves)
    for node in order:
        if node.name == "scalar" if node.is_leaf else nodes.issuperset(node.inputs):
            nodes.add(node)
    return nodes
