"""Provenance: the record of how the value of an array was computed, as far as it can be computed
again.

An evaluated array becomes a leaf, and its expression is dropped, so that operands without other
references are freed. The provenance of the leaf stores the structure of the expression and refers
to its operands weakly. A gradient can therefore pass through an evaluated array as long as the
operands exist; intermediate values are computed again. If an operand no longer exists, `grad` still
knows that the array depended on it, and raises an error instead of returning zero.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import prod
from types import MappingProxyType
from typing import Protocol, final
from weakref import ref

from msgspec import Struct

from magmath.core.reference_counts import COUNTING, references
from magmath.graph.operation import Line, Node, WeakResult, make_node, set_result
from magmath.graph.recipe import (
    Number,
    NumberStep,
    Recipe,
    RecipeStep,
    Step,
    built_step,
    number_node,
)

MAX_LENGTH = 20_000
"""Maximum length of a chain of recorded operations; of earlier ones only the operands are
recorded."""

SHORT_LENGTH = 4
"""Length of chains that are not shortened, such as the `2 * y` of each step of `x += 2 * y`. A long
chain has one of them at each operation, and to shorten one, the arrays before it are searched."""

SMALL_BYTES = 1 << 20
"""Maximum bytes of the operands that the provenance of an implicitly computed value keeps alive."""

MAX_KEPT = 128 << 10
"""Bytes of the largest operand that a provenance keeps alive because it is no result itself."""
KEPT_BYTES = 4096
"""Bytes of kept operands that count as one operation for the length of a chain, which thus keeps at
most 80 MB."""


NO_NODES: Mapping[Node, Node] = MappingProxyType({})
_serials = count(1)
# Records refer to earlier records only, so they form no cycles (gc=False): collections of garbage
# need not walk along their chains.


class RecordedOperand:
    """A reference to an array that an expression read, a weak one unless the array is small and
    could not be computed again; an abstract class, but not an ABC, whose instance checks are slow.

    `provenance` is that of the array.
    """

    __slots__ = ()
    kept_bytes = 0
    """The bytes of an array that the operand keeps alive."""
    provenance: Provenance | None

    def find(self) -> Node | None:
        """Return the node that was read, or the leaf with its value; None if neither exists any
        more."""
        raise NotImplementedError

    def nodes(self) -> Sequence[Node]:
        """Return the existing ones of the node, the leaf with its value, and the variable."""
        raise NotImplementedError


@final
class LeafOperand(RecordedOperand, Struct, eq=False, gc=False):
    """A leaf that was read.

    A compiled function reuses the leaf of an unreferenced result for its next result, with another
    provenance; the reference is then no longer valid.
    """

    _leaf: ref[Node]
    provenance: Provenance | None
    _serial: int = 0

    @staticmethod
    def of(leaf: Node) -> LeafOperand:
        """Return a weak reference to a leaf with its current value."""
        return LeafOperand(ref(leaf), provenance_of(leaf))

    def find(self) -> Node | None:
        leaf = self._leaf()
        if leaf is None or leaf.provenance is self.provenance:
            return leaf
        made = leaf.provenance
        is_same = self._serial and made is not None and made.serial == self._serial
        return leaf if is_same else None

    def nodes(self) -> Sequence[Node]:
        leaf = self.find()
        return () if leaf is None else (leaf,)

    def identify(self) -> None:
        """Refer to the present value of the leaf, although its provenance is another one."""
        leaf = self._leaf()
        if leaf is not None and leaf.provenance is not None:
            leaf.provenance.serial = leaf.provenance.serial or next(_serials)
            self._serial = leaf.provenance.serial

    def forget_provenance(self) -> None:
        """Drop the provenance of the array."""
        before = self.provenance
        if before is not None:
            before.serial = before.serial or next(_serials)
            self._serial, self.provenance = before.serial, None


@final
class KeptOperand(RecordedOperand, Struct, eq=False, gc=False):
    """A small leaf that was read and that is no result itself: it is kept alive, since it could not
    be computed again. The arrays of leaves without provenance never change."""

    _leaf: Node
    kept_bytes: int
    provenance: Provenance | None = None

    def find(self) -> Node | None:
        return self._leaf

    def nodes(self) -> Sequence[Node]:
        return (self._leaf,)


@final
class NodeOperand(RecordedOperand):
    """A node that was read by a pending expression, or a node whose value is known by now."""

    __slots__ = ("_node", "_result", "is_pending", "provenance")

    def __init__(self, node: Node) -> None:
        self._node = ref(node)
        self.provenance: Provenance | None = None
        self.is_pending = not isinstance(node.value, Node)
        if isinstance(node.value, Node):
            self.provenance = provenance_of(node.value)
            self._result: Callable[[], Node | None] = ref(node.value)
            return
        result = node.result
        if result is None:
            result = WeakResult()
            set_result(node, result)
        self._result = result

    def find(self) -> Node | None:
        return self._node() or self._result()

    def nodes(self) -> Sequence[Node]:
        return [node for node in (self._node(), self._result()) if node is not None]


@final
class VersionOperand(RecordedOperand):
    """A value of a variable that was read: the leaf of the variable, which always exists, the
    number of the value among all values of the variable, and the leaf with the value."""

    __slots__ = ("_version", "leaf", "number", "provenance", "variable")

    def __init__(self, node: Node) -> None:
        self.provenance: Provenance | None = None
        self.variable, value = node.inputs
        self.number: int = node.attributes["number"]
        self.leaf = ref(value)
        self._version = node.operation

    def find(self) -> Node | None:
        leaf = self.leaf()
        if leaf is None:
            return None
        attributes = MappingProxyType({"number": self.number})
        inputs = (self.variable, leaf)
        return make_node(self._version, inputs, attributes, leaf.shape, leaf.dtype, value=leaf)

    def nodes(self) -> Sequence[Node]:
        return (self.variable,)


Replace = Callable[[RecordedOperand], "Node | None"]


def weak_operand(node: Node) -> RecordedOperand:
    """Return a weak reference to a node that an expression reads."""
    if node.operation.leaf:
        return LeafOperand.of(node)
    return VersionOperand(node) if node.operation.version else NodeOperand(node)


def operand_of(node: Node) -> RecordedOperand:
    """Return a reference to a node that an expression reads: a strong one if it is a small array
    that is no result itself, otherwise a weak one."""
    return operand_of_array(node) if node.operation.name == "input" else weak_operand(node)


def operand_of_array(leaf: Node) -> RecordedOperand:
    """Return `operand_of` of the leaf of an array."""
    before = leaf.provenance
    if before is not None:
        return LeafOperand(
            ref(leaf), before if type(before) is Provenance else before.recorded(leaf)
        )
    nbytes = prod(leaf.shape) * leaf.dtype.itemsize
    return LeafOperand(ref(leaf), None) if nbytes > MAX_KEPT else KeptOperand(leaf, nbytes)


def recipe_of(
    order: Sequence[Node], held: Container[Node], overwritten: Mapping[Node, Node] = NO_NODES
) -> tuple[Recipe, list[RecordedOperand], dict[Node, int]]:
    """Return the recipe of an expression, its operands, and the positions of its nodes.

    Nodes in `held` have references from outside the expression. `overwritten` maps leaves whose
    memory was reused to leaves without values, which take their places: the gradient of a write
    needs no former value.
    """
    position = {node: i for i, node in enumerate(order)}
    steps: list[Step] = []
    operands: list[RecordedOperand] = []
    positions: list[int] = []
    for i, node in enumerate(order):
        operation = node.operation
        if node.value is None and not operation.leaf:
            sources = tuple(map(position.__getitem__, node.inputs))
            steps.append(
                RecipeStep(
                    operation, node.attributes, node.shape, node.dtype, node.layout, node.line,
                    node.signature, sources,
                )
            )  # fmt: skip
            if node not in held:
                continue
        elif operation.name == "parameter" and node.provenance is None:
            steps.append(node)
            continue
        else:
            steps.append(None)
        positions.append(i)
        empty = overwritten.get(node) if node.provenance is None else None
        operands.append(operand_of(node) if empty is None else KeptOperand(empty, 0))
    _replace_numbers(steps, position)
    return Recipe(steps, positions), operands, position


def _replace_numbers(steps: list[Step], position: Mapping[Node, int]) -> None:
    """Store numbers without their nodes, if only this list, the order and the positions of the
    expression, and one operation refer to these."""
    nodes = [step for step in steps if type(step) is Node]
    for node, found in zip(nodes, references(nodes), strict=True):
        if found == COUNTING + 4 and node.provenance is None:
            steps[position[node]] = NumberStep(node.operation, node.dtype, node.value)


class Loop(Protocol):
    """A loop on the workers, whose expression is unrolled when it is needed.

    `length` is the number of operations of all its steps.
    """

    length: int

    def unrolled(self) -> tuple[Recipe, Sequence[int]]:
        """Return all steps as one recipe, and the positions of the results in it."""


@final
class Provenance(Struct, eq=False, gc=False):
    """The record of how the value of a leaf was computed: the output of a recipe at a position,
    from operands.

    `operands` and `numbers` are those of the recipe, in its order. The recipe of a loop is unrolled
    when the expression is needed; until then `output` is the number of the result. Without recipe
    and loop, the operands are known and the expression is not.
    """

    _recipe: Recipe | None
    _output: int
    _operands: Sequence[RecordedOperand]
    line: Line
    _numbers: Sequence[Number] = ()
    _length: int = 1
    """The number of operations of the longest chain before and with this one, those included whose
    expressions were dropped."""
    _loop: Loop | None = None
    _kept: Sequence[Node] = ()
    serial: int = 0
    """Different for each provenance that an operand has dropped."""
    depth: int = 1
    """Larger than that of every record on which this one depends, or `UNKNOWN_DEPTH`."""
    _start: int = 0
    """The length up to which expressions were dropped."""
    _direct: Sequence[RecordedOperand] | None = None
    """Of a dropped expression, the operands from which it was not computed through gradients."""
    answer: object = None
    """The answer to the last query whether the value was computed from an array
    (`graph/dependence.py`)."""

    @staticmethod
    def of(
        recipe: Recipe,
        output: int,
        operands: Sequence[RecordedOperand],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Provenance:
        """Return the provenance of a recipe's output."""
        kept, length, start, depth = _chain(operands)
        length += recipe.length + kept // KEPT_BYTES
        return Provenance(
            recipe, output, operands, line, numbers, length, None, (), 0, depth, start
        )

    def of_output(self, output: int, line: Line) -> Provenance:
        """Return the provenance of another output of the same computation."""
        return Provenance(
            self._recipe, output, self._operands, line, self._numbers, self._length, None, (), 0,
            self.depth, self._start,
        )  # fmt: skip

    @staticmethod
    def of_loop(
        loop: Loop, output: int, operands: Sequence[RecordedOperand], line: Line
    ) -> Provenance:
        """Return the provenance of a loop's result, by its number; the operands are in the order of
        its recipe."""
        _, length, start, depth = _chain(operands)
        found = Provenance(None, output, operands, line, (), length + 1, loop, (), 0, depth, start)
        if loop.length <= MAX_LENGTH:
            found._length += loop.length
            # All loops of a chain through which gradients pass keep at most this much.
            found._keep_up_to(SMALL_BYTES * loop.length // MAX_LENGTH)
        return found

    def is_of(self, recipe: Recipe) -> bool:
        """Return True for the record of an output of this recipe."""
        return self._recipe is recipe

    @property
    def output(self) -> int:
        """The position of the output in the recipe."""
        return self._output

    @property
    def recipe_operands(self) -> Sequence[RecordedOperand]:
        """The operands of the recipe, in its order."""
        return self._operands

    def direct_operands(
        self, *, through_gradients: bool = True, through_stops: bool = True
    ) -> Sequence[RecordedOperand]:
        """Return the operands from which the value was computed directly.

        With `through_gradients=False`, operands that are reached only through results of `mm.grad`
        are left out.
        """
        operands = self._operands
        if self._recipe is None:
            is_dropped = self._direct is not None and not through_gradients
            return self._direct if is_dropped else operands  # type: ignore[return-value]
        read = self._recipe.read_by(
            self._output, through_gradients=through_gradients, through_stops=through_stops
        )
        if len(read) == len(operands):
            return operands
        return [operands[i] for i in read]

    def arrays(self) -> tuple[list[Node], list[Node]]:
        """Return the existing arrays from which the value was computed directly, for callers that
        keep them alive: plain ones, and values of variables."""
        plain, values = [], []
        for x in self.direct_operands():
            node = x.leaf() if isinstance(x, VersionOperand) else x.find()
            if node is None:
                continue
            if isinstance(x, VersionOperand):
                values.append(node)
            elif not node.reads_version:
                plain.append(node.known)
        return plain, values

    def keep_arrays(self) -> None:
        """Keep the arrays alive from which the value was computed directly, if they are small."""
        self._keep_up_to(SMALL_BYTES)

    def _keep_up_to(self, nbytes: int) -> None:
        plain, _ = self.arrays()
        kept = sum([node.nbytes for node in plain])
        if kept > nbytes:
            return
        self._kept = plain
        # The kept arrays keep others: all of them are one chain, also where the operands are nodes
        # whose provenance was not known when they were read.
        own = 1 if self._recipe is None else self._recipe.length
        for before in map(provenance_of, plain):
            if before is not None and before is not self:
                self._length = max(self._length, before._length + own)
                self._start = max(self._start, before._start)
        self._length += kept // KEPT_BYTES

    def all_operands(self, *, through_gradients: bool = True) -> Iterator[RecordedOperand]:
        """Yield all operands from which the value was computed, directly or indirectly."""
        seen, stack = set[object]((self,)), [self]
        while stack:
            for x in stack.pop().direct_operands(through_gradients=through_gradients):
                if x in seen:  # several records share an operand
                    continue
                seen.add(x)
                yield x
                before = x.provenance
                if before is not None and before not in seen:
                    seen.add(before)
                    stack.append(before)

    def all_nodes(self, *, through_gradients: bool = True) -> Iterator[Node]:
        """Yield all existing nodes from which the value was computed, directly or indirectly."""
        for x in self.all_operands(through_gradients=through_gradients):
            yield from x.nodes()

    def expression(self, value: Node, replace: Replace) -> Node | None:
        """Return the expression, built again; `value` is the leaf that holds its value.

        `replace` returns the node for an operand, or None if it no longer exists. Returns None if
        an operand no longer exists and cannot be built again.
        """
        built: dict[Provenance, Node | None] = {}
        stack = [self]
        while stack:
            last = stack[-1]
            gone = [
                x.provenance
                for x in last.direct_operands()
                if x.provenance is not None and x.provenance not in built and replace(x) is None
            ]
            stack += gone
            if not gone:
                stack.pop()
                built[last] = last._built(built, value if last is self else None, replace)
        return built[self]

    def _built(
        self, before: Mapping[Provenance, Node | None], value: Node | None, replace: Replace
    ) -> Node | None:
        """Return the expression, given the expressions of the operands that no longer exist."""
        recipe, output = self._recipe, self._output
        if self._loop is not None and self._loop.length <= MAX_LENGTH:
            recipe, outputs = self._loop.unrolled()
            output = outputs[output]
        if recipe is None:
            return None
        operands = dict(zip(recipe.operands, self._operands, strict=True))
        if self._loop is None and recipe.steps[output] is not None:
            operands.pop(output, None)  # the value itself; an operand that is returned stays
        numbers = dict(zip(recipe.numbers, self._numbers, strict=True))
        built: dict[int, Node | None] = {}
        for i in recipe.reached(output):
            step, read = recipe.steps[i], operands.get(i)
            node: Node | None = None
            if isinstance(step, (Node, NumberStep)) and i in numbers:
                node = number_node(step, numbers[i])
            elif isinstance(step, Node):
                node = step
            elif isinstance(step, NumberStep):
                node = number_node(step, step.value)
            elif read is not None:
                node = replace(read)
                if node is None and read.provenance is not None:
                    node = before.get(read.provenance)
            if node is None and isinstance(step, RecipeStep):
                node = built_step(step, built, value if i == output else None, self.line)
            built[i] = node
        return built[output]

    def why_lost(self) -> str:
        """Return why the expression cannot be built again."""
        before = [x.provenance for x in self.all_operands() if x.provenance is not None]
        unknown = [one for one in (self, *before) if one._recipe is None]
        for one in unknown:
            if one._loop is not None and one._loop.length > MAX_LENGTH:
                return (
                    f"it is the result of a loop on the workers (mm.fori_loop, mm.scan) of "
                    f"{one._loop.length:,} operations, and gradients go through {MAX_LENGTH:,}"
                )
        if any(one._loop is None for one in unknown):
            return f"more than {MAX_LENGTH:,} operations were made of it since"
        if any(isinstance(x, VersionOperand) and x.find() is None for x in self.all_operands()):
            return "a variable that it was computed from was assigned since"
        return "an array that it was computed from does not exist any more"

    def _shorten(self) -> None:
        """Drop the expressions of the older half of the chain that ends here, except on which
        existing arrays they depend."""
        start = self._length - MAX_LENGTH // 2
        recent, old, stack = {self}, list[Provenance](), [self]
        while stack:
            for x in stack.pop().direct_operands():
                before = x.provenance
                if before is None or before in recent:
                    continue
                if before._length <= start:
                    if before._length > SHORT_LENGTH:
                        old.append(before)
                    continue
                recent.add(before)
                stack.append(before)
        dropped = [one for one in dict.fromkeys(old) if one._direct is None]
        every = _existing(dropped, through_gradients=True)
        direct = _existing(dropped, through_gradients=False)
        for one in dropped:
            one._operands, one._direct = every[one], direct[one]
            one._recipe, one._loop, one._kept = None, None, ()
        for one in recent:
            one._start = max(one._start, start)


def _existing(
    records: Sequence[Provenance], *, through_gradients: bool
) -> dict[Provenance, list[RecordedOperand]]:
    """Return the existing arrays on which each record depends, without their provenance.

    Those of several records are found in one walk, as sets; one record, the usual case, needs none.
    """
    if len(records) == 1:
        nodes = records[0].all_nodes(through_gradients=through_gradients)
        return {records[0]: _without_provenance(dict.fromkeys([node.known for node in nodes]))}
    numbers: dict[Node, int] = {}
    found: dict[Provenance, int] = {}  # sets of numbers, as the bits of integers
    stack = [*records]
    while stack:
        last = stack[-1]
        read = last.direct_operands(through_gradients=through_gradients)
        before = [x.provenance for x in read if x.provenance is not None]
        unknown = [one for one in before if one not in found]
        if unknown and last not in found:
            stack += unknown
            continue
        bits = 0
        for node in [node.known for x in read for node in x.nodes()]:
            bits |= 1 << numbers.setdefault(node, len(numbers))
        for one in before:
            bits |= found[one]
        found[last] = bits
        stack.pop()
    arrays = list(numbers)
    return {
        one: _without_provenance([x for i, x in enumerate(arrays) if found[one] >> i & 1])
        for one in records
    }


def _without_provenance(nodes: Iterable[Node]) -> list[RecordedOperand]:
    found = [LeafOperand.of(node) for node in nodes]
    for leaf in found:
        leaf.forget_provenance()
    return [*found]


def longest(operands: Sequence[RecordedOperand]) -> int:
    """Return the number of recorded operations of the longest chain before a result."""
    _, length, start, _ = _chain(operands)
    return length - start


UNKNOWN_DEPTH = 1 << 40
"""The depth of a record that stands for many others, or that read a pending node, whose own record
is made later; and that of all records that depend on such a one, so that none is left out."""


def _chain(operands: Sequence[RecordedOperand]) -> tuple[int, int, int, int]:
    """Return the bytes that operands keep alive, the length and the start of the longest chain that
    ends with one of them, and the depth of a record that depends on them.

    The older half of a chain of more than `MAX_LENGTH` operations is dropped.
    """
    kept = length = start = depth = 0
    for x in operands:
        kept += x.kept_bytes
        before = x.provenance
        if before is not None:
            if before._length - before._start > MAX_LENGTH:
                before._shorten()
            # Comparisons, since calls of `max` would take a tenth of an operation on small arrays.
            if before._length > length:
                length = before._length
            if before._start > start:
                start = before._start
            if before.depth > depth:
                depth = before.depth
        elif type(x) is NodeOperand and x.is_pending:
            depth = UNKNOWN_DEPTH
    return kept, length, start, depth + 1 if depth < UNKNOWN_DEPTH else depth


class DeferredProvenance(Protocol):
    """A provenance whose record is made when it is needed."""

    def recorded(self, leaf: Node, /) -> Provenance:
        """Return the record, which also becomes the provenance of the leaf."""


def provenance_of(leaf: Node) -> Provenance | None:
    """Return the provenance of a leaf, or None if it has none."""
    found: Provenance | DeferredProvenance | None = leaf.provenance
    return found if found is None or type(found) is Provenance else found.recorded(leaf)


set_provenance: Callable[[Node, Provenance | DeferredProvenance | None], None] = Node.__dict__[
    "provenance"
].__set__
"""Set the provenance of a leaf: a part of its evaluation state."""
