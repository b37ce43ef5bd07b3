"""Variables: named values that change.

An expression of a variable means the value at the line that wrote it. Assignment gives the variable
another value; expressions that read the former one keep it, and its memory is used again only when
nothing refers to it. Within a function that is traced a variable stands for the value that it has
when the function is called, and assignment becomes part of the function's program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from magmath.array import session, tracing
from magmath.array.array import Array, laid
from magmath.array.captured import note_update
from magmath.array.data import Data, data_of, leaf_of, untold
from magmath.array.engine import can_fail
from magmath.array.handle import evaluate
from magmath.array.pending_readers import readers_of_former_values
from magmath.array.reuse import is_referred_to
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, apply, topological
from magmath.layout import Layout
from magmath.ops import elementwise as e
from magmath.ops.leaves import variable_leaf, version

if TYPE_CHECKING:
    from magmath.array.again import Repeated


class Variable(Array):
    """A named value that can be assigned, and that optimizers change.

    Attributes: `name`, and those of an array. Shape, element type and layout stay as they are.
    """

    __slots__ = ("_value", "_version", "data", "leaf", "name")

    def __init__(self, name: str, data: Data) -> None:
        self.name = name
        self.leaf = variable_leaf(data.shape, data.dtype, data.layout, ref(self))
        self._formers = None
        self.take(data)

    def take(self, data: Data) -> None:
        """Have this value from now on, of the same shape, type and layout."""
        self.data = data
        self._value: Node = leaf_of(data)
        self._version: Node | None = None

    @property
    def _node(self) -> Node:  # type: ignore[override]
        """What an expression that is written now reads."""
        trace = tracing.current()
        if trace is not None:
            return trace.value_of(self)
        if self._version is None:
            self._version = version(self.leaf, self._value, self._value)
        return self._version

    @property
    def _leaf(self) -> Node | None:  # type: ignore[override]
        return self._value if tracing.current() is None else None

    @property
    def layout(self) -> Layout:
        """How the value is divided over the workers."""
        layout = self.leaf.layout
        assert layout is not None
        return layout

    def evaluated(self) -> Node:
        """The leaf with the value. Raises TracingError while a function is traced."""
        if tracing.current() is not None:
            raise untold()
        return self._value

    def is_known(self) -> bool:
        """True: a variable has a value, except while a function is traced."""
        return tracing.current() is None

    def assign(self, value: Any) -> None:
        """Give it another value, of the same shape; the type is converted.

        Expressions that were written before keep the value that they read.
        """
        from magmath.array.creation import asarray

        shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        if shape != self.shape:
            raise ShapeError(f"assign: variable {self.name} has shape {self.shape}, not {shape}")
        assign([(self, (value if isinstance(value, Array) else asarray(value)).node)])

    def move(self, layout: Layout) -> None:
        """Have the same value in another layout, from now on.

        Compiled functions that read the variable are traced again.
        """
        if layout == self.layout:
            return
        moved = laid(Array(self.node), layout)
        data = data_of(moved.evaluated())
        note_update(self.leaf)
        self.leaf = variable_leaf(self.shape, self.dtype, layout, ref(self))
        self.take(data)

    def __setitem__(self, key: Any, value: Any) -> None:
        from magmath.array.indexing import setitem

        assign([(self, setitem(self, key, value).node)])

    def _updated(self, result: Array) -> Array:
        node = result.node
        if node.shape != self.shape:
            raise ShapeError(
                f"update in place: variable {self.name} has shape {self.shape}, its new value "
                f"would have {node.shape}"
            )
        assign([(self, node)])
        return self

    def release(self) -> list[Node]:
        """A list that is the only reference to the leaf with the value, but for the variable's own
        and those of other users."""
        self._version = None
        return [self._value]

    def has_value(self, leaf: Node) -> bool:
        """True if a leaf holds the value that the variable has."""
        return leaf is self._value

    @property
    def is_observed(self) -> bool:
        """True if anything but the variable refers to its value."""
        return is_referred_to(self.release())


def assign(pairs: Sequence[tuple[Variable, Node]]) -> None:
    """Give variables new values, which are computed together from the values before."""
    trace = tracing.current()
    placed = [(v, _placed(v, node)) for v, node in pairs]
    if trace is None:
        _evaluate_former([v for v, _ in placed])
        session.engine().assign(placed)
        return
    for v, node in placed:
        trace.assign(v, node)


_KINDS = ("bool", "uint", "int", "float", "complex")


def _placed(variable: Variable, node: Node) -> Node:
    """A new value in the variable's element type and layout."""
    if _KINDS.index(node.dtype.kind) > _KINDS.index(variable.dtype.kind):
        raise DTypeError(
            f"assign: variable {variable.name} is {variable.dtype}, its new value would be "
            f"{node.dtype} and lose information; convert it with mm.astype(x, …)"
        )
    return laid(Array(e.astype(node, variable.dtype)), variable.leaf.layout).node


def _evaluate_former(variables: Sequence[Variable]) -> None:
    """Compute the pending expressions that read former values of variables, where that cannot fail;
    expressions of other pools have ended with these."""
    pool = session.engine().pool
    readers = []
    for reader in readers_of_former_values([(v.leaf, v._value) for v in variables]):
        order = topological((reader.node,), cut=True)
        data = [data_of(node) for node in order if node.is_leaf and node.name == "input"]
        if not any(map(can_fail, order)) and all(one.pool is pool for one in data):
            readers.append(reader)
    evaluate(*readers)


def own_values(variables: Sequence[Variable]) -> None:
    """Make sure that nothing else refers to the values of variables that a program will overwrite.

    Values that something refers to stay where they are, and the variables get copies.
    """
    _evaluate_former(variables)
    observed = [v for v in variables if v.is_observed]
    if not observed:
        return
    engine = session.engine()
    nodes = [laid(Array(_copied(v.node)), v.leaf.layout).node for v in observed]
    for v, leaf in zip(observed, engine.evaluate(nodes), strict=True):
        v.take(data_of(leaf))


def _copied(node: Node) -> Node:
    return apply(e.ASTYPE, node, dtype=node.dtype)


def run_assigning(
    program: Repeated, variables: Sequence[Variable], given: Sequence[Data], numbers: Sequence[Any]
) -> list[Data]:
    """Run a program once whose last outputs are new values of variables; its other outputs.

    `own_values` has been called for the variables.
    """
    engine = session.engine()
    with engine.pool.uninterrupted():
        data, program.last = engine.start(program.compiled, given, numbers)
        first = len(data) - len(variables)
        take_values(variables, data[first:])
    return data[:first]


def take_values(variables: Sequence[Variable], values: Sequence[Data]) -> None:
    """Give variables the values that a program has computed in the memory of the former ones."""
    for v, value in zip(variables, values, strict=True):
        v.take(value)
