"""The provenance of the results of compiled functions: a template for all calls, and the operands
of each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final
from weakref import ref

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

    def operands(self, arguments: Sequence[Any]) -> list[WeakOperand]:
        """Return the operands of a call; they must be recorded before it assigns variables."""
        operands: list[WeakOperand] = []
        for source in self._operands:
            if type(source) is int:
                argument = arguments[source]
                leaf = argument._leaf or argument.evaluated()
                keep_expression(leaf)
                operands.append(LeafOperand(ref(leaf), leaf.provenance))
            elif isinstance(source, Node):
                operands.append(weak_operand(source.value().node))
            else:
                operands.append(source)  # type: ignore[arg-type]
        return operands

    def note(
        self,
        leaves: Sequence[Node],
        operands: list[WeakOperand],
        arguments: Sequence[Any],
        drawn: Mapping[Node, float],
    ) -> None:
        """Store the provenance in the leaves of the results of a call."""
        numbers: Sequence[Any] = ()
        if self._numbers:
            numbers = [drawn[x] if isinstance(x, Node) else arguments[x] for x in self._numbers]
        for leaf, output in zip(leaves, self._outputs):  # noqa: B905  assigned variables follow
            known = Provenance.of(self._recipe, output, tuple(operands), self._line, numbers)
            set_provenance(leaf, known)
