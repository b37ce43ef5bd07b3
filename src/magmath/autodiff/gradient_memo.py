"""The memo of gradients: the operations of a gradient, by the structure of the result.

A training loop differentiates an expression of the same structure in each step. The rules of the
operations depend on nothing else, so from the second time on the gradient is built from the list of
its operations, which takes a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.graph import Node, make_node
from magmath.graph.graph import topological_until
from magmath.graph.recipe import RecipeStep
from magmath.ops.leaves import CONSTANT

MAX_GRADIENTS = 256
MAX_NODES = 1000
"""The number of nodes of the largest result whose gradient is stored: larger ones are traced."""


@final
class _Recorded:
    """The gradients of results of one structure.

    Positions are those among the nodes of the result, followed by the steps; the steps include
    constants as nodes.
    """

    def __init__(self, order: Sequence[Node], gradients: Sequence[Node]) -> None:
        position = {node: i for i, node in enumerate(order)}
        self.steps: list[RecipeStep | Node] = []
        self.is_complete = True
        """False if the gradient reads leaves other than those of the result."""
        for node in topological_until(gradients, order):
            if node in position:
                continue
            position[node] = len(position)
            if node.operation is CONSTANT:
                self.steps.append(node)
                continue
            self.is_complete &= bool(node.inputs)
            sources = tuple([position[x] for x in node.inputs])
            self.steps.append(
                RecipeStep(
                    node.operation, node.attributes, node.shape, node.dtype, node.layout, None,
                    node.signature, sources,
                )
            )  # fmt: skip
        self._gradients = [position[node] for node in gradients]

    def of(self, order: Sequence[Node]) -> list[Node]:
        """Return the gradients of the result with these nodes."""
        nodes = list(order)
        for step in self.steps:
            if isinstance(step, Node):
                nodes.append(step)
                continue
            inputs = tuple([nodes[i] for i in step.sources])
            line = inputs[0].line  # as that of any node without a line of the user's code
            nodes.append(
                make_node(
                    step.operation, inputs, step.attributes, step.shape, step.dtype, step.layout,
                    line, None, step.signature,
                )
            )  # fmt: skip
        return [nodes[i] for i in self._gradients]


_recorded: RecentlyUsed[Hashable, _Recorded | None] = RecentlyUsed(MAX_GRADIENTS)


def recalled_gradients(
    order: Sequence[Node], sources: Sequence[Node], compute: Callable[[], list[Node]]
) -> list[Node]:
    """Return the gradients of a result by its sources: recalled, or those that `compute` returns.

    order    the nodes of the result, each after its inputs, down to the sources
    sources  the leaves with the values of the sources; the result depends on each of them through
             these nodes alone
    """
    key = _structure(order, sources)
    if key is None:
        return compute()
    recorded = _recorded.get(key)
    if recorded is not None:
        _recorded.find(key)
        return recorded.of(order)
    found = compute()
    if key in _recorded:  # the second time
        made = _Recorded(order, found)
        if made.is_complete:
            _recorded.store(key, made)
    else:
        _recorded.store(key, None)
    return found


def _structure(order: Sequence[Node], sources: Sequence[Node]) -> Hashable | None:
    """Return what a gradient depends on: operations, shapes, types and layouts, and which nodes
    have the values of the sources. None for a large result, and for nodes with own attributes."""
    if len(order) > MAX_NODES:
        return None
    key: list[Hashable] = []
    number: dict[Node, int] = {}
    chosen = {source: -1 - i for i, source in enumerate(sources)}
    for i, node in enumerate(order):
        number[node] = i
        signature = node.signature
        if signature is not None:
            key.append(signature.id)
        elif node.operation.version or not node.inputs:
            key += (node.operation.name, node.shape, node.dtype.name)
        else:
            return None
        key += [number.get(x) for x in node.inputs]
        if node.layout is not None:
            key.append(node.layout)
        known = chosen.get(node.known)
        if known is not None:
            key.append(known)
    return tuple(key)
