"""The memo of gradients: the operations of a gradient, by the structure of the result.

A training loop differentiates an expression of the same structure in each step. The rules of the
operations depend on nothing else, so from the third time on the gradient is built from the list of
its operations, which takes a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.graph import Node, make_node
from magmath.graph.graph import topological_until
from magmath.graph.provenance.recipe import RecipeStep

MAX_GRADIENTS = 256
MAX_NODES = 1000
"""The number of nodes of the largest result whose gradients are kept in the memo."""


@final
class _GradientSteps:
    """The operations that compute the gradients of results of one structure.

    Positions are those among the nodes of the result, followed by the steps.
    """

    def __init__(self, order: Sequence[Node], gradients: Sequence[Node]) -> None:
        position = {node: i for i, node in enumerate(order)}
        self._steps: list[RecipeStep] = []
        for node in topological_until(gradients, order):
            if node in position:
                continue
            assert not node.is_leaf, f"the gradient reads {node}, which is no part of the result"
            position[node] = len(position)
            sources = tuple([position[x] for x in node.inputs])
            self._steps.append(
                RecipeStep(
                    node.operation, node.attributes, node.shape, node.dtype, node.layout, None,
                    node.signature, sources,
                )
            )  # fmt: skip
        self._gradients = [position[node] for node in gradients]

    def of(self, order: Sequence[Node]) -> list[Node]:
        """Return the gradients of the result with these nodes."""
        nodes = list(order)
        for step in self._steps:
            inputs = tuple([nodes[i] for i in step.sources])
            line = inputs[0].line if inputs else None  # as `apply` does
            nodes.append(
                make_node(
                    step.operation, inputs, step.attributes, step.shape, step.dtype, step.layout,
                    line, None, step.signature,
                )
            )  # fmt: skip
        return [nodes[i] for i in self._gradients]


_memo: RecentlyUsed[Hashable, _GradientSteps | None] = RecentlyUsed(MAX_GRADIENTS)
"""None for a structure that was differentiated once."""


def cached_gradients(
    order: Sequence[Node], sources: Sequence[Node], compute: Callable[[], list[Node]]
) -> list[Node]:
    """Return the gradients of a result by its sources: from the memo, or those that `compute`
    returns.

    order    the nodes of the result, each after its inputs, down to the sources
    sources  the leaves with the values of the sources; the result depends on each of them through
             these nodes alone
    """
    key = _structure(order, sources)
    if key is None:
        return compute()
    steps = _memo.find(key)
    if steps is not None:
        return steps.of(order)
    derivatives = compute()
    _memo.store(key, _GradientSteps(order, derivatives) if key in _memo else None)
    return derivatives


def _structure(order: Sequence[Node], sources: Sequence[Node]) -> Hashable | None:
    """Return the key on which gradients depend: operations with their attributes, shapes, types,
    layouts, constants, and which nodes have the values of the sources, in which order.

    None for a large result, and for one with a node that has no signature.
    """
    if len(order) > MAX_NODES:
        return None
    chosen: dict[Node, int] = {}
    key: list[Hashable] = [tuple([chosen.setdefault(x, ~len(chosen)) for x in sources])]
    number: dict[Node, int] = {}
    for i, node in enumerate(order):
        number[node] = i
        signature = node.signature
        if signature is not None:
            key.append(signature.id)
        elif node.operation.is_version or not node.inputs:
            key += (node.operation.name, node.shape, node.dtype.name)
        else:
            return None
        key += [number.get(x) for x in node.inputs]
        if node.layout is not None:
            key.append(node.layout)
        source = chosen.get(node.leaf_or_self)
        if source is not None:
            key.append(source)
    return tuple(key)
