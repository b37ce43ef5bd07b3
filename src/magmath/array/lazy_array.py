"""A handle on a node, and on its value once that is computed.

Nothing is computed until a value is needed. Then the handle refers to the leaf with the value, and
the expression is dropped; how it was computed remains known as the provenance of that leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import size_of
from magmath.engine import session, tracing
from magmath.engine.captured_arrays import follow
from magmath.engine.kept_expressions import keep_expression
from magmath.engine.pending_readers import note_reader
from magmath.engine.remote_array import remote_array_of
from magmath.errors import TracingError, WorkerLost
from magmath.graph import Node, Shape
from magmath.layout import Layout
from magmath.ops import leaves

if TYPE_CHECKING:
    import torch

MAX_PENDING = 1000
"""Operations in a row that may wait to be computed."""


class LazyArray:
    """A node and what is known of its value; `Array` is the class that users meet."""

    __slots__ = ("__weakref__", "_formers", "_leaf", "_node", "_operands", "_values")
    is_weak = False
    """True for a number whose type gives way to that of arrays."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leaf: Node | None = node if node.operation is leaves.INPUT else None
        self._formers: list[ref[Node] | None] | None = None
        if node.reads_version:
            note_reader(self)
        if node.depth > MAX_PENDING:
            self._settle()

    def _settle(self) -> None:
        """Compute what has become a long expression, so that a loop that asks for no value does
        not need more and more memory. What it was computed from stays, if that is small: gradients
        go through it as if it was not computed yet."""
        if tracing.current() is None:
            provenance = self.evaluated().provenance
            if provenance is not None:
                provenance.keep_arrays()

    @property
    def node(self) -> Node:
        """The node this is a handle on."""
        return self._node

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""
        return self._node.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._node.dtype

    @property
    def operand_kind(self) -> DType | type:
        """What determines the element type of a result: an element type, or a class of Python
        numbers."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self._node.shape)

    def evaluated(self) -> Node:
        """The input leaf that holds this array's value, computed if it is not known."""
        if self._leaf is not self._node:  # which they are once there is nothing more to compute
            evaluate(self)
        assert self._leaf is not None
        return self._leaf

    @property
    def layout(self) -> Layout:
        """How the array is divided over the workers; evaluates it first."""
        return remote_array_of(self.evaluated()).layout

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy copy of the whole array (bfloat16 becomes float32)."""
        tensor = self.fetched()
        return (tensor.float() if self.dtype.name == "bfloat16" else tensor).numpy()

    def fetched(self) -> torch.Tensor:
        """The whole array as a new CPU tensor of torch."""
        asked = self._node
        leaf = self.evaluated()
        data = remote_array_of(leaf)
        if data.pool.any_failed:
            session.engine().restore([data])
        try:
            return data.pool.get(data.handle)
        except WorkerLost:
            raise
        except Exception:
            if asked is not leaf and self._formers:  # an update until now
                asked.value = None
                self._node = asked
                self.undo()
            raise

    def is_known(self) -> bool:
        """True if the value has been computed."""
        return self._leaf is not None

    @property
    def keeps_values(self) -> bool:
        """True if values of variables stay because of this handle: it is on an expression that
        reads them, or was on one that was evaluated."""
        if self._leaf is None:
            return self._node.reads_version and self._node.value is None
        return bool(getattr(self, "_values", ()))

    def forget_values(self) -> None:
        """Keep values of variables no more that an evaluated expression has read."""
        if self._leaf is not None:
            self._values: Sequence[Node] = ()

    def set_known(self, leaf: Node) -> None:
        """Take `leaf` as this array's value, and drop the expression."""
        node = self._node
        self._leaf = leaf
        if node is leaf:
            return
        if node.reads_version:
            self.keep_operands(leaf)
        keep_expression(node)
        if not node.is_leaf:
            node.value = leaf  # pending expressions that read this node find it
        follow(node, leaf)
        self._node = leaf

    def keep_operands(self, leaf: Node) -> None:
        """Keep what an expression of variables has read, for gradients and `minimize`."""
        if leaf.provenance is not None:
            self._operands, self._values = leaf.provenance.arrays()

    def _replaced(self, node: Node, new: Node) -> None:
        """Note that an update in place replaces a node. The update's expression holds it while it
        is pending; if the update fails, it is the array's value again."""
        formers = self._formers
        if formers is None or self._leaf is self._node:
            formers = self._formers = []
        formers.append(None if new.inputs and new.inputs[0] is node else ref(node))

    def replace_node(self, node: Node) -> None:
        """Be a handle on another node with the same value."""
        self._node, self._formers = node, None
        self._leaf = node if node.operation is leaves.INPUT else None

    def undo(self) -> None:
        """After a failure: the value before the update in place that failed, if it was one."""
        former: Node | None = self._node
        nodes = []
        for known in reversed(self._formers or ()):
            former = known() if known is not None else former.inputs[0] if former else None
            nodes += [] if former is None else [former]
        self._formers = None
        for node in [self._node, *nodes] if nodes else ():
            if node.operation is leaves.INPUT or _can_be_computed(node):
                self.replace_node(node)
                return


def _can_be_computed(node: Node) -> bool:
    engine = session.engine()
    try:
        engine.evaluate([node])
        engine.wait()
    except Exception:
        return False
    return True


def evaluate(*arrays: LazyArray) -> None:
    """Compute the values of arrays together, in one program."""
    for given in arrays:
        if not isinstance(given, LazyArray):
            raise TypeError(f"evaluate: needs magmath arrays, was given {type(given).__name__}")
    missing = [a for a in arrays if not a.is_known()]
    if not missing:
        return
    engine = session.engine()
    engine.forget_failed()
    for array in missing:  # another array's node may be the same, and known by now
        if array.node.value is not None and not array.node.is_leaf:
            array.set_known(array.node.value)
    if missing := [a for a in missing if not a.is_known()]:
        try:
            known = engine.evaluate([array.node for array in missing])
        except (TracingError, WorkerLost):
            raise
        except Exception:
            for array in missing:
                array.undo()
            raise
        for array, leaf in zip(missing, known, strict=True):
            array.set_known(leaf)
