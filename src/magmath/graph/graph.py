"""Graphs: ordering, structural identity, rewriting and printing of a DAG of nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias, final

from magmath.graph.operation import Node


def topological(
    outputs: Iterable[Node], *, pending: bool = False, depth: Mapping[Node, int] | None = None
) -> list[Node]:
    """Return every node that the outputs need, each after its inputs (depth first, no recursion).

    With `pending`, the search does not continue behind nodes whose value is known. With `depth`,
    the deepest input comes first, so that other inputs do not occupy memory while they wait for it
    (Sethi and Ullman, 1970).
    """
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[Node | None] = list(outputs)
    stack.reverse()
    while stack:
        node = stack.pop()
        if node is None:  # all inputs of the next node are in the order
            order.append(stack.pop())  # type: ignore[arg-type]
        elif node not in seen:
            seen.add(node)
            sources = node.inputs
            if not sources or (pending and node.value is not None):
                order.append(node)
                continue
            below: Iterable[Node] = sources[::-1]
            if depth is not None:
                below = sorted(below, key=depth.__getitem__)
            stack += (node, None, *below)
    return order


InputsOf: TypeAlias = Callable[[Node], Sequence[Node]]
"""A function that returns the inputs of a node that a search follows."""


def topological_until(
    outputs: Iterable[Node],
    ends: Iterable[Node],
    inputs_of: InputsOf = attrgetter("inputs"),
) -> list[Node]:
    """Return every node that the outputs need, each after its inputs; the search stops at the ends,
    and follows the inputs that `inputs_of` returns.

    The last output comes first, unlike in `topological`: gradients are summed in this order, so
    that they keep their bits.
    """
    order: list[Node] = []
    last, seen = set(ends), set[Node]()
    stack: list[Node | None] = list(outputs)
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())  # type: ignore[arg-type]
        elif node not in seen:
            seen.add(node)
            stack += (node, None, *(() if node in last else inputs_of(node)[::-1]))
    return order


def dependents(order: Iterable[Node], sources: Iterable[Node]) -> set[Node]:
    """Return the sources, and the nodes of `order` that depend on them; each follows its inputs."""
    dependent_nodes = set(sources)
    for node in order:
        if not dependent_nodes.isdisjoint(node.inputs):
            dependent_nodes.add(node)
    return dependent_nodes


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes that one program computes, with all nodes that they depend on.

    `targets[i]`, if given, is the leaf whose storage output i reuses (a variable that is updated,
    or a donated input). `emitted` are 0-d nodes whose values are reported.
    """

    outputs: tuple[Node, ...]
    targets: tuple[Node | None, ...] = ()
    emitted: tuple[Node, ...] = ()

    @property
    def roots(self) -> tuple[Node, ...]:
        """The outputs, the emitted scalars, and the targets."""
        targets = tuple(t for t in self.targets if t is not None)
        return (*self.outputs, *self.emitted, *targets)

    @property
    def outputs_and_targets(self) -> list[tuple[Node, Node | None]]:
        """Each output with its target; None if it is stored in an array of its own."""
        targets = self.targets or (None,) * len(self.outputs)
        return list(zip(self.outputs, targets, strict=True))

    def mapped(self, new: Mapping[Node, Node], *, in_order: bool = False) -> Graph:
        """Return the graph with the images of this graph's roots as roots.

        `in_order`: `new` has the image of each node of this graph, in their order, and its operands
        are the images of the node's. The images are then in topological order.
        """
        image = Graph(
            tuple([new[node] for node in self.outputs]),
            tuple([None if t is None else new[t] for t in self.targets]),
            tuple([new[node] for node in self.emitted]),
        )
        if in_order:
            image.__dict__["nodes"] = list(dict.fromkeys(new.values()))
        return image

    def substituted(self, new: Mapping[Node, Node]) -> Graph:
        """Return the graph with some nodes replaced by others of the same shape and type."""
        images: dict[Node, Node] = {}
        for node in self.nodes:
            inputs = tuple([images[source] for source in node.inputs])
            images[node] = new.get(node) or node.with_inputs(inputs)
        leaves = all(old.is_leaf and node.is_leaf for old, node in new.items())
        return self.mapped(images, in_order=leaves)

    def replaced(self, expressions: Mapping[Node, Node]) -> Graph:
        """Return the graph with some nodes replaced by expressions of nodes of this graph, in which
        the others among them are replaced as well."""
        new: dict[Node, Node] = {}
        stack: list[Node | None] = list(self.roots)
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node is None:  # everything below the next node is in `new`
                node = stack.pop()
                assert node is not None
                if node in expressions:
                    new[node] = new[expressions[node]]
                    continue
                inputs = tuple([new[source] for source in node.inputs])
                new[node] = node.with_inputs(inputs)
            elif node not in seen:
                seen.add(node)
                below = (expressions[node],) if node in expressions else node.inputs
                stack += (node, None, *below)
        return self.mapped(new)

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes, in topological order."""
        return topological(self.roots)

    @cached_property
    def leaves(self) -> list[Node]:
        """The inputs, variables and scalars, in order of first use."""
        return [node for node in self.nodes if node.is_leaf]

    @cached_property
    def key(self) -> Hashable:
        """The structure of the graph: equal for graphs that one program can compute.

        Values of scalars, data of inputs and identities of variables are not part of it.
        """
        position_of = {node: i for i, node in enumerate(self.nodes)}
        entries = tuple([_entry(node, position_of) for node in self.nodes])
        targets = tuple(None if t is None else position_of[t] for t in self.targets)
        outputs = tuple(position_of[node] for node in self.outputs)
        return entries, outputs, targets, tuple(position_of[node] for node in self.emitted)

    def __str__(self) -> str:
        position_of = {node: i for i, node in enumerate(self.nodes)}
        lines = []
        for node, i in position_of.items():
            arguments = [f"%{position_of[source]}" for source in node.inputs]
            arguments += [f"{k}={v}" for k, v in node.attributes.items()]
            layout = f" {node.layout}" if node.layout is not None else ""
            call = f"{node.name}({', '.join(arguments)})"
            lines.append(f"%{i} = {call} {list(node.shape)}:{node.dtype}{layout}")
        lines.append("return " + ", ".join(f"%{position_of[node]}" for node in self.outputs))
        if self.emitted:
            lines.append("emit " + ", ".join(f"%{position_of[node]}" for node in self.emitted))
        return "\n".join(lines)


def _entry(node: Node, position_of: dict[Node, int]) -> Hashable:
    if node.operation.is_leaf:
        return node.operation.name, node.shape, node.dtype.name, node.layout
    sources = tuple([position_of[source] for source in node.inputs])
    if node.signature is not None:
        return node.signature, sources, node.layout
    return node.name, tuple(node.attributes.items()), sources, node.layout


NodeRewrite = Callable[[Node], Node | None]


def rewrite(graph: Graph, rule: NodeRewrite) -> Graph:
    """Return the graph with `rule(node)` in place of each node, inputs first; None keeps the node.

    The rule receives nodes whose inputs are already rewritten.
    """
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(new[source] for source in node.inputs)
        current = node.with_inputs(inputs)
        new[node] = rule(current) or current
    return graph.mapped(new)


def users_of(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """Return for every node the nodes that read it (once per reading operand)."""
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for source in node.inputs:
            users[source].append(node)
    return users


def substituted(roots: Sequence[Node], images: Mapping[Node, Node]) -> list[Node]:
    """Return the roots with other nodes of the same shape and type in place of some nodes.

    Nodes that do not depend on these do not change, nor do those whose values are known.
    `Graph.substituted` does the same for all roots of a graph, `Graph.replaced` with expressions of
    the graph's own nodes.
    """
    new: dict[Node, Node] = dict(images)
    for node in topological_until(roots, images, _inputs_of_unknown):
        if node not in new:
            inputs = tuple([new.get(source, source) for source in node.inputs])
            is_unchanged = node.value is not None or inputs == node.inputs
            new[node] = node if is_unchanged else node.replace(inputs)
    return [new[node] for node in roots]


def _inputs_of_unknown(node: Node) -> Sequence[Node]:
    return node.inputs if node.value is None else ()
