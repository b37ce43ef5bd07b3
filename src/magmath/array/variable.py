"""Variables: named values that change.

An expression of a variable means the value at the line that wrote it. Assignment gives the variable
another value; expressions that read the former one keep it, and its memory is used again only when
nothing refers to it. Within a function that is traced a variable stands for the value that it has
when the function is called, and assignment becomes part of the function's program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from magmath.array import session, tracing
from magmath.array.array import Array, copy_of, laid
from magmath.array.captured import note_update
from magmath.array.conversion import leaf_of_values
from magmath.array.data import Data, data_of, leaf_of, untold
from magmath.array.engine import can_fail
from magmath.array.handle import Handle, evaluate
from magmath.array.operands import written_operand
from magmath.array.pending_readers import readers_of_former_values
from magmath.array.pickling import restored_leaf, values_of
from magmath.array.reuse import is_referred_to
from magmath.array.subscripts import setitem
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, apply, topological
from magmath.layout import Layout
from magmath.ops import elementwise as e
from magmath.ops.leaves import variable_leaf, version

if TYPE_CHECKING:
    from magmath.runtime.pending import Run


class Variable(Array):
    """A named value that can be assigned, and that optimizers change.

    Attributes: `name`, and those of an array. Shape, element type and layout stay as they are.
    """

    __slots__ = ("_value", "_version", "data", "leaf", "name", "number")

    def __init__(self, name: str, data: Data) -> None:
        self.name = name
        self.leaf = variable_leaf(data.shape, data.dtype, data.layout, ref(self))
        self.number = 0
        """Of the value among those that the variable has had."""
        self._formers = None
        self.set_value(data)

    def set_value(self, data: Data) -> None:
        """Have another value from now on, of the same shape, type and layout."""
        self.number += 1
        self._hold(data)

    def _hold(self, data: Data) -> None:
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
            self._version = version(self.leaf, self._value, self.number, self._value)
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
        shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        if shape != self.shape:
            raise ShapeError(f"assign: variable {self.name} has shape {self.shape}, not {shape}")
        assign([(self, value.node if isinstance(value, Handle) else leaf_of_values(value))])

    def snapshot(self) -> Array:
        """The value, which stays when the variable is assigned, and counts as a constant."""
        if tracing.current() is not None:
            return Array(apply(e.OPERATIONS["stop_gradient"], self.node))
        return Array(self._value)

    def move(self, layout: Layout) -> None:
        """Have the same value in another layout, from now on.

        Compiled functions that read the variable are traced again.
        """
        if layout == self.layout:
            return
        moved = laid(Array(self.node), layout)
        data = data_of(moved.evaluated())
        note_update(self.leaf)
        self.leaf.layout = layout  # the leaf stays, as gradients with respect to it do
        self._hold(data)

    def __setitem__(self, key: Any, value: Any) -> None:
        assign([(self, setitem(self.node, key, written_operand(self.dtype, value)))])

    def _updated(self, result: Array) -> Array:
        node = result.node
        if node.shape != self.shape:
            raise ShapeError(
                f"update in place: variable {self.name} has shape {self.shape}, its new value "
                f"would have {node.shape}"
            )
        assign([(self, node)])
        return self

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        return _restored, (self.name, *values_of(self))

    def __deepcopy__(self, memo: dict[int, object]) -> Variable:
        """Another variable with the same name and value."""
        return Variable(self.name, data_of(copy_of(self, self.layout).evaluated()))

    def release(self) -> list[Node]:
        """A list that is the only reference to the leaf with the value, but for the variable's own
        and those of other users."""
        self._version = None
        return [self._value]

    @property
    def is_observed(self) -> bool:
        """True if anything but the variable refers to its value."""
        return is_referred_to(self.release())


def assign(pairs: Sequence[tuple[Variable, Node]]) -> None:
    """Give variables new values, which are computed together from the values before."""
    trace = tracing.current()
    placed = [(v, _placed(v, node)) for v, node in pairs]
    if trace is None:
        _forget_former([v for v, _ in placed])
        session.engine().assign(placed)
        return
    for v, node in placed:
        trace.assign(v, node)


_KINDS = ("bool", "uint", "int", "float", "complex")


def _placed(variable: Variable, node: Node) -> Node:
    """A new value in the variable's element type and layout. DTypeError where integers or parts of
    numbers could be lost."""
    given, own = node.dtype, variable.dtype
    wider = given.is_integer and own.is_integer and given.itemsize > own.itemsize
    if _KINDS.index(given.kind) > _KINDS.index(own.kind) or wider:
        raise DTypeError(
            f"assign: variable {variable.name} is {own}, its new value would be {given} and lose "
            f"information; convert it with mm.astype(x, mm.{own.name})"
        )
    return laid(Array(e.astype(node, own)), variable.leaf.layout).node


def _forget_former(variables: Sequence[Variable]) -> None:
    """Have expressions that read former values of variables keep these no more: pending ones are
    computed, where that cannot fail. Expressions of other pools have ended with these."""
    pool = session.engine().pool
    readers = readers_of_former_values([(v.leaf, v._value) for v in variables])
    pending = []
    for reader in readers:
        if reader.is_known():
            continue
        order = topological((reader.node,), cut=True)
        data = [data_of(node) for node in order if node.is_leaf and node.name == "input"]
        if not any(map(can_fail, order)) and all(one.pool is pool for one in data):
            pending.append(reader)
    evaluate(*pending)
    for reader in readers:
        reader.forget_values()


def overwrite(
    variables: Sequence[Variable], start: Callable[[], tuple[list[Data], Run]]
) -> tuple[list[Data], Run]:
    """Start a program that computes the next values of variables, its last outputs, in the memory
    of the present ones; its other outputs, and the run.

    Values that something else refers to stay where they are, and the program gets copies.
    """
    _forget_former(variables)
    observed = [v for v in variables if v.is_observed]
    engine = session.engine()
    if observed:
        copies = [laid(Array(_copied(v.node)), v.layout).node for v in observed]
        for v, leaf in zip(observed, engine.evaluate(copies), strict=True):
            v._hold(data_of(leaf))
    with engine.pool.uninterrupted():
        made, run = start()
        first = len(made) - len(variables)
        for v, value in zip(variables, made[first:], strict=True):
            v.set_value(value)
    return made[:first], run


def _copied(node: Node) -> Node:
    return apply(e.ASTYPE, node, dtype=node.dtype)


def _restored(name: str, *values: Any) -> Variable:
    return Variable(name, data_of(restored_leaf(*values)))
