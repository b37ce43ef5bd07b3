"""The output of a differentiation as an expression of its sources, also through evaluated arrays.

An evaluated array is a leaf, with a record of how it was computed (its provenance). If the record
depends on a source, the expression is built again from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import final

from magmath.graph import Node, provenance_of
from magmath.graph.graph import InputsOf, topological_until
from magmath.graph.provenance.dependence import (
    DependenceQuery,
    DependenceSearch,
    IsSource,
    first_number_of,
    unchanged_sources,
)
from magmath.graph.provenance.operand_references import OperandReference, ProvenanceRecord
from magmath.graph.provenance.rebuild import with_expressions
from magmath.ops.elementwise import STOP_GRADIENT


@final
@dataclass(frozen=True)
class SourceExpression:
    """An output as an expression of sources, also through evaluated arrays.

    sources    the sources in this expression
    leaves     the leaves with the values of the sources as they were given, or the sources
    rebuilt    the expressions in place of sources that depend on others, and these sources' leaves
    lost       the leaves through which the output depends on the sources and whose expressions
               cannot be built again
    constants  nodes that count as constants: gradients, results of `mm.stop_gradient`
    inputs_of  returns the inputs of a node that may depend on a source
    originals  the nodes of the expression as it was given, by those that take their places
    """

    output: Node
    sources: Sequence[Node]
    leaves: Collection[Node]
    rebuilt: Mapping[Node, Node]
    lost: Collection[Node]
    constants: set[Node]
    inputs_of: InputsOf
    originals: Mapping[Node, Node]

    def source_of(self, node: Node) -> Node | None:
        """Return the leaf with the value of the source that a node of the expression is, or None if
        it is none."""
        leaf = self.rebuilt.get(node, node.leaf_or_self)
        return leaf if leaf in self.leaves else None

    def order(self) -> list[Node]:
        """Return the nodes of the output that may depend on a source, each after its inputs."""
        ends = [*argument_sources(self.sources), *self.constants]
        return topological_until([self.output], ends, self.inputs_of)


def expressed_by_sources(
    output: Node, sources: Sequence[Node], *, through_gradients: bool
) -> SourceExpression:
    """Return the output as an expression of the sources.

    The gradient by a source includes what the output depends on through other sources. Expressions
    of those are therefore built again if they depend on a source. Without `through_gradients`,
    gradients count as constants, and no expression is built again for them alone.
    """
    source_leaves, ends = {node.leaf_or_self for node in sources}, argument_sources(sources)
    first_number = first_number_of(source_leaves)
    inputs_of = inputs_followed(first_number, through_gradients=through_gradients)
    order = topological_until([output], ends, inputs_of)
    source_nodes = source_leaves.union(
        sources, [node for node in order if node.leaf_or_self in source_leaves]
    )
    dependence = SourceDependence(source_nodes, through_gradients=through_gradients)
    constants = set[Node]()

    def is_end(node: Node) -> bool:
        operation = node.operation
        is_constant = operation is STOP_GRADIENT or (
            operation.is_gradient and not through_gradients
        )
        if is_constant and node not in source_nodes:
            constants.add(node)
        return node in ends or node in constants

    leaves = [node for node in source_nodes if provenance_of(node) is not None]
    dependent = [] if len(source_leaves) < 2 else dependence.on_others(leaves)
    roots, kept_leaves = [output, *sources, *dependent], source_nodes.difference(dependent)
    expressions = with_expressions(roots, kept_leaves, dependence, is_end=is_end)
    nodes = expressions.roots
    count = len(sources) + 1
    rebuilt = dict(zip(nodes[count:], [node.leaf_or_self for node in dependent], strict=True))
    originals = {image: node for node, image in expressions.images.items() if image is not node}
    return SourceExpression(
        nodes[0], nodes[1:count], source_leaves, rebuilt, expressions.lost, constants, inputs_of,
        originals,
    )  # fmt: skip


def inputs_followed(first_number: int, *, through_gradients: bool) -> InputsOf:
    """Return the function that returns the inputs of a node through which an output may depend on a
    source: none of a node that is older than all sources, which in a training loop would be the
    whole history of the parameters, and none of a constant."""

    def inputs_of(node: Node) -> Sequence[Node]:
        operation = node.operation
        is_constant = operation.is_gradient and not through_gradients
        if is_constant or operation is STOP_GRADIENT or node.sequence_number < first_number:
            return ()
        return node.inputs

    return inputs_of


@final
class SourceDependence:
    """Which records depend on sources.

    sources             the nodes with the values of the sources
    through_gradients   if False, gradients depend on nothing
    first_number        the sequence number before which nothing depends on a source
    """

    def __init__(self, sources: Collection[Node], *, through_gradients: bool) -> None:
        self._through_gradients = through_gradients
        self._leaves = {node: node.leaf_or_self for node in sources}
        leaves = set(self._leaves.values())
        self.first_number = first_number_of(leaves)
        # Parameters change in each step and are searched for among what is newer. Arrays that do
        # not change are the same query in each step, whose answers the records store.
        fixed = unchanged_sources(leaves)
        self._changing = leaves - fixed
        self._of_changing = self._search_for(self._changing, is_query=len(leaves) == 1)
        self._of_fixed = self._search_for(fixed, is_query=True)

    def _search_for(self, leaves: Collection[Node], *, is_query: bool) -> DependenceSearch:
        """Return the search for some of the sources, by their leaves."""
        nodes = {node for node, leaf in self._leaves.items() if leaf in leaves}
        query = None
        if leaves and is_query:
            query = DependenceQuery.of(leaves, through_gradients=self._through_gradients)

        def reads_source(operand: OperandReference) -> bool:
            return not nodes.isdisjoint(operand.nodes())

        return self._search(reads_source, leaves, query)

    def _search(
        self, is_source: IsSource, leaves: Collection[Node], query: DependenceQuery | None = None
    ) -> DependenceSearch:
        return DependenceSearch(
            is_source,
            through_gradients=self._through_gradients,
            through_stops=False,
            first_number=first_number_of(leaves) if leaves else maxsize,
            query=query,
        )

    def is_dependent(self, record: ProvenanceRecord) -> bool:
        """Return True if a value was computed, directly or indirectly, from a source."""
        return self._of_changing.is_dependent(record) or self._of_fixed.is_dependent(record)

    def is_dependent_leaf(self, leaf: Node) -> bool:
        """Return True if a leaf was computed from a source."""
        record = provenance_of(leaf)
        return record is not None and self.is_dependent(record)

    def on_others(self, leaves: Sequence[Node]) -> list[Node]:
        """Return the sources' leaves, of those with provenance, whose values were computed from
        other sources."""
        changing, dependent = self._changing, []
        for leaf in leaves:
            record, own_leaf = provenance_of(leaf), leaf.leaf_or_self
            if record is None:
                continue

            def is_other(read: OperandReference, own_leaf: Node = own_leaf) -> bool:
                for node in read.nodes():
                    leaf = node.leaf_or_self
                    if leaf is not own_leaf and leaf in changing:
                        return True
                return False

            search = self._search(is_other, changing)
            if self._of_fixed.is_dependent(record) or search.is_dependent(record):
                dependent.append(leaf)
        return dependent


def argument_sources(sources: Sequence[Node]) -> set[Node]:
    """Return the sources that are arguments of a differentiated function.

    Their own expressions, which may be the pending steps of a long loop, are not part of the
    function.
    """
    return {node for node in sources if node.name == "argument"}
