"""A handle on a node: its value, once that is known, and how long it stays true.

Nothing is computed until a value is needed. What has been computed is remembered beside the node;
where variables are among its leaves, until one of them changes.
"""

from __future__ import annotations

from weakref import ref

from magmath.array import session
from magmath.core.dtypes import DType
from magmath.core.shapes import size_of
from magmath.errors import TracingError, WorkerLost
from magmath.graph import Node, Shape
from magmath.ops import leaves

MOST_PENDING = 1000
"""Operations in a row that may wait to be computed."""


class Handle:
    """A node and what is known of its value; `Array` is the class that users meet."""

    __slots__ = ("_formers", "_leaf", "_node", "_stamp")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leaf: Node | None = node if node.operation is leaves.INPUT else None
        self._stamp: tuple[int, ...] = ()
        self._formers: list[ref[Node] | None] | None = None
        if node.depth > MOST_PENDING:
            self._settle()

    def _settle(self) -> None:
        """Compute what has become a long expression, so that a loop that asks for no value takes
        no more and more memory. `grad` knows that what lies behind it has been let go."""
        if not self._node.variables and not session.engine().tracing:
            self.evaluated()

    @property
    def node(self) -> Node:
        """The node this is a handle on."""
        return self._node

    @property
    def nodes(self) -> list[Node]:
        """The node, and the leaf with the value that is known of an expression of variables."""
        known = self._leaf
        return [self._node] if known is None or known is self._node else [self._node, known]

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""
        return self._node.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
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

    def is_known(self) -> bool:
        """True if the value is there and no variable has changed since."""
        return self._leaf is not None and self._stamp == self._versions()

    def _versions(self) -> tuple[int, ...]:
        node = self._node
        variables = (node,) if node.name == "variable" else node.variables
        return tuple(sorted(v.value.version for v in variables)) if variables else ()

    def set_known(self, leaf: Node) -> None:
        """Take `leaf` as this array's value; without variables, forget how it was made."""
        self._leaf = leaf
        if self._node.variables or self._node.name == "variable":
            self._stamp = self._versions()
        else:
            if not self._node.is_leaf:
                self._node.value = leaf  # pending expressions that read this node find it
            self._node = leaf

    def _replaced(self, node: Node, new: Node) -> None:
        """Note that an update in place replaces a node. The update's expression holds it while it
        is pending; if the update fails, it is the array's value again."""
        formers = self._formers
        if formers is None or self._leaf is self._node:
            formers = self._formers = []
        formers.append(None if new.inputs and new.inputs[0] is node else ref(node))

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
                self._node, self._stamp = node, ()
                self._leaf = node if node.operation is leaves.INPUT else None
                return


def _can_be_computed(node: Node) -> bool:
    engine = session.engine()
    try:
        engine.evaluate([node])
        engine.wait()
    except Exception:
        return False
    return True


def evaluate(*arrays: Handle) -> None:
    """Compute the values of arrays together, in one program."""
    for given in arrays:
        if not isinstance(given, Handle):
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
