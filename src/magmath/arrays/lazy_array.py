"""Lazy arrays: handles on nodes that are computed when their values are needed.

After the computation the handle refers to the leaf with the value and drops the expression. The
provenance of that leaf records how the value was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from magmath.arrays.leaf_values import depend_on_value, fetch, small_local_array
from magmath.arrays.saved_operands import SavedOperands
from magmath.arrays.storage.element_storage import ArrayView, read
from magmath.arrays.storage.failed_updates import (
    UpdateRecord,
    ViewWrite,
    undo_failed_updates,
    update_record,
    view_record,
)
from magmath.core import expression_lock
from magmath.core.dtypes import DType
from magmath.core.shapes import size_of
from magmath.engine import session
from magmath.engine.array_handle import ArrayHandle
from magmath.engine.lifetimes.expression_bounds import FIRST_CHECK, Keep, early_evaluation
from magmath.engine.lifetimes.kept_expressions import keep_expression
from magmath.engine.lifetimes.loop_parts import MIN_DEPTH
from magmath.engine.lifetimes.pending_readers import register_reader
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import add_leaf_to_captures, invalidate_captures
from magmath.errors import ShapeError
from magmath.graph import (
    Node,
    Provenance,
    Shape,
    add_user_array,
    provenance_of,
    set_value,
    topological,
    user_arrays,
)
from magmath.layout import Layout
from magmath.ops import leaves

if TYPE_CHECKING:
    import torch


WAS_ATTEMPTED = True
"""As the second argument of `Array`: its computation at its line was attempted. A keyword would
double the time of the call."""


class LazyArray(ArrayHandle):
    """A handle on a node and, once it is computed, on its value; the base class of `Array`.

    It gets another node in these ways. The same value: `set_computed` sets its leaf, once it is
    known. Another value: `replace_value`, which users' updates call, checks it and shares it with
    views; `refer_to_updated` only refers to it; `replace_node` goes back to a former one. A value
    to be read again from the base: `set_stale`, until `read_again`.
    """

    __slots__ = ("__weakref__", "_kept", "_leaf", "_node", "pending_update", "view_of")
    is_weak = False
    """True for a weakly typed number, which takes the element type of arrays."""
    is_variable = False
    """True for a variable, whose parts cannot be written through their own names."""
    _leaf: Node | None
    _kept: SavedOperands | None
    """What the array keeps alive after its evaluation."""
    view_of: ArrayView | None
    """Where the array's elements are among those that it shares with others; None if it shares
    none."""

    def __init__(self, node: Node, is_attempted: bool = False) -> None:
        """Refer to a node, which is computed at its line if it is small, unless that was attempted
        before."""
        self.pending_update: UpdateRecord | None = None
        self.view_of = self._kept = None
        try:
            operation = node.operation
        except AttributeError:
            raise TypeError(
                f"Array: was given {type(node).__name__}; arrays are made by mm.asarray(x), or a "
                "function such as mm.zeros"
            ) from None
        if operation is leaves.INPUT:
            self._node, self._leaf = node, node
            return
        self._refer_to(node, None if is_attempted else session.leaf_of_new_node(node))
        if node.reads_version:
            register_reader(self)

    def _refer_to(self, node: Node, leaf: Node | None) -> None:
        """Refer to a node, and to the leaf with its value if it was computed at once.

        A pending expression that is too long, or holds too much memory, is computed.
        """
        self._node = node
        depth = node.depth
        if not depth:
            self._leaf = node if node.operation is leaves.INPUT else None
            return
        self._leaf = None
        if leaf is not None:
            self.set_computed(leaf)
            return
        add_user_array(node, ref(self))
        self.thread = get_ident()
        engine = session.current_engine
        if engine is not None and engine.pending_memory.room < 0:
            engine.pending_memory.limit_held_bytes()
        if depth >= MIN_DEPTH or (depth >= FIRST_CHECK and not depth & (depth - 1)):
            self._bound_expression()

    def _bound_expression(self) -> None:
        """Compute a pending expression that is longer than `expression_bounds` permits."""
        keep = early_evaluation(session.engine(), self._node)
        if keep is not None:
            self._evaluate_early(keep)

    def _evaluate_early(self, keep: Keep) -> None:
        """Compute a pending expression before its value is needed. Its record keeps operands, so
        that gradients pass through the value as if it were pending."""
        record = provenance_of(self.evaluated_leaf())
        if record is not None:
            keep(record)

    @property
    def node(self) -> Node:
        """The node that this handle refers to."""
        return self._node

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""
        return self._node.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        """Raise AttributeError: an array keeps its shape."""
        raise AttributeError(
            f"x.shape = {shape}: an array keeps its shape; write x = x.reshape({shape})"
        )

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._node.dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        """Raise AttributeError: an array keeps its element type."""
        raise AttributeError(
            f"x.dtype = {dtype!r}: an array keeps its element type; write x = x.astype(dtype)"
        )

    def __delitem__(self, key: Any) -> None:
        """Raise ShapeError, NumPy's ValueError: an array keeps its shape."""
        raise ShapeError(
            "del x[i]: an array keeps its shape; write x = mm.delete(x, i, axis=0), or the part to "
            "keep"
        )

    @property
    def operand_kind(self) -> DType | type:
        """The input to type promotion: an element type, or a class of Python numbers."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self._node.shape)

    def evaluated_leaf(self) -> Node:
        """Return the input leaf with this array's value; computes the value if it is pending."""
        node = self._node
        if self._leaf is not node:  # they are identical once the value is computed
            evaluate(self)
        if tracing.current() is not None:
            depend_on_value(node)
        while (leaf := self._leaf) is None:  # another thread has updated the array meanwhile
            evaluate(self)
        return leaf

    def _evaluate_write(self) -> None:
        """Compute the array after a write. If this fails or is interrupted before anything was
        written, the array has its former value again, unless it shares elements with others, which
        have the new ones."""
        written = ref(self._node)
        try:
            self.evaluated_leaf()
        except BaseException:
            node = self.node
            is_unwritten = node is written() and node.value is None
            if is_unwritten and self.view_of is None and node.operation.overwrites_first:
                former = LazyArray(node.inputs[0])
                self._node, self._leaf = former._node, former._leaf
            raise

    @property
    def layout(self) -> Layout:
        """The distribution of the array over the workers; evaluates the array first."""
        return remote_array_of(self.evaluated_leaf()).layout

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a NumPy copy of the whole array (bfloat16 becomes float32)."""
        leaf = self.evaluated_leaf()
        values = small_local_array(leaf)
        if values is not None:
            return values.copy()
        tensor = fetch(leaf)
        return (tensor.float() if self.dtype.name == "bfloat16" else tensor).numpy()

    def fetch(self) -> torch.Tensor:
        """Return the whole array as a new PyTorch tensor on the CPU."""
        return fetch(self.evaluated_leaf())

    def stored_leaf(self) -> Node | None:
        """Return the leaf of an evaluated array; None if it is pending, and for a variable.

        The node of a pending array may have been computed as an operand of another one. If this
        process stores the value, the array drops the expression. A value of the workers is left,
        since the run that computes it may still fail.
        """
        node = self._node
        if node is self._leaf:
            return None if self.is_variable else node
        leaf = node.value
        if not isinstance(leaf, Node) or node.is_leaf or node.reads_version or self.is_variable:
            return None
        if type(leaf.value) is not RemoteArray or leaf.value.host_array is None:
            return None
        if session.eager_computation() is None:  # a trace changes no arrays
            return None
        return leaf if self.set_computed_of(node, leaf) else None

    @property
    def is_computed(self) -> bool:
        """True if the value has been computed."""
        return self._leaf is not None

    @property
    def has_variable_values(self) -> bool:
        """True if this handle references values of variables.

        That is so for a pending expression that reads them, and after its evaluation until
        `forget_values`.
        """
        if self._leaf is None:
            return self._node.reads_version and self._node.value is None
        return self._kept is not None and bool(self._kept.values)

    def forget_values(self) -> None:
        """Release the values of variables that an evaluated expression has read."""
        if self._leaf is not None and self._kept is not None:
            self._kept.values = ()

    def set_computed(self, leaf: Node) -> None:
        """Set `leaf` as this array's value and drop the expression.

        The node of a variable's value, such as `w[:]`, stays: it says which variable the value
        belongs to, and the leaf does not.
        """
        node = self._node
        self._leaf, self.pending_update = leaf, None
        if node is leaf:
            return
        keep_expression(node)
        if node.operation.is_version:
            return
        if node.reads_version:
            self.keep_operands(leaf)
        if not node.is_leaf:
            set_value(node, leaf)  # for pending expressions that read this node
        add_leaf_to_captures(node, leaf)
        self._node = leaf

    def refers_to(self, node: Node) -> bool:
        """Return True if this array refers to a node: not if it has been updated since, or is
        stale."""
        return not self.is_stale and self._node is node

    def set_computed_of(self, node: Node, leaf: Node) -> bool:
        """Set `leaf` as this array's value if the array still refers to the node that was computed,
        and not to another one after an update by another thread; return True if it does."""
        with expression_lock.lock:
            is_current = self.refers_to(node)
            if is_current:
                self.set_computed(leaf)
            return is_current

    def keep_operands(self, leaf: Node) -> None:
        """Keep the arrays and values that an expression of variables has read, for gradients and
        `minimize`."""
        provenance = provenance_of(leaf)
        if provenance is not None:
            self._kept = SavedOperands(*provenance.arrays())

    def keep_leaves(self, nodes: Iterable[Node]) -> None:
        """Keep those arrays alive from which this evaluated array was computed that its gradients,
        the given nodes, read, or are. An expression of variables keeps its operands anyway.

        So a second gradient, after the first one has replaced a parameter, does not compute former
        parameters again from the steps before.
        """
        if self._kept is None:
            order = topological(nodes, pending=True)
            self._kept = SavedOperands([x.leaf_or_self for x in order if _is_array(x)])

    def refer_to_updated(
        self, node: Node, *, write: ViewWrite | None = None, source: UpdateRecord | None = None
    ) -> None:
        """Refer to the node of another value, after an update in place.

        write   what the update repeats, if it was made through a view
        source  the record of a view that is read again
        """
        leaf = None
        if node.operation is not leaves.INPUT:
            leaf = session.leaf_of_new_node(node)  # which may raise: nothing has changed
        old = self._node
        trace = tracing.current()
        if trace is not None:
            trace.add_update(self, old)
        else:
            invalidate_captures(old)
        if leaf is None:
            self.pending_update = source or update_record(old, node, self.pending_update, write)
        del old  # an evaluation counts references
        self._refer_to(node, leaf)
        update = self.pending_update
        if trace is None and leaf is None and update is not None and update.is_long:
            self._evaluate_early(Provenance.keep_arrays)

    @property
    def is_stale(self) -> bool:
        """True if `set_stale` was called, and the array was not used since."""
        if self.view_of is None or self.view_of.stale_base is None:
            return False
        try:  # an interrupt may have prevented that the base is forgotten
            _NODE.__get__(self)
        except AttributeError:
            return True
        return False

    def set_stale(self, base: LazyArray) -> None:
        """Forget the node, after a write into an array that shares elements.

        When this array is used next, it is read from the base again, which it keeps alive until
        then. Interrupts must be deferred.
        """
        if self.view_of is not None and not self.is_stale:
            invalidate_captures(self._node)
            self.view_of.stale_base = base
            self.view_of.storage.set_stale(self)
            del self._node, self._leaf, self.pending_update

    def read_again(self) -> None:
        """Read the array from its base if it is stale."""
        with expression_lock.lock:
            if not self.is_stale:  # another thread may have read it
                return
            view = self.view_of
            assert view is not None
            base = view.stale_base
            path = view.path_from(base)
            node = read(base.node, path)
            leaf = None if node.operation is leaves.INPUT else session.leaf_of_new_node(node)
            view.storage.set_current(self)
            self.pending_update = None if leaf is not None else view_record(base, path)
            self._refer_to(node, leaf)
            view.stale_base = None

    if not TYPE_CHECKING:  # which knows the attributes

        def __getattr__(self, name: str) -> Any:
            """Return an attribute that `set_stale` has deleted, after the array is read again."""
            if name not in STALE_ATTRIBUTES:
                raise AttributeError(name)
            self.read_again()
            return getattr(self, name)

    def unlink(self) -> None:
        """Share the elements with no other array from now on."""
        self.read_again()
        self.view_of = None

    def replace_node(self, node: Node) -> None:
        """Refer to another node with the same value, or with that before a failed update."""
        invalidate_captures(self._node)
        self._node, self.pending_update = node, None
        add_user_array(node, ref(self))
        self._leaf = node if node.operation is leaves.INPUT else None


_NODE: Any = LazyArray.__dict__["_node"]
STALE_ATTRIBUTES = ("_node", "_leaf", "pending_update")
"""The attributes that a stale array does not have."""


def _is_array(node: Node) -> bool:
    """Return True for a plain array, and for an evaluated operation."""
    return node.operation is leaves.INPUT or (
        isinstance(node.value, Node) and not node.operation.is_version
    )


def _is_update(array: LazyArray) -> bool:
    """Return True if a pending array, or another array of the user's code that refers to its node,
    was updated in place."""
    node = array.node
    return array.pending_update is not None or any(
        x.refers_to(node) and x.pending_update is not None for x in user_arrays(node)
    )


def evaluate(*arrays: LazyArray, wait: bool = False) -> None:
    """Compute the values of several arrays in one program.

    Workers of other processes may still compute when this returns; with `wait`, all work that has
    been started on the pool is done, and its failures are raised here.
    """
    _evaluate(arrays)
    if wait:
        try:
            session.engine().runs.wait_for([array.evaluated_leaf() for array in arrays])
        except Exception as error:
            undo_failed_updates((), error)
            raise


def _evaluate(arrays: Sequence[LazyArray]) -> None:
    for array in arrays:
        if not isinstance(array, LazyArray):
            raise TypeError(
                f"evaluate: needs magmath arrays, was given {type(array).__name__}"
                "; make one with mm.asarray(x)"
            )
    missing = [a for a in arrays if not a.is_computed]
    if not missing:
        return
    engine = session.engine()
    engine.evaluator.forget_failed()
    updated = any(map(_is_update, missing))
    try:
        if updated:
            engine.runs.wait_for_fallible_run()
            engine.evaluator.forget_failed()
        for array in missing:  # another array with the same node may be evaluated by now
            node = array.node
            if node.value is None or node.is_leaf:
                continue
            if updated and remote_array_of(node).has_failed:  # computed again, it raises the error
                set_value(node, None)
            else:
                array.set_computed_of(node, node.value)
        if missing := [a for a in missing if not a.is_computed]:
            nodes = [array.node for array in missing]
            leaves_of_nodes = engine.evaluate(nodes)
            if updated:
                engine.runs.wait_for_fallible_run()
            for array, node, leaf in zip(missing, nodes, leaves_of_nodes, strict=True):
                array.set_computed_of(node, leaf)
    except Exception as error:
        # no local variable: a kept exception would keep the intermediates
        undo_failed_updates(
            topological([array.node for array in missing], pending=True), error, missing
        )
        raise
