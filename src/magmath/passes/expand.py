"""The expand pass: replaces an operation that exists only to define a gradient by the operations
that compute it, and a loop by its steps."""

from __future__ import annotations

from collections.abc import Callable

from magmath.graph import Graph, Node, rewrite
from magmath.graph.graph import topological_until
from magmath.ops.counted_loops import SCAN, first_step, unrolled
from magmath.ops.loop_results import LOOP_RESULT
from magmath.ops.while_loops import first_states


def expand(graph: Graph, keeps: Callable[[Node], bool] | None = None) -> Graph:
    """Return an equal graph of operations that have kernels; nodes for which `keeps` is true stay
    as they are."""
    if not any(node.operation.expansion for node in graph.nodes):
        return graph
    if any(node.operation is SCAN for node in graph.nodes):
        graph = _without_loops(graph, unrolled)
    if keeps is None:
        return rewrite(graph, _expanded)
    return rewrite(graph, lambda node: None if keeps(node) else _expanded(node))


def with_first_steps(graph: Graph) -> Graph:
    """Return a graph like this one in which each loop takes its first step only: layouts that suit
    this step suit all."""
    while any(node.operation is LOOP_RESULT for node in graph.nodes):
        graph = _without_loops(graph, _first_step)
    return graph


def _first_step(loop: Node) -> list[Node]:
    return first_step(loop) if loop.operation is SCAN else first_states(loop)


def _without_loops(graph: Graph, expressions: Callable[[Node], list[Node]]) -> Graph:
    """Return the graph with expressions in place of the results of loops."""
    results: dict[Node, list[Node]] = {}

    def step_result(node: Node) -> Node | None:
        if node.operation is not LOOP_RESULT:
            return None
        loop = node.inputs[0]
        if loop not in results:
            results[loop] = expressions(loop)
        index: int = node.attributes["index"]
        return results[loop][index]

    return rewrite(graph, step_result)


def _expanded(node: Node) -> Node | None:
    """Return the nodes that compute an operation; they all get the user's line of the operation."""
    if node.operation.expansion is None:
        return None
    result = node.operation.expansion(node)
    new = {source: source for source in node.inputs}
    for inner in topological_until([result], node.inputs):
        if inner not in new:
            inputs = tuple([new[source] for source in inner.inputs])
            new[inner] = inner.replace(inputs, line=node.line)
    return new[result]
