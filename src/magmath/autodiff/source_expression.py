"""The output of a differentiation as an expression of its sources, also through evaluated arrays.

An evaluated array is a leaf, with a record of how it was computed (its provenance). If the record
depends on a source, the expression is built again from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from magmath.autodiff.scan_gradients import without_short_loops
from magmath.graph import Node, provenance_of
from magmath.graph.graph import topological_until
from magmath.graph.provenance.dependence import DependenceQuery, depends_on
from magmath.graph.provenance.rebuild import with_expressions
from magmath.graph.provenance.recorded_operands import ProvenanceRecord, RecordedOperand


@final
@dataclass(frozen=True)
class SourceExpression:
    """An output as an expression of sources, also through evaluated arrays.

    sources    the sources in this expression
    known      the leaves with the values of the sources as they were given, or the sources
    rebuilt    the expressions in place of sources that depend on others, and these sources' leaves
    lost       the leaves through which the output depends on the sources and whose expressions
               cannot be built again
    constants  gradients that count as constants
    """

    output: Node
    sources: Sequence[Node]
    known: Collection[Node]
    rebuilt: Mapping[Node, Node]
    lost: Collection[Node]
    constants: set[Node]

    def source_of(self, node: Node) -> Node | None:
        """Return the leaf with the value of the source that a node of the expression is, or None if
        it is none."""
        leaf = self.rebuilt.get(node, node.known)
        return leaf if leaf in self.known else None


def expressed_by_sources(
    output: Node, sources: Sequence[Node], *, through_gradients: bool
) -> SourceExpression:
    """Return the output as an expression of the sources.

    The gradient by a source includes what the output depends on through other sources. Expressions
    of those are therefore built again if they depend on a source. Without `through_gradients`,
    gradients count as constants, and no expression is built again for them alone.
    """
    source_leaves, ends = {node.known for node in sources}, argument_sources(sources)
    order = topological_until([output], ends)
    source_nodes = source_leaves.union(
        sources, [node for node in order if node.known in source_leaves]
    )
    dependence = SourceDependence(source_nodes, through_gradients=through_gradients)
    constants = set[Node]()

    def is_end(node: Node) -> bool:
        if not through_gradients and node.operation.is_gradient and node not in source_nodes:
            constants.add(node)
        return node in ends or node in constants

    leaves = [node for node in source_nodes if provenance_of(node) is not None]
    dependent = [] if len(source_leaves) < 2 else dependence.on_others(leaves)
    roots, kept = [output, *sources, *dependent], source_nodes.difference(dependent)
    images, lost = with_expressions(
        roots, kept, dependence.reads_source, is_end=is_end, through_gradients=through_gradients,
        through_stops=False,
        first_number=dependence.first_number, query=dependence.query,
    )  # fmt: skip
    images = without_short_loops(images, {*ends, *constants})
    count = len(sources) + 1
    rebuilt = dict(zip(images[count:], [node.known for node in dependent], strict=True))
    return SourceExpression(images[0], images[1:count], source_leaves, rebuilt, lost, constants)


@final
class SourceDependence:
    """Which records depend on sources.

    sources             the nodes with the values of the sources
    through_gradients   if False, gradients depend on nothing
    """

    def __init__(self, sources: Collection[Node], *, through_gradients: bool) -> None:
        self._sources, self._through = set(sources), through_gradients
        self._known = {node.known for node in self._sources}
        records = [provenance_of(node) for node in self._known]
        self.first_number = min([0 if x is None else x.sequence_number for x in records], default=0)
        """The sequence number of records before which none depends on a source."""
        self._answers: dict[ProvenanceRecord, bool] = {}
        self.query: DependenceQuery | None = None
        if len(self._sources) == 1:
            (only,) = self._sources
            self.query = DependenceQuery.of(only, through_gradients=through_gradients)

    def has(self, leaf: Node) -> bool:
        """Return True if a leaf was computed from a source."""
        record = provenance_of(leaf)
        return record is not None and depends_on(
            record, self.reads_source, self._answers, through_gradients=self._through,
            through_stops=False,
            first_number=self.first_number, query=self.query,
        )  # fmt: skip

    def reads_source(self, operand: RecordedOperand) -> bool:
        """Return True if a record reads a source."""
        return not self._sources.isdisjoint(operand.nodes())

    def on_others(self, leaves: Sequence[Node]) -> list[Node]:
        """Return the sources' leaves whose values were computed from other sources."""
        source_leaves, dependent = self._known, []
        for leaf in leaves:
            record, own = provenance_of(leaf), leaf.known

            def is_other(read: RecordedOperand, own: Node = own) -> bool:
                return any(x.known in source_leaves and x.known is not own for x in read.nodes())

            if record is not None and depends_on(
                record, is_other, {}, through_gradients=self._through, through_stops=False,
                first_number=self.first_number,
            ):  # fmt: skip
                dependent.append(leaf)
        return dependent


def argument_sources(sources: Sequence[Node]) -> set[Node]:
    """Return the sources that are arguments of a differentiated function.

    Their own expressions, which may be the pending steps of a long loop, are not part of the
    function.
    """
    return {node for node in sources if node.name == "argument"}
