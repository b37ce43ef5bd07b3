"""The tape of a gradient: the operations between its sources and a result, found in the records of
the results that were computed eagerly."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

from magmath.autodiff.source_expression import SourceDependence
from magmath.core.type_aliases import Number
from magmath.engine.eager.eager_computation import MAX_READ, max_read
from magmath.graph import Node, Provenance, provenance_of
from magmath.graph.provenance.dependence import first_number_of, unchanged_sources
from magmath.graph.provenance.operand_references import (
    LeafReference,
    OperandReference,
    ProvenanceRecord,
    StrongLeafReference,
)
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.recipe import (
    NumberStep,
    RecipeEntry,
    RecipeStep,
    built_step,
    number_node,
)
from magmath.ops.leaves import SCALAR, input_leaf

if TYPE_CHECKING:
    import numpy as np

    from magmath.engine.eager.eager_computation import EagerComputation

MAX_RESULTS = 200
"""The number of results between sources and an output, above which a gradient is a program of the
workers."""
_RECOMPUTED = -1
"""In place of the position of an operand: the recipe has the operation that computes it."""


@final
class NotEagerError(Exception):
    """The result depends on more than operations on small arrays that this process stores."""


@final
class _Result(NamedTuple):
    """A result between the sources and the output.

    operands   for each operand that it reads, its position on the tape, or `_RECOMPUTED`
    is_stored  its value is stored, otherwise it is computed again
    """

    record: Provenance
    operands: tuple[int, ...]
    is_stored: bool


_Entry: TypeAlias = Node | _Result
"""The leaf of a source, or of an array that depends on none; or a result."""


@final
class GradientTape:
    """The operations by which an output was computed from sources.

    Without `through_gradients`, what depends on the sources through results of `mm.grad` alone
    counts as a constant, as in `gradients`.

    entries  the sources, followed by each result after its operands; the output is the last one
    sources  the positions of the sources, of which some may be the same array
    key      the same for all tapes of the same operations
    leaves   the arrays among the entries
    stored   the leaves of the results whose values are stored, in the order of the entries
    numbers  the numbers of user code
    """

    def __init__(
        self,
        eager: EagerComputation,
        output: Node,
        sources: Sequence[Node],
        *,
        through_gradients: bool,
    ) -> None:
        self._eager, self._through_gradients = eager, through_gradients
        self._output = output
        self.entries: list[_Entry] = []
        self.leaves: list[Node] = []
        self.stored: list[Node] = []
        self.numbers: list[Number] = []
        self._leaf_values: list[np.ndarray[Any, Any]] = []
        self._result_values: list[np.ndarray[Any, Any]] = []
        self._positions: dict[Node | ProvenanceRecord, int] = {}
        self._results = 0
        self._sources = frozenset(sources)
        self._dependence: dict[ProvenanceRecord, bool] = {}
        self._key: list[Hashable] = []
        self.sources = tuple([self._position_of_leaf(leaf) for leaf in sources])
        self._first_number = first_number_of(self._sources)
        if len(self._sources) > 1 and self._has_dependent_source():
            raise NotEagerError
        record = provenance_of(output)
        if record is None or output in self._sources or not self._is_dependent(record):
            raise NotEagerError
        self._position_of_result(record, output)
        self.key = (self.sources, *self._key)

    @property
    def values(self) -> list[np.ndarray[Any, Any]]:
        """The values of the leaves, followed by those of the results that are stored."""
        return self._leaf_values + self._result_values

    @property
    def stored_intermediates(self) -> list[Node]:
        """The stored results between the sources and the output.

        Later gradients may need them, although user code does not refer to them any more: the next
        mean of the parameters, which a loss reads, is computed from the former one, and that from
        the whole history of the training.
        """
        return [leaf for leaf in self.stored if leaf is not self._output]

    def _has_dependent_source(self) -> bool:
        """Return True if a source was computed from another one."""
        if not unchanged_sources(self._sources):  # all are new: few records are newer
            return any(map(self._is_dependent, map(provenance_of, self._sources)))
        dependence = SourceDependence(self._sources, through_gradients=self._through_gradients)
        return bool(dependence.on_others([*self._sources]))

    def _is_dependent(self, record: ProvenanceRecord | None) -> bool:
        """Return True if a result was computed from a source."""
        if record is None or record.sequence_number < self._first_number:
            return False
        depends = self._dependence.get(record)
        if depends is None:
            depends = self._dependence[record] = False  # until a source is found
            if len(self._dependence) > MAX_RESULTS:
                raise NotEagerError
            for operand in record.direct_operands(
                through_gradients=self._through_gradients, through_stops=False
            ):
                if self._source(operand) is not None or self._is_dependent(operand.provenance):
                    depends = True
                    break
            self._dependence[record] = depends
        return depends

    def _source(self, operand: OperandReference) -> Node | None:
        """Return the source that an operand is, or None."""
        node = operand.find()
        leaf = None if node is None else node.leaf_or_self
        return leaf if leaf in self._sources else None

    def _position_of_leaf(self, leaf: Node, max_bytes: int = MAX_READ) -> int:
        """Return the position of an array that depends on no source, or is one."""
        position = self._positions.get(leaf)
        if position is None:
            value = self._eager.stored_value(leaf, max_bytes)
            if value is None:
                raise NotEagerError
            position = self._append(leaf, leaf)
            self.leaves.append(leaf)
            self._leaf_values.append(value)
            self._key.append((leaf.shape, leaf.dtype))
        return position

    def _position_of_result(self, record: Provenance, leaf: Node | None) -> int:
        """Return the position of a result, after those of its operands; `leaf` has its value."""
        position = self._positions.get(record)
        if position is not None:
            return position
        recipe = record.recipe
        self._results += 1  # before its operands: a deep expression ends here, too
        if recipe is None or self._results > MAX_RESULTS:
            raise NotEagerError
        positions = []
        step = recipe.steps[record.output]
        max_bytes = MAX_READ
        if isinstance(step, RecipeStep):
            max_bytes = max_read(step.operation, step.shape, step.dtype)
        for i in recipe.read_by(record.output):
            operand = record.operands[i]
            if recipe.steps[recipe.operands[i]] is None:
                positions.append(self._position_of_operand(operand, max_bytes))
            else:
                source = self._source(operand)
                positions.append(_RECOMPUTED if source is None else self._positions[source])
        value = None if leaf is None else self._eager.stored_value(leaf)
        if value is not None:
            assert leaf is not None
            self.stored.append(leaf)
            self._result_values.append(value)
        result = _Result(record, tuple(positions), value is not None)
        self._key += (recipe, record.output, *result[1:])
        for i, number in record.numbers().items() if recipe.numbers else ():
            if _is_parameter(recipe.steps[i]):
                self.numbers.append(number)
            else:
                self._key.append(number or str(number))  # 0.0 equals -0.0
        return self._append(record, result)

    def _position_of_operand(self, operand: OperandReference, max_bytes: int) -> int:
        """Return the position of an operand of a result."""
        if not isinstance(operand, (LeafReference, StrongLeafReference)):
            raise NotEagerError
        leaf, before = operand.find(), provenance_before(operand)
        if leaf is not None and (leaf in self._sources or not self._is_dependent(before)):
            return self._position_of_leaf(leaf, max_bytes)
        if before is None:
            raise NotEagerError  # an array that does not exist any more
        return self._position_of_result(before, leaf)

    def _append(self, key: Node | ProvenanceRecord, entry: _Entry) -> int:
        position = self._positions[key] = len(self.entries)
        self.entries.append(entry)
        return position

    def nodes(self) -> TapeNodes:
        """Return the expression of the output, on leaves without values."""
        nodes: list[Node] = []
        numbers: list[Node] = []
        stored: list[tuple[Node, Node]] = []
        for entry in self.entries:
            if isinstance(entry, Node):
                nodes.append(self._leaf_like(entry))
                continue
            node = _built(entry, nodes, numbers)
            nodes.append(node)
            if entry.is_stored:
                stored.append((node, self._leaf_like(node)))
        leaves = [nodes[self._positions[leaf]] for leaf in self.leaves]
        return TapeNodes(leaves, numbers, stored, [nodes[i] for i in self.sources], nodes[-1])

    def _leaf_like(self, node: Node) -> Node:
        layout = self._eager.result_layout(node.shape)
        return input_leaf(node.shape, node.dtype, layout, None)


@final
class TapeNodes(NamedTuple):
    """The expression of an output, on leaves without values.

    leaves, numbers   those of the tape, in its order
    stored            the results whose values are stored, and leaves for these values
    """

    leaves: list[Node]
    numbers: list[Node]
    stored: list[tuple[Node, Node]]
    sources: list[Node]
    output: Node


def _is_parameter(step: object) -> bool:
    """Return True for a number of user code, and False for one that belongs to a function."""
    return isinstance(step, (Node, NumberStep)) and step.operation is SCALAR


def _built(entry: _Result, nodes: Sequence[Node], numbers: list[Node]) -> Node:
    """Return the node of a result on those of its operands; add its numbers to `numbers`."""
    record = entry.record
    recipe = record.recipe
    assert recipe is not None
    built: dict[int, Node | None] = {}
    for i, value in record.numbers().items():
        step = recipe.steps[i]
        assert isinstance(step, (Node, NumberStep))  # a node: an argument of a compiled function
        built[i] = node = number_node(step, value)
        if _is_parameter(step):
            numbers.append(node)
    read = recipe.read_by(record.output)
    for i, position in zip(read, entry.operands, strict=True):
        if position != _RECOMPUTED:
            built[recipe.operands[i]] = nodes[position]
    for i in recipe.reached(record.output):
        if i not in built:
            built[i] = _built_step(recipe.steps[i], built)
    output = built[record.output]
    assert output is not None
    return output


def _built_step(step: RecipeEntry, built: Mapping[int, Node | None]) -> Node | None:
    if isinstance(step, RecipeStep):
        return built_step(step, built, None, None)
    return number_node(step, step.value) if isinstance(step, NumberStep) else step
