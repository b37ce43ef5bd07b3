"""The residuals of a loop: what the backward step reads of the forward step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, final

from magmath.graph import Node
from magmath.graph.graph import dependents, substituted, topological_until
from magmath.ops.counted_loops import ScanBody, body_argument

CHEAP_FLOPS: Final = 4
"""Operations for each element up to which an element-wise operation counts as cheap."""


@final
class Residuals:
    """What the backward step reads of the forward step.

    stored     the nodes whose values the forward loop collects, and their placeholders in the
               backward step
    rows       the rows of the forward step
    invariant  the nodes that are the same in all steps, and their placeholders

    `outputs` are the results of the backward step, and `placeholders` its leaves for cotangents.

    Of the forward step's nodes, the backward step computes again what takes less time than to
    store and read it: element-wise operations other than the slow ones, of other residuals.
    """

    def __init__(
        self, body: ScanBody, outputs: Sequence[Node], placeholders: Sequence[Node]
    ) -> None:
        per_step = dependent_parts(outputs, [*body.states, *body.rows, body.number, *placeholders])
        dependent = per_step | dependent_parts(outputs, body.captured)
        forward = set(topological_until(body.outputs, ()))
        stored = self._stored(body, outputs, forward & per_step)
        self.stored: dict[Node, Node] = {}
        self.rows: dict[Node, None] = {}
        self.invariant: dict[Node, Node] = {}
        seen, stack = {body.number, *placeholders}, list(outputs)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in body.rows:
                self.rows[node] = None
            elif node in stored:
                self.stored[node] = body_argument(node.shape, node.dtype)
            elif node in dependent and node not in per_step:
                self.invariant[node] = body_argument(node.shape, node.dtype)
            else:
                stack += node.inputs

    @staticmethod
    def _stored(body: ScanBody, outputs: Sequence[Node], forward: set[Node]) -> set[Node]:
        """Return the nodes of the forward step whose values are stored for the backward step."""
        read = forward.intersection(topological_until(outputs, forward))
        stored: set[Node] = set()
        recomputed = {body.number, *body.rows}  # what the backward step has, and computes from that
        for node in topological_until(body.outputs, ()):
            if node not in forward or node in recomputed:
                continue
            varying = forward.intersection(node.inputs)
            if varying and _is_cheap(node) and recomputed.union(stored).issuperset(varying):
                recomputed.add(node)
            elif node in read:
                stored.add(node)
        return stored

    def replaced(self, nodes: Sequence[Node]) -> list[Node]:
        """Return expressions of the backward step, with placeholders for what it reads."""
        return substituted(nodes, {**self.stored, **self.invariant})


def _is_cheap(node: Node) -> bool:
    """Return True for element-wise operations that a processor computes as fast as it reads."""
    operation = node.operation
    return operation.is_elementwise and operation.flops(node) <= CHEAP_FLOPS * node.size


def dependent_parts(roots: Iterable[Node], sources: Collection[Node]) -> set[Node]:
    """Return the sources, and the nodes of the expressions `roots` that depend on them."""
    return dependents(topological_until(roots, sources), sources)
