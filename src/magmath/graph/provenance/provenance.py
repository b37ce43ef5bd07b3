"""Provenance: the record of how the value of an array was computed, as far as it can be computed
again.

An evaluated array becomes a leaf, and its expression is dropped, so that operands without other
references are freed. The provenance of the leaf stores the structure of the expression and refers
to its operands weakly. A gradient can therefore pass through an evaluated array as long as the
operands exist; intermediate values are computed again. If an operand no longer exists, `grad` still
knows that the array depended on it, and raises an error instead of returning zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast, final

from magmath.core.type_aliases import Number
from magmath.graph.operation import Line, Node, next_sequence_number
from magmath.graph.provenance.operand_references import (
    OperandReference,
    ProvenanceRecord,
    VersionReference,
    record_of,
)
from magmath.graph.provenance.provenance_chains import MAX_LENGTH, chain_before, operands_before
from magmath.graph.provenance.recent_array_cache import KeptArray, keep_recent
from magmath.graph.provenance.recipe import NumberStep, Recipe, built_step, number_node

SMALL_BYTES = 1 << 20
"""Maximum bytes of the operands that the provenance of an implicitly computed value keeps alive."""

KEPT_BYTES = 4096
"""Bytes of kept operands that count as one operation for the length of a chain, which thus keeps at
most 80 MB."""

Replace = Callable[[OperandReference], "Node | None"]


class Loop(Protocol):
    """A loop on the workers, whose expression is unrolled when it is needed.

    `length` is the number of operations of all its steps.
    """

    length: int

    def unrolled(self) -> tuple[Recipe, Sequence[int]]:
        """Return all steps as one recipe, and the positions of the results in it."""


@final
class Provenance(ProvenanceRecord, eq=False, gc=False):
    """The record of how the value of a leaf was computed: the output of a recipe at a position,
    from operands.

    `operands` and `numbers` are those of the recipe, in its order. The recipe of a loop is unrolled
    when the expression is needed; until then `output` is the number of the result. Without recipe
    and loop, the operands are known and the expression is not.
    """

    recipe: Recipe | None = None
    output: int = 0
    _numbers: Sequence[Number] = ()
    _loop: Loop | None = None
    _kept: Sequence[Node | KeptArray | None] = ()
    _direct: Sequence[OperandReference] | None = None
    """Of a dropped expression, the operands from which it was not computed through gradients."""

    @staticmethod
    def of(
        recipe: Recipe,
        output: int,
        operands: Sequence[OperandReference],
        line: Line,
        numbers: Sequence[Number] = (),
        sequence_number: int | None = None,
    ) -> Provenance:
        """Return the provenance of a recipe's output; `sequence_number` is that of the node whose
        value it is, if there is one."""
        kept_bytes, length, start = chain_before(operands)
        length += recipe.length + kept_bytes // KEPT_BYTES
        number = sequence_number or next_sequence_number()
        return _new(line, operands, length, start, number, 0, None, recipe, output, numbers)

    def of_output(self, output: int, line: Line, sequence_number: int | None = None) -> Provenance:
        """Return the provenance of another output of the same computation; `sequence_number` as
        in `of`."""
        number = sequence_number or self.sequence_number
        return Provenance(
            line, self.operands, self.length, self.start, number, 0, None, self.recipe, output,
            self._numbers,
        )  # fmt: skip

    @staticmethod
    def of_loop(
        loop: Loop, output: int, operands: Sequence[OperandReference], line: Line
    ) -> Provenance:
        """Return the provenance of a loop's result, by its number; the operands are in the order of
        its recipe."""
        _, length, start = chain_before(operands)
        provenance = Provenance(line, operands, length + 1, start, output=output, _loop=loop)
        if loop.length <= MAX_LENGTH:
            provenance.length += loop.length
            # All loops of a chain through which gradients pass keep at most this much.
            provenance._keep_up_to(SMALL_BYTES * loop.length // MAX_LENGTH)
        return provenance

    @property
    def is_dropped(self) -> bool:
        return self._direct is not None

    @property
    def reads_gradients(self) -> bool:
        recipe = self.recipe
        if recipe is None:  # the same sequence, unless they were different when it was dropped
            return self._direct is not None and self._direct is not self.operands
        return recipe.reads_gradients

    def drop_expression(
        self, operands: Sequence[OperandReference], direct: Sequence[OperandReference]
    ) -> None:
        self.operands, self._direct = operands, direct
        self.recipe, self._loop, self._kept = None, None, ()

    def direct_operands(
        self, *, through_gradients: bool = True, through_stops: bool = True
    ) -> Sequence[OperandReference]:
        operands = self.operands
        recipe = self.recipe
        if recipe is None:
            return operands if self._direct is None or through_gradients else self._direct
        read = recipe.read_by(
            self.output, through_gradients=through_gradients, through_stops=through_stops
        )
        if len(read) == len(operands):
            return operands
        return [operands[i] for i in read]

    def numbers(self) -> dict[int, Number]:
        """Return the numbers whose values this record stores, by their positions in the recipe."""
        recipe = self.recipe
        return {} if recipe is None else dict(zip(recipe.numbers, self._numbers, strict=True))

    def arrays(self) -> tuple[list[Node], list[Node]]:
        """Return the existing arrays from which the value was computed directly, for callers that
        keep them alive: plain ones, and values of variables."""
        plain, values = [], []
        for operand in self.direct_operands():
            node = operand.leaf() if isinstance(operand, VersionReference) else operand.find()
            if node is None:
                continue
            if isinstance(operand, VersionReference):
                values.append(node)
            elif not node.reads_version:
                plain.append(node.leaf_or_self)
        return plain, values

    def keep_recent(self, leaves: Iterable[Node]) -> None:
        """Keep arrays alive as those that were read last (`recent_array_cache.py`)."""
        self._kept = [keep_recent(leaf, leaf.nbytes) for leaf in leaves]

    def keep_arrays(self) -> None:
        """Keep the arrays alive from which the value was computed directly, if they are small."""
        self._keep_up_to(SMALL_BYTES)

    def _keep_up_to(self, nbytes: int) -> None:
        plain, _ = self.arrays()
        if sum([node.nbytes for node in plain]) <= nbytes:
            self.keep(plain)

    def keep(self, arrays: Sequence[Node]) -> None:
        """Keep some of the arrays alive from which the value was computed directly."""
        self._kept = arrays
        # The kept arrays keep others: all of them are one chain, also where the operands are nodes
        # whose provenance was not known when they were read.
        own_length = 1 if self.recipe is None else self.recipe.length
        for record in map(record_of, arrays):
            if record is not None and record is not self:
                self.length = max(self.length, record.length + own_length)
                self.start = max(self.start, record.start)
        self.length += sum([node.nbytes for node in arrays]) // KEPT_BYTES

    def expression(self, value: Node, replace: Replace) -> Node | None:
        """Return the expression, built again; `value` is the leaf that holds its value.

        `replace` returns the node for an operand, or None if it no longer exists. Returns None if
        an operand no longer exists and cannot be built again.
        """
        built: dict[Provenance, Node | None] = {}
        stack = [self]
        while stack:
            record = stack[-1]
            missing = [
                earlier
                for operand in record.direct_operands()
                if (earlier := provenance_before(operand)) is not None
                and earlier not in built
                and replace(operand) is None
            ]
            stack += missing
            if not missing:
                stack.pop()
                built[record] = record._built(built, value if record is self else None, replace)
        return built[self]

    def _built(
        self, earlier: Mapping[Provenance, Node | None], value: Node | None, replace: Replace
    ) -> Node | None:
        """Return the expression; `earlier`: those of the operands that no longer exist."""
        recipe, output = self.recipe, self.output
        if self._loop is not None and self._loop.length <= MAX_LENGTH:
            recipe, outputs = self._loop.unrolled()
            output = outputs[output]
        if recipe is None:
            return None
        operands = dict(zip(recipe.operands, self.operands, strict=True))
        if self._loop is None and recipe.steps[output] is not None:
            operands.pop(output, None)  # the value itself; an operand that is returned stays
        numbers = dict(zip(recipe.numbers, self._numbers, strict=True))
        built: dict[int, Node | None] = {}
        for i in recipe.reached(output):
            step = recipe.steps[i]
            if isinstance(step, (Node, NumberStep)):
                built[i] = _node_of_number(step, numbers.get(i))
                continue
            node = _node_of_operand(operands.get(i), earlier, replace)
            if node is None and step is not None:
                node = built_step(step, built, value if i == output else None, self.line)
            built[i] = node
        return built[output]

    def why_lost(self) -> str:
        """Return why the expression cannot be built again."""
        operands = [*operands_before(self)]
        records = [record for record in map(provenance_before, operands) if record is not None]
        unknown = [record for record in (self, *records) if record.recipe is None]
        for record in unknown:
            if record._loop is not None and record._loop.length > MAX_LENGTH:
                return (
                    f"it is the result of a loop on the workers (mm.fori_loop, mm.scan) of "
                    f"{record._loop.length:,} operations, and gradients go through {MAX_LENGTH:,}"
                )
        if any(record._loop is None for record in unknown):
            return f"more than {MAX_LENGTH:,} operations were made of it since"
        if any(isinstance(x, VersionReference) and x.find() is None for x in operands):
            return "a variable that it was computed from was assigned since"
        return "an array that it was computed from does not exist any more"


_new: Callable[..., Provenance] = Provenance


def _node_of_number(step: Node | NumberStep, value: Number | None) -> Node:
    """Return the node of a number, with the value that a record stores, if it stores one."""
    if value is not None:
        return number_node(step, value)
    return step if isinstance(step, Node) else number_node(step, step.value)


def _node_of_operand(
    operand: OperandReference | None, earlier: Mapping[Provenance, Node | None], replace: Replace
) -> Node | None:
    """Return the node of an operand or, if it no longer exists, its expression among `earlier`."""
    if operand is None:
        return None
    node, record = replace(operand), provenance_before(operand)
    return earlier.get(record) if node is None and record is not None else node


def provenance_before(operand: OperandReference) -> Provenance | None:
    """Return the provenance of an operand."""
    return cast("Provenance | None", operand.provenance)


def provenance_of(leaf: Node) -> Provenance | None:
    """Return the provenance of a leaf, or None if it has none."""
    return cast("Provenance | None", record_of(leaf))
