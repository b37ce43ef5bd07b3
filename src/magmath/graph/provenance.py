"""Provenance: how the value of an array was computed, as far as it can be computed again.

An array that is evaluated becomes a leaf, and its expression is dropped, so that operands which
nothing else refers to are freed. The provenance of the leaf keeps the structure of the expression
and refers to its operands weakly. A gradient can therefore go through an evaluated array as long as
the operands exist; intermediate values are computed again. Where an operand is gone, `grad` knows
that the array depended on it, and refuses instead of returning zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final
from weakref import ref

from magmath.graph.node import NO_ATTRIBUTES, Node

if TYPE_CHECKING:
    from magmath.core.dtypes import DType
    from magmath.graph.node import Form, Line, Shape
    from magmath.graph.operation import Operation
    from magmath.layout import Layout

LONGEST = 1000
"""Operations behind one another that are remembered; of earlier ones only what they read."""

Number = bool | int | float | complex
_Step = tuple[
    "Operation",
    Mapping[str, Any],
    "Shape",
    "DType",
    "Layout | None",
    "Line",
    "Form | None",
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


class Operand(ABC):
    """A weak reference to an array that an expression read.

    `provenance` is the array's own. `variable` is the leaf of the variable whose value was read.
    """

    __slots__ = ("provenance",)
    provenance: Provenance | None

    @property
    def variable(self) -> Node | None:
        """The leaf of the variable whose value was read, if it was one's."""
        return None

    @abstractmethod
    def find(self) -> Node | None:
        """The node that was read, or the leaf with its value; None if neither exists any more."""

    @abstractmethod
    def nodes(self) -> Iterator[Node]:
        """What exists of the node, the leaf with its value, and the variable."""


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
    """The value of a variable that was read. The leaf of the variable always exists."""

    __slots__ = ("_leaf", "_variable", "_version")

    def __init__(self, node: Node) -> None:
        self.provenance = None
        self._version = node.operation
        self._variable, value = node.inputs
        self._leaf = ref(value)

    @property
    def variable(self) -> Node | None:
        return self._variable

    def find(self) -> Node | None:
        leaf = self._leaf()
        if leaf is None:
            return None
        inputs = (self._variable, leaf)
        return Node(self._version, inputs, NO_ATTRIBUTES, leaf.shape, leaf.dtype, value=leaf)

    def nodes(self) -> Iterator[Node]:
        yield self._variable


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
    nodes that others refer to are among them; they can be built again if they are gone.
    """

    __slots__ = ("length", "operands", "steps")

    def __init__(
        self, order: Sequence[Node], position: Mapping[Node, int], operands: Sequence[Node]
    ) -> None:
        self.operands = tuple([position[node] for node in operands])
        self.steps = [_step(node, position) for node in order]
        self.length = sum(isinstance(step, tuple) for step in self.steps)

    def reached(self, output: int) -> list[int]:
        """The positions of all that an output is computed from, in order, itself included."""
        found = {output}
        for i in range(output, -1, -1):
            step = self.steps[i]
            if i in found and isinstance(step, tuple):
                found.update(step[-1])
        return sorted(found)


def _step(node: Node, position: Mapping[Node, int]) -> Node | _Step | None:
    if node.name == "parameter":
        return node
    if node.is_leaf or node.value is not None:
        return None
    return (
        node.operation,
        node.attributes,
        node.shape,
        node.dtype,
        node.layout,
        node.line,
        node.form,
        tuple([position[source] for source in node.inputs]),
    )


@final
class Provenance:
    """How the value of a leaf was computed: the output of a recipe at a position, from operands.

    `operands` belong to the recipe's, in its order: weak references, and the numbers that a
    compiled function was given. Without a recipe, as for the result of a loop, the operands are
    known and the expression is not.
    """

    __slots__ = ("__weakref__", "_length", "_operands", "_output", "_recipe", "line")

    def __init__(
        self,
        recipe: Recipe | None,
        output: int,
        operands: Sequence[Operand | Number],
        line: Line,
    ) -> None:
        self.line = line
        self._recipe = recipe
        self._output = output
        self._operands = operands
        longest: int = 0
        for x in operands:
            before = x.provenance if isinstance(x, Operand) else None
            if before is not None:
                if before._length > LONGEST:
                    before._forget_expression()
                longest = max(longest, before._length)
        self._length: int = longest + (recipe.length if recipe is not None else 1)

    @staticmethod
    def unknown(nodes: Sequence[Node], line: Line) -> Provenance:
        """Of what was computed from nodes in a way that cannot be differentiated."""
        return Provenance(None, 0, [operand(node) for node in nodes], line)

    def read(self) -> list[Operand]:
        """The arrays that the value was computed from directly."""
        if self._recipe is None:
            found = self._operands
        else:
            reached = set(self._recipe.reached(self._output))
            pairs = zip(self._recipe.operands, self._operands, strict=True)
            found = [x for i, x in pairs if i in reached and i != self._output]
        return [x for x in found if isinstance(x, Operand)]

    def plain_operands(self) -> list[Node]:
        """The arrays that the value was computed from directly and that are no variables' values,
        for those that want to keep them."""
        found = [x.find() for x in self.read() if x.variable is None]
        return [node.known for node in found if node is not None and not node.reads_version]

    def nodes(self) -> Iterator[Node]:
        """All nodes that still exist among what the value was computed from, however indirectly."""
        seen, stack = {self}, [self]
        while stack:
            for x in stack.pop().read():
                yield from x.nodes()
                before = x.provenance
                if before is not None and before not in seen:
                    seen.add(before)
                    stack.append(before)

    def depends_on(self, nodes: set[Node]) -> bool:
        """True if the value was computed from one of these nodes."""
        return not nodes.isdisjoint(self.nodes())

    def expression(self, value: Node, *, of_variables: bool = False) -> Node | None:
        """The expression, built again; `value` is the leaf that holds its value.

        None where an operand is gone that cannot be built again itself. With `of_variables`,
        variables stand for themselves in it, and not for the values that they had.
        """
        built: dict[Provenance, Node | None] = {}
        stack = [self]
        while stack:
            last = stack[-1]
            before = [x for x in last._gone(of_variables) if x not in built]
            stack += before
            if not before:
                stack.pop()
                built[last] = last._built(built, value if last is self else None, of_variables)
        return built[self]

    def _gone(self, of_variables: bool) -> list[Provenance]:
        """The provenances of operands that do not exist any more."""
        return [
            x.provenance
            for x in self.read()
            if x.provenance is not None and _existing(x, of_variables) is None
        ]

    def _built(
        self,
        before: Mapping[Provenance, Node | None],
        value: Node | None,
        of_variables: bool,
    ) -> Node | None:
        """The expression, given those of the operands that do not exist any more."""
        recipe = self._recipe
        if recipe is None:
            return None
        operands = dict(zip(recipe.operands, self._operands, strict=True))
        operands.pop(self._output, None)
        built: dict[int, Node | None] = {}
        for i in recipe.reached(self._output):
            step, read = recipe.steps[i], operands.get(i)
            node: Node | None = None
            if isinstance(step, Node):
                node = step if read is None else _number(step, read)
            elif isinstance(read, Operand):
                node = _existing(read, of_variables)
                if node is None and read.provenance is not None:
                    node = before.get(read.provenance)
            if node is None and isinstance(step, tuple):
                node = _built(step, built, value if i == self._output else None)
            built[i] = node
        return built[self._output]

    def _forget_expression(self) -> None:
        """Keep only which arrays the value depends on, and of these only those that exist."""
        nodes = dict.fromkeys([node.known for node in self.nodes()])
        found = [LeafOperand(node) for node in nodes]
        for leaf in found:
            leaf.forget_provenance()
        self._operands, self._recipe, self._length = found, None, 0


def _existing(read: Operand, of_variables: bool) -> Node | None:
    return read.variable if of_variables and read.variable is not None else read.find()


def _number(placeholder: Node, value: Operand | Number) -> Node:
    """The number that a compiled function was given."""
    return Node(placeholder.operation, (), NO_ATTRIBUTES, (), placeholder.dtype, None, None, value)


def _built(step: _Step, built: Mapping[int, Node | None], value: Node | None) -> Node | None:
    operation, attributes, shape, dtype, layout, line, form, positions = step
    inputs = [node for i in positions if (node := built[i]) is not None]
    if len(inputs) < len(positions):
        return None
    return Node(operation, tuple(inputs), attributes, shape, dtype, layout, line, value, form)
