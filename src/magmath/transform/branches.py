"""The branches of `mm.cond` in a traced function: traced, protected from failing, and marked.

Both branches become part of the surrounding expression. Operations that data can make fail get
operands for which they succeed if their branch is not taken. The results are marked
(`ops/predication.py`), so that gradients and batches treat the branch as one that is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from magmath.arrays.tree import Tree
from magmath.engine.fallible_operations import is_fallible
from magmath.engine.traces.tracing import Scope
from magmath.graph import Node, collecting_new_nodes
from magmath.ops.elementwise import where
from magmath.ops.predication import BRANCH, branch, branch_result
from magmath.transform.traced_function import TracedFunction, trace_function


def trace_branch(
    predicate: Node, function: Callable[..., Any], tree: Tree, leaves: Sequence[Any]
) -> TracedFunction:
    """Trace a branch that is taken if the predicate is true; its results and the new values of
    variables are marked as results of the branch."""
    with collecting_new_nodes() as new_nodes:
        traced = trace_function("cond", function, tree, leaves, Scope(is_branch=True))
        outputs = [*traced.results, *traced.assigned.values()]
        outputs = _protected(outputs, predicate, new_nodes)
    marked = _marked(outputs, predicate, new_nodes)
    count = len(traced.results)
    assigned = dict(zip(traced.assigned, marked[count:], strict=True))
    return replace(traced, results=marked[:count], assigned=assigned)


def _inside(outputs: Sequence[Node], new_nodes: Collection[Node]) -> tuple[list[Node], list[Node]]:
    """Return the nodes of a branch that its outputs need, each after its inputs, and what they read
    from outside."""
    inside, outside = list[Node](), dict[Node, None]()
    stack: list[Node | None] = [*outputs[::-1]]
    seen = set[Node]()
    while stack:
        node = stack.pop()
        if node is None:
            inside.append(stack.pop())  # type: ignore[arg-type]
        elif node not in new_nodes:
            outside[node] = None
        elif node not in seen:
            seen.add(node)
            stack += (node, None, *node.inputs[::-1])
    return inside, list(outside)


def _marked(outputs: Sequence[Node], predicate: Node, new_nodes: Collection[Node]) -> list[Node]:
    """Return the outputs as results of a branch."""
    branch_node = branch(predicate, _inside(outputs, new_nodes)[1])
    return [x if x.name == "constant" else branch_result(x, branch_node) for x in outputs]


def _protected(outputs: Sequence[Node], predicate: Node, new_nodes: Collection[Node]) -> list[Node]:
    """Return the outputs without operations that can fail if the predicate is false."""
    inside, outside = _inside(outputs, new_nodes)
    if not any(map(is_fallible, inside)):
        return list(outputs)
    new = {node: node for node in outside}
    for node in inside:
        inputs = [new[x] for x in node.inputs]
        if node.operation is BRANCH:  # whose operations read the predicate now
            new[node] = branch(inputs[0], [*inputs[1:], predicate])
            continue
        if is_fallible(node):
            inputs = _harmless(node, inputs, predicate)
        same = all(x is y for x, y in zip(inputs, node.inputs, strict=True))
        new[node] = node if same else node.replace(tuple(inputs))
    return [new[node] for node in outputs]


def _harmless(node: Node, inputs: Sequence[Node], predicate: Node) -> list[Node]:
    """Return operands with which an operation succeeds if the predicate is false."""
    checked, harmless = node.operation.checked, list(inputs)
    assert checked is not None, "only loops fail otherwise, and those in branches are unrolled"
    for i in checked.positions(node):
        harmless[i] = where(predicate, inputs[i], checked.harmless(node, i))
    return harmless
