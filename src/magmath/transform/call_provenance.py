"""The provenance of the results of compiled functions: a template for all calls, and the operands
of each call. Calls of which each continues the one before have one record (`call_chain`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from magmath.engine.lifetimes.kept_expressions import is_keeping_expressions, keep_expression
from magmath.graph import (
    Graph,
    Node,
    OperandReference,
    Provenance,
    recipe_of,
    set_provenance,
    weak_reference_to,
)
from magmath.graph.provenance.operand_references import reference_to_value
from magmath.transform.call_chain import CallChain, ChainMaker


@final
class ProvenanceTemplate:
    """The part of the provenance of a compiled function's results that all calls share.

    `position` maps the placeholders of arguments to the positions of the arguments. `outside` are
    other pending nodes that the function reads. `kinds` are the classes of the arguments, None if
    they must be examined further.
    """

    def __init__(
        self,
        traced: Graph,
        position: Mapping[Node, int],
        outside: Collection[Node],
        line: Any,
        kinds: Sequence[type] | None,
    ) -> None:
        order = traced.nodes
        self._recipe, captured, positions = recipe_of(order, outside)
        self._outputs = [positions[node] for node in traced.outputs]
        self._line = line
        self._operands: list[int | Node | OperandReference] = [
            position.get(node, node if node.name == "variable" else known)
            for node, known in zip([order[i] for i in self._recipe.operands], captured, strict=True)
        ]  # the position of an argument, a variable, or a captured array
        numbers = [n for n in order if n.name == "scalar" and n.value is None]
        self._recipe.numbers = [positions[node] for node in numbers]
        self._numbers = [position.get(node, node) for node in numbers]
        used = {x for x in (*self._operands, *self._numbers) if isinstance(x, int)}
        varies = any(isinstance(x, Node) for x in (*self._operands, *self._numbers))
        can_continue = kinds is not None and len(used) == len(kinds) and not varies
        self._chain_maker: ChainMaker | None = None
        if kinds is not None and can_continue:
            argument_of = [x if isinstance(x, int) else None for x in self._operands]
            self._chain_maker = ChainMaker(self._recipe, self._outputs, line, kinds, argument_of)
        self.chains: list[CallChain] = []
        """The latest calls, if each continues the one before: at most one chain, which a call takes
        from the list, so that no other thread has it."""

    def take_continued(self, arguments: Sequence[Any]) -> CallChain | None:
        """Take the chain of the latest calls, if a call with these arguments would continue it;
        otherwise return None."""
        if is_keeping_expressions():
            return None
        try:
            chain = self.chains.pop()
        except IndexError:
            return None
        return chain if chain.is_continued_by(arguments) else None

    def store_continued(
        self, leaves: Sequence[Node], chain: CallChain, arguments: Sequence[Any]
    ) -> None:
        """Store the provenance in the leaves of the results of a call that continues a chain."""
        chain.add(leaves, [arguments[x] for x in self._numbers] if self._numbers else ())  # type: ignore[index]
        self.chains.append(chain)

    def operands(self, arguments: Sequence[Any]) -> list[OperandReference]:
        """Return the operands of a call; they must be recorded before it assigns variables."""
        operands: list[OperandReference] = []
        for source in self._operands:
            if type(source) is int:
                argument = arguments[source]
                leaf = argument._leaf or argument.evaluated_leaf()
                keep_expression(leaf)
                operands.append(reference_to_value(argument._node, leaf))
            elif isinstance(source, Node):
                variable = source.value()  # None: only an earlier value of it was read
                operands.append(weak_reference_to(source if variable is None else variable.node))
            else:
                operands.append(source)  # type: ignore[arg-type]
        return operands

    def store(
        self,
        leaves: Sequence[Node],
        operands: list[OperandReference],
        arguments: Sequence[Any],
        drawn: Mapping[Node, float],
    ) -> None:
        """Store the provenance in the leaves of the results of a call."""
        chain = None if self._chain_maker is None else self._chain_maker.begin(operands)
        if chain is not None and not is_keeping_expressions():
            self.store_continued(leaves, chain, arguments)
            return
        numbers: Sequence[Any] = ()
        if self._numbers:
            numbers = [drawn[x] if isinstance(x, Node) else arguments[x] for x in self._numbers]
        common = Provenance.of(self._recipe, 0, tuple(operands), self._line, numbers)
        for leaf, output in zip(leaves, self._outputs):  # noqa: B905  assigned variables follow
            set_provenance(leaf, common.of_output(output, self._line))
