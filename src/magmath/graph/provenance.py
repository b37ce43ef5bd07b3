"""Provenance: how the value of an array was computed, as far as it can be computed again.

An array that is evaluated becomes a leaf, and its expression is dropped, so that operands which
nothing else refers to are freed. The provenance of the leaf keeps the structure of the expression
and refers to its operands weakly. A gradient can therefore go through an evaluated array as long as
the operands exist; intermediate values are computed again. Where an operand is gone, `grad` knows
that the array depended on it, and refuses instead of returning zero.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final
from weakref import ref

from magmath.graph.node import NO_ATTRIBUTES, Node

if TYPE_CHECKING:
    from magmath.core.dtypes import DType
    from magmath.graph.node import Line, Shape, Signature
    from magmath.graph.operation import Operation
    from magmath.layout import Layout

MAX_LENGTH = 20_000
"""Operations behind one another that are remembered; of earlier ones only what they read."""

SMALL_BYTES = 1 << 20
"""Bytes of the arrays that a value keeps which was computed without being asked for."""

Number = bool | int | float | complex
_Step = tuple[
    "Operation",
    Mapping[str, Any],
    "Shape",
    "DType",
    "Layout | None",
    "Line",
    "Signature | None",
    tuple[int, ...],
]


@final
class WeakResult:
    """A weak reference to the leaf with the value of a node that is not evaluated yet."""

    __slots__ = ("_leaf",)

    def __init__(self) -> None:
        self._leaf: Callable[[], Node | None] = _nothing

    def __call__(self) -> Node | None:
        return self._leaf()

    def found(self, leaf: Node) -> None:
        """The node was evaluated."""
        self._leaf = ref(leaf)


def _nothing() -> None:
    return None


class Operand:
    """A weak reference to an array that an expression read; abstract, and no ABC, whose checks of
    instances are slow.

    `provenance` is the array's own.
    """

    __slots__ = ("provenance",)
    provenance: Provenance | None

    def find(self) -> Node | None:
        """The node that was read, or the leaf with its value; None if neither exists any more."""
        raise NotImplementedError

    def nodes(self) -> Iterator[Node]:
        """What exists of the node, the leaf with its value, and the variable."""
        raise NotImplementedError


@final
class LeafOperand(Operand):
    """A leaf that was read.

    The leaf of a result that nothing refers to is used again for the next result of a compiled
    function, with another provenance; then the reference is not valid any more.
    """

    __slots__ = ("_leaf", "_made")
    _made: ref[Provenance]

    def __init__(self, leaf: Node) -> None:
        self._leaf = ref(leaf)
        self.provenance = leaf.provenance

    def find(self) -> Node | None:
        leaf = self._leaf()
        if leaf is None or leaf.provenance is self.provenance:
            return leaf
        made = getattr(self, "_made", None)
        return leaf if made is not None and made() is leaf.provenance else None

    def nodes(self) -> Iterator[Node]:
        leaf = self.find()
        if leaf is not None:
            yield leaf

    def forget_provenance(self) -> None:
        """Keep no more of what the array was computed from."""
        if self.provenance is not None:
            self._made, self.provenance = ref(self.provenance), None


@final
class NodeOperand(Operand):
    """A node that was read, by a pending expression or as one that is known by now."""

    __slots__ = ("_node", "_result")

    def __init__(self, node: Node) -> None:
        self._node = ref(node)
        self.provenance = None
        if isinstance(node.value, Node):
            self.provenance = node.value.provenance
            self._result: Callable[[], Node | None] = ref(node.value)
            return
        if node.result is None:
            node.result = WeakResult()
        self._result = node.result

    def find(self) -> Node | None:
        return self._node() or self._result()

    def nodes(self) -> Iterator[Node]:
        for node in (self._node(), self._result()):
            if node is not None:
                yield node


@final
class VersionOperand(Operand):
    """The value of a variable that was read: the leaf of the variable, which always exists, the
    number of the value among those that the variable has had, and the leaf with the value."""

    __slots__ = ("_version", "leaf", "number", "variable")

    def __init__(self, node: Node) -> None:
        self.provenance = None
        self.variable, value = node.inputs
        self.number: int = node.attributes["number"]
        self.leaf = ref(value)
        self._version = node.operation

    def find(self) -> Node | None:
        leaf = self.leaf()
        if leaf is None:
            return None
        attributes = {"number": self.number}
        inputs = (self.variable, leaf)
        return Node(self._version, inputs, attributes, leaf.shape, leaf.dtype, value=leaf)

    def nodes(self) -> Iterator[Node]:
        yield self.variable


Wanted = Callable[[Operand], bool]
Replace = Callable[[Operand], "Node | None"]


def operand(node: Node) -> Operand:
    """A weak reference to what an expression reads."""
    if node.operation.leaf:
        return LeafOperand(node)
    return VersionOperand(node) if node.operation.version else NodeOperand(node)


@final
class Recipe:
    """The structure of an expression: for each node, what is needed to build it again.

    A step is the node of a Python number, an operation with the positions of its inputs, or None
    for an array that the expression read. `operands` are the positions of what it read. Pending
    nodes that others refer to are among them; they can be built again if they are gone. `numbers`
    are those of numbers that are given to each call of a compiled function.
    """

    __slots__ = ("length", "numbers", "operands", "steps")

    def __init__(
        self,
        steps: list[Node | _Step | None],
        operands: Sequence[int],
        numbers: Sequence[int] = (),
    ) -> None:
        self.steps = steps
        self.operands = operands
        self.numbers = numbers
        self.length = len(steps) - len(operands)

    def reached(self, output: int) -> list[int]:
        """The positions of all that an output is computed from, in order, itself included."""
        found = {output}
        for i in range(output, -1, -1):
            step = self.steps[i]
            if i in found and isinstance(step, tuple):
                found.update(step[-1])
        return sorted(found)


def recipe_of(
    order: Sequence[Node], held: Container[Node]
) -> tuple[Recipe, list[Operand], dict[Node, int]]:
    """The recipe of an expression, its operands, and the positions of its nodes; nodes that are
    `held` are referred to by others too."""
    position: dict[Node, int] = {}
    steps: list[Node | _Step | None] = []
    operands: list[Operand] = []
    places: list[int] = []
    for node in order:
        operation = node.operation
        if operation.name == "parameter":
            steps.append(node)
        elif node.value is not None or operation.leaf:
            steps.append(None)
            places.append(len(position))
            operands.append(operand(node))
        else:
            sources = tuple([position[source] for source in node.inputs])
            steps.append(
                (
                    operation, node.attributes, node.shape, node.dtype, node.layout, node.line,
                    node.signature, sources,
                )
            )  # fmt: skip
            if node in held:
                places.append(len(position))
                operands.append(operand(node))
        position[node] = len(position)
    return Recipe(steps, places), operands, position


class Loop(Protocol):
    """A loop on the workers, whose expression is written out when it is asked for.

    `length` is the number of operations of all its steps.
    """

    length: int

    def written_out(self) -> tuple[Recipe, Sequence[int]]:
        """All steps as one recipe, and the positions of the results in it."""


@final
class Provenance:
    """How the value of a leaf was computed: the output of a recipe at a position, from operands.

    `operands` and `numbers` are those of the recipe, in its order. The recipe of a loop is written
    out when the expression is asked for; until then `output` is the number of the result. Without
    either, the operands are known and the expression is not.
    """

    __slots__ = (
        "__weakref__", "_kept", "_length", "_loop", "_numbers", "_operands", "_output",
        "_recipe", "line",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Recipe | None,
        output: int,
        operands: Sequence[Operand],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> None:
        self.line = line
        self._recipe = recipe
        self._output = output
        self._operands = operands
        self._numbers = numbers
        self._loop: Loop | None = None
        self._kept: Sequence[Node] = ()
        longest: int = 0
        for x in operands:
            before = x.provenance
            if before is not None:
                if before._length > MAX_LENGTH:
                    before._forget_operands()
                longest = max(longest, before._length)
        self._length: int = longest + (recipe.length if recipe is not None else 1)

    @staticmethod
    def of_loop(loop: Loop, output: int, operands: Sequence[Operand], line: Line) -> Provenance:
        """Of a result of a loop, by its number; the operands are in the order of its recipe."""
        found = Provenance(None, output, operands, line)
        found._loop = loop
        if loop.length <= MAX_LENGTH:
            found._length += loop.length
            # All loops behind one another that gradients go through keep no more than that.
            found._keep_up_to(SMALL_BYTES * loop.length // MAX_LENGTH)
        return found

    def read(self) -> list[Operand]:
        """The arrays that the value was computed from directly."""
        if self._recipe is None:
            return list(self._operands)
        reached = set(self._recipe.reached(self._output))
        pairs = zip(self._recipe.operands, self._operands, strict=True)
        return [x for i, x in pairs if i in reached and i != self._output]

    def arrays(self) -> tuple[list[Node], list[Node]]:
        """What exists of the arrays that the value was computed from directly, for those that want
        to keep it: plain ones, and values of variables."""
        plain, values = [], []
        for x in self.read():
            node = x.leaf() if isinstance(x, VersionOperand) else x.find()
            if node is None:
                continue
            if isinstance(x, VersionOperand):
                values.append(node)
            elif not node.reads_version:
                plain.append(node.known)
        return plain, values

    def keep_arrays(self) -> None:
        """Refer to the arrays that the value was computed from directly, if they are small."""
        self._keep_up_to(SMALL_BYTES)

    def _keep_up_to(self, nbytes: int) -> None:
        plain, _ = self.arrays()
        if sum([node.size * node.dtype.itemsize for node in plain]) <= nbytes:
            self._kept = plain

    def operands(self) -> Iterator[Operand]:
        """All that the value was computed from, however indirectly."""
        seen, stack = {self}, [self]
        while stack:
            for x in stack.pop().read():
                yield x
                before = x.provenance
                if before is not None and before not in seen:
                    seen.add(before)
                    stack.append(before)

    def nodes(self) -> Iterator[Node]:
        """All nodes that still exist among what the value was computed from."""
        for x in self.operands():
            yield from x.nodes()

    def depends_on(self, wanted: Wanted, known: dict[Provenance, bool]) -> bool:
        """True if the value was computed from an operand that is wanted, however indirectly;
        `known` are the answers that have been found before."""
        stack = [self]
        while stack:
            last = stack[-1]
            read = last.read()
            before = [x.provenance for x in read if x.provenance is not None]
            unknown = [one for one in before if one not in known]
            found = any(map(wanted, read)) or any(known.get(one) for one in before)
            if last not in known and unknown and not found:
                stack += unknown
                continue
            known.setdefault(last, found)
            stack.pop()
        return known[self]

    def expression(self, value: Node, replace: Replace) -> Node | None:
        """The expression, built again; `value` is the leaf that holds its value. `replace` gives
        the node for an operand, None if it does not exist any more.

        None where an operand is gone that cannot be built again itself.
        """
        built: dict[Provenance, Node | None] = {}
        stack = [self]
        while stack:
            last = stack[-1]
            gone = [
                x.provenance
                for x in last.read()
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
        """The expression, given those of the operands that do not exist any more."""
        recipe, output = self._recipe, self._output
        if self._loop is not None and self._loop.length <= MAX_LENGTH:
            recipe, outputs = self._loop.written_out()
            output = outputs[output]
        if recipe is None:
            return None
        operands = dict(zip(recipe.operands, self._operands, strict=True))
        if self._loop is None:
            operands.pop(output, None)
        numbers = dict(zip(recipe.numbers, self._numbers, strict=True))
        built: dict[int, Node | None] = {}
        for i in recipe.reached(output):
            step, read = recipe.steps[i], operands.get(i)
            node: Node | None = None
            if isinstance(step, Node):
                node = _number(step, numbers[i]) if i in numbers else step
            elif read is not None:
                node = replace(read)
                if node is None and read.provenance is not None:
                    node = before.get(read.provenance)
            if node is None and isinstance(step, tuple):
                node = _built(step, built, value if i == output else None)
            built[i] = node
        return built[output]

    def why_lost(self) -> str:
        """Why the expression cannot be built again."""
        before = [x.provenance for x in self.operands() if x.provenance is not None]
        unknown = [one for one in (self, *before) if one._recipe is None]
        for one in unknown:
            if one._loop is not None and one._loop.length > MAX_LENGTH:
                return (
                    f"it is the result of a loop on the workers (mm.fori_loop, mm.scan) of "
                    f"{one._loop.length:,} operations, and gradients go through {MAX_LENGTH:,}"
                )
        if any(one._loop is None for one in unknown):
            return f"more than {MAX_LENGTH:,} operations were made of it since"
        if any(isinstance(x, VersionOperand) and x.find() is None for x in self.operands()):
            return "a variable that it was computed from was assigned since"
        return "an array that it was computed from does not exist any more"

    def _forget_operands(self) -> None:
        """Keep the expression of the value, and of what it was computed from only which arrays
        that depends on."""
        for x in self._operands:
            if x.provenance is not None:
                x.provenance._forget_expression()
        self._length = 0 if self._recipe is None else self._recipe.length

    def _forget_expression(self) -> None:
        """Keep only which arrays the value depends on, and of these only those that exist."""
        nodes = dict.fromkeys([node.known for node in self.nodes()])
        found = [LeafOperand(node) for node in nodes]
        for leaf in found:
            leaf.forget_provenance()
        self._operands, self._recipe, self._length, self._kept = found, None, 0, ()
        self._loop = None


def _number(placeholder: Node, value: Number) -> Node:
    """The number that a compiled function was given."""
    return Node(placeholder.operation, (), NO_ATTRIBUTES, (), placeholder.dtype, None, None, value)


def _built(step: _Step, built: Mapping[int, Node | None], value: Node | None) -> Node | None:
    operation, attributes, shape, dtype, layout, line, form, positions = step
    inputs = [node for i in positions if (node := built[i]) is not None]
    if len(inputs) < len(positions):
        return None
    return Node(operation, tuple(inputs), attributes, shape, dtype, layout, line, value, form)
