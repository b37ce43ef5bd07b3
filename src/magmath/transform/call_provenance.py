"""The provenance of the results of compiled functions: a template for all calls, and the operands
of each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, final

from magmath.engine.kept_expressions import keep_expression
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    WeakOperand,
    recipe_of,
    set_provenance,
    weak_operand,
)
from magmath.graph.provenance import LeafOperand


@final
class ProvenanceTemplate:
    """The part of the provenance of a compiled function's results that all calls share.

    `position` maps the placeholders of arguments to the positions of the arguments.
    """

    def __init__(self, traced: Graph, position: Mapping[Node, int], line: Any) -> None:
        order = traced.nodes
        self._recipe, captured, positions = recipe_of(order, ())
        self._outputs = [positions[node] for node in traced.outputs]
        self._line = line
        self._operands: list[int | Node | WeakOperand] = [
            position.get(node, node if node.name == "variable" else known)
            for node, known in zip([order[i] for i in self._recipe.operands], captured, strict=True)
        ]  # the position of an argument, a variable, or a captured array
        given = [n for n in order if n.name == "parameter" and n.value is None]
        self._recipe.numbers = [positions[node] for node in given]
        self._numbers = [position.get(node, node) for node in given]

    def call(
        self, arguments: Sequence[Any], drawn: Mapping[Node, float]
    ) -> Callable[[Sequence[Node]], None]:
        """Record the operands of a call before it assigns variables.

        Returns a function that stores the provenance in the leaves of the results.
        """
        operands: list[WeakOperand] = []
        for source in self._operands:
            if type(source) is int:
                argument = arguments[source]
                leaf = argument._leaf or argument.evaluated()
                keep_expression(leaf)
                operands.append(LeafOperand(leaf))
            elif isinstance(source, Node):
                operands.append(weak_operand(source.value().node))
            else:
                operands.append(source)  # type: ignore[arg-type]
        numbers: Sequence[Any] = ()
        if self._numbers:
            numbers = [drawn[x] if isinstance(x, Node) else arguments[x] for x in self._numbers]
        return partial(self._store, operands, numbers)

    def _store(
        self, operands: list[WeakOperand], numbers: Sequence[Any], leaves: Sequence[Node]
    ) -> None:
        for leaf, output in zip(leaves, self._outputs):  # noqa: B905  assigned variables follow
            set_provenance(leaf, Provenance(self._recipe, output, operands, self._line, numbers))
