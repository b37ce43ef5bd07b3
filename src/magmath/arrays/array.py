"""The array class: a handle on a node, with Python's operators.

Building an expression checks shapes and types immediately and computes nothing. A value is computed
when it is needed: by printing, conversion, a truth test, or `evaluate`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from magmath.arrays.exports import printing
from magmath.arrays.exports.pickling import restored_leaf, values_of
from magmath.arrays.indexing.indexing_cache import (
    record_elements,
    repeated_elements,
    selected_part,
    with_stored_positions,
)
from magmath.arrays.indexing.item_writes import written_item
from magmath.arrays.indexing.masked_elements import masked_elements
from magmath.arrays.indexing.masks import UnknownCount
from magmath.arrays.indexing.number_items import part_of
from magmath.arrays.indexing.single_elements import read_element
from magmath.arrays.indexing.subscripts import getitem
from magmath.arrays.indexing.written_values import is_small_write_into_new, small_operand
from magmath.arrays.inputs.conversion import bind_layout, foreign_operand
from magmath.arrays.inputs.number_list import LISTS
from magmath.arrays.inputs.operands import (
    OPERANDS,
    binary_node,
    node_in_type,
    node_of_value,
    operator_node,
    promoted_nodes,
    unary_node,
    unpromoted_nodes,
    written_operand,
)
from magmath.arrays.lazy_array import STALE_ATTRIBUTES, WAS_ATTEMPTED, LazyArray, evaluate
from magmath.arrays.number_protocols import NumberProtocols
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.protocols.interchange_protocols import InterchangeProtocols
from magmath.arrays.protocols.methods import ArrayMethods
from magmath.arrays.protocols.missing_attributes import missing_array_attribute
from magmath.arrays.protocols.namespace import array_namespace
from magmath.arrays.protocols.operator_calls import operator_result
from magmath.arrays.protocols.operators import Operators
from magmath.arrays.storage.element_storage import ViewStep
from magmath.arrays.storage.update_errors import unread_write_error, update_error
from magmath.arrays.temporary_references import (
    TEMPORARY,
    TEMPORARY_TARGET,
    TEMPORARY_UPDATE,
)
from magmath.arrays.views import (
    ComplexPart,
    Permuted,
    Reshaped,
    as_memory,
    base_of,
    check_writable,
    link,
    prepare_shared_write,
)
from magmath.core import expression_lock
from magmath.core.calling_instruction import BINARY, ITEM_WRITES, calling_instruction
from magmath.core.dtypes import DType, as_dtype, is_same_kind, real_dtype
from magmath.core.promotion import floating_dtype
from magmath.core.type_aliases import Number
from magmath.diagnostics.explain import explain_node
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError
from magmath.graph import Node, apply, apply_to
from magmath.layout import Layout, Rule
from magmath.ops import elementwise as e
from magmath.ops.linalg.matrix_algebra import matrix_transpose
from magmath.ops.product import contraction
from magmath.ops.redistribute import redistribute
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation

Operand: TypeAlias = (
    "Array | Number | np.ndarray[Any, Any] | np.generic | list[Any] | tuple[Any, ...]"
)


OPERATOR_FRAMES = 4
"""Frames from `user_line` to the user's line: `operator_result`, `_binary` (or `_reflected`, or
`_update`), the operator method, and the user's."""
FUNCTION_FRAMES = 3
"""Frames from `user_line` to the caller's line: `operator_result`, `binary`, and the caller's."""


class Array(NumberProtocols, InterchangeProtocols, Operators["Array"], ArrayMethods["Array"]):
    """An n-dimensional array, distributed over the workers by its layout.

    Attributes: `shape`, `dtype`, `ndim`, `size`, `layout` (evaluates), `T`, `mT`, `device`,
    and NumPy's `real`, `imag`, `nbytes`, `itemsize`, `flat` and methods, such as `sum`.
    `a += b` updates `a` under all its names; shape and type remain. Exception: a 0-d result of an
    operation is a number, as NumPy's scalars are, and `s += 1` binds `s` to another one. 0-d arrays
    that creation functions make, variables and views are updated.
    """

    __slots__ = ()
    __array_priority__ = 1000

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, whose message says what to write instead."""
            if name in STALE_ATTRIBUTES:
                return super().__getattr__(name)
            raise missing_array_attribute(name)

    # elements -------------------------------------------------------------------------------

    def item(self, *index: Any) -> Number:
        """Return the value of an array of one element, or of the element at an index, as a number.

        An index is one number for each dimension, or one for the flattened array.
        """
        references = sys.getrefcount(self)
        if index:
            key = index[0] if len(index) == 1 else index
            whole = isinstance(key, tuple) or self.ndim == 1
            return (self[key] if whole else self.ravel()[key]).item()
        if self.ndim == 0:
            value: Number = self._scalar("item", references)
        else:
            value = (self.reshape(()) if self.size == 1 else self)._scalar("item")
        return value

    @property
    def base(self) -> Array | None:
        """The array whose elements this one shares, if it is a view of an array with a name."""
        base = base_of(self)
        return base if isinstance(base, Array) else None

    @property
    def flat(self) -> Array:
        """The elements as an array of one dimension; a view, whose elements can be written."""
        return rearranged(self, Reshaped((self.size,)))

    @flat.setter
    def flat(self, value: Any) -> None:
        """Write values in row-major order, repeated as often as needed."""
        operand = Array(written_operand(self.dtype, value))
        self[...] = array_namespace().resize(operand, self.shape)

    @property
    def real(self) -> Array:
        """The real parts."""
        if self.dtype.kind == "complex":
            return rearranged(self, ComplexPart("real"))
        return self

    @real.setter
    def real(self, value: Any) -> None:
        if self.dtype.kind == "complex":
            value = _with_parts(real_dtype(self.dtype), value, self.imag)
        self[...] = value

    @property
    def imag(self) -> Array:
        """The imaginary parts; 0 for real numbers."""
        if self.dtype.kind == "complex":
            return rearranged(self, ComplexPart("imag"))
        return unary("imag", self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "complex":
            raise DTypeError(
                f"x.imag = v: {self.dtype} has no imaginary part; convert with "
                f"x.astype(mm.complex128)"
            )
        self[...] = _with_parts(real_dtype(self.dtype), self.real, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(
                "a 0-d array has no length and no elements to iterate over; x.item() is its number"
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        """Return True if an element equals the value."""
        result = self == value  # False for an object that is no operand
        return bool(result.any() if isinstance(result, Array) else result)

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """Return the values, element type and layout rule for pickle."""
        return _restored, (*values_of(self), self.view_of is not None)

    def __copy__(self) -> Array:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, object]) -> Array:
        """Return a copy with its own memory, made by the workers."""
        copied = Array(copy_of(self, self.layout).evaluated_leaf())
        return copied if self.view_of is None else as_memory(copied)

    def __repr__(self) -> str:
        return printing.representation(self)

    def __str__(self) -> str:
        return printing.text(self)

    def _repr_html_(self) -> str:
        """Return a picture for notebooks: the shape, the tiles of each worker, and the values."""
        return printing.html(self)

    # layouts --------------------------------------------------------------------------------

    def redistribute(self, layout: Layout | Rule, dtype: DType | str | None = None) -> Array:
        """Return this array in another layout, converted to `dtype` if one is given.

        Raises LayoutError for a layout of another shape or another pool's mesh.
        """
        bound = bind_layout("redistribute", layout, self.shape)
        line = user_line()
        source = self.node
        if dtype is not None:
            source = apply(e.ASTYPE, source, dtype=as_dtype(dtype), line=line)
        return Array(redistribute(source, bound, line))

    def replicate(self, wait: bool = True) -> Array:
        """Return a copy on every worker (one per host if workers share memory).

        With `wait=False` it returns immediately: the workers transfer the copy concurrently with
        later computations, and wait for it where it is first used.
        """
        engine = session.engine()
        source = self if wait else Array(self.evaluated_leaf())
        result = source.redistribute(engine.environment.replicated(self.shape, shared=True))
        if wait:
            evaluate(result, wait=True)
        elif result.node is not source.node:
            result.set_computed(engine.redistributed_copies.leaf(result.node, concurrent=True))
        return result

    def explain(self) -> Explanation:
        """Return the explanation of the program that computes, or has computed, this array.

        The explanation lists instructions, seconds, bytes, messages and memory, by operation and by
        line. It prints as a listing; its fields are the numbers.
        """
        return explain_node(self.node)

    # operators ------------------------------------------------------------------------------

    @property
    def T(self) -> Array:
        """The axes in reverse order: of a matrix, its transpose."""
        return rearranged(self, Permuted(tuple(range(self.ndim))[::-1]))

    @property
    def mT(self) -> Array:
        """The array with its last two axes exchanged."""
        node = matrix_transpose(self.node)
        transposed = Array(node)
        link(self, transposed, Permuted((*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)))
        return transposed

    def __getitem__(self, key: Any) -> Array:
        leaf = read_element(self, key)
        if leaf is not None:
            return Array(leaf)
        key, step = part_of(self._node, key)
        if step is not None:
            view = rearranged(self, step)
            has_memory = step.is_view and not view._node.shape  # s[...] is an array, not a number
            return as_memory(view) if has_memory else view
        key = with_stored_positions(self, key)
        leaf = repeated_elements(self, key)
        if leaf is not None:
            return Array(leaf)
        try:
            source = self.node
            node, part = getitem(source, key)
        except UnknownCount:
            masked: Any = masked_elements(self, key)
            if masked is None:
                raise
            return masked  # type: ignore[no-any-return]
        selected = Array(node)
        if part is not None and part.is_view:
            with expression_lock.lock:
                if self._node is not source:  # another thread has written the array
                    selected = Array(part.read(self.node))
                link(self, selected, part)
        if part is None:
            record_elements(self, key, selected)
        return selected

    def __setitem__(self, key: Any, value: Any) -> None:
        has_no_name = sys.getrefcount(self) <= TEMPORARY_TARGET
        value_has_no_name = isinstance(value, Array) and sys.getrefcount(value) <= TEMPORARY
        if (has_no_name or value_has_no_name) and calling_instruction(1) not in ITEM_WRITES:
            has_no_name = value_has_no_name = False
        if has_no_name and (
            self.view_of is None or not self.view_of.storage.has_other_arrays(self)
        ):
            check_writable(self)
            raise unread_write_error()
        with expression_lock.lock:  # writes of several threads follow one another
            if value_has_no_name:
                value.unlink()  # not read after the write
            if self._leaf is None and is_small_write_into_new(self, key):
                self.evaluated_leaf()
            operand = small_operand(self, value)
            if operand is not None:
                value, value_has_no_name = Array(operand), True
            if self.view_of is None:
                self.replace_value(written_item(self, key, value))
            else:
                with session.deferred_interrupts():  # all arrays with these elements, or none
                    self.replace_value(written_item(self, key, value))
            if self._leaf is not None:
                return
            if session.engine().evaluator.should_evaluate_now(
                [self.node, *([value.node] if value_has_no_name else [])]
            ):
                self._evaluate_write()

    def __pos__(self) -> Array:
        require_kind("positive", "numeric", self.dtype)
        return Array(self._node)

    def __matmul__(self, other: Any) -> Array:
        if isinstance(other, _MATRICES):
            return _product(self, other)
        return foreign_operand("matmul", other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any) -> Array:
        if isinstance(other, _MATRICES):
            return _product(other, self)
        return foreign_operand("matmul", other, has_refused=True)  # type: ignore[no-any-return]

    def __imatmul__(self, other: Any) -> Array:
        return self.replace_value(self._in_own_type((self @ other).node))

    def copy(self, order: str = "K", subok: bool = False) -> Array:
        """Return an array with the same values; of a number another number."""
        return copy_of(self)

    def converted(self) -> Array:
        """Return this array; a weakly typed number becomes one of its class's default type."""
        return self

    def _unary(self, operation: str) -> Array:
        return unary(operation, self)

    def _binary(self, operation: str, other: Any) -> Array:
        node = operator_result(operation, self, other, operator_node, OPERATOR_FRAMES)
        return node if node is NotImplemented else Array(node, WAS_ATTEMPTED)

    def _update(self, operation: str, other: Any) -> Array:
        has_no_name = self.view_of is not None and sys.getrefcount(self) <= TEMPORARY_UPDATE
        if has_no_name and calling_instruction(2) == BINARY:
            with expression_lock.lock:  # not while another thread updates it with its base
                self.unlink()  # the x[i] of x[i] += v, which Python writes into x itself
        node = operator_result(operation, self, other, operator_node, OPERATOR_FRAMES)
        if node is NotImplemented:
            return node  # type: ignore[no-any-return]
        if not self._node.shape and self.view_of is None and not self.is_variable:
            return Array(node, WAS_ATTEMPTED)  # a number, which binds the name to another one
        return self.replace_value(self._in_own_type(node))

    def _reflected(self, operation: str, other: Any) -> Array:
        if not isinstance(other, OPERANDS):
            return foreign_operand(operation, other, has_refused=True)  # type: ignore[no-any-return]
        node = operator_result(operation, other, self, binary_node, OPERATOR_FRAMES)
        return Array(node, WAS_ATTEMPTED)

    def _in_own_type(self, node: Node) -> Node:
        """Return the new value of an update in place in the type of this array, if it is of the
        same kind or a more general one."""
        own = self.dtype
        is_other = node.dtype is not own
        return e.astype(node, own) if is_other and is_same_kind(node.dtype, own) else node

    def replace_value(self, node: Node) -> Array:
        """Make this a handle on another value of the same shape and type, as `a += b` does; return
        it."""
        old = self._node
        if node.shape != old.shape or node.dtype is not old.dtype:
            raise update_error(old, node)
        del old  # an evaluation counts references
        with expression_lock.lock:  # no other thread stores a computed value, or links a view
            if self.view_of is None:
                self.refer_to_updated(node)
            else:
                self._refer_with_views(node)
        if self._leaf is None and tracing.current() is None:
            session.engine().evaluator.add_update(self, node)
        return self

    def _refer_with_views(self, node: Node) -> None:
        """Refer to another value, and update the arrays that share elements."""
        share = prepare_shared_write(self)
        if share is None:
            self.refer_to_updated(node)
            return
        with session.engine().pool.defer_interrupts():  # all of the arrays change, or none
            self.refer_to_updated(node)
            share()


# building expressions ---------------------------------------------------------------------------


def copy_of(array: Array, layout: Layout | None = None) -> Array:
    """Return a new array with the same values and its own memory, in `layout` if one is given; of a
    number another number."""
    copied = Array(apply(e.ASTYPE, array.node, dtype=array.dtype, line=user_line()))
    placed = redistributed(copied, layout)
    return placed if array.view_of is None else as_memory(placed)


def rearranged(array: Array, step: ViewStep) -> Array:
    """Return the view of an array that a step selects."""
    if not step.is_view:
        return Array(selected_part(array, step))
    with expression_lock.lock:  # no thread writes the array before the view is linked
        view = Array(selected_part(array, step))
        link(array, view, step)
    return view


def redistributed(array: Array, layout: Layout | None) -> Array:
    """Return an expression redistributed to a layout.

    Returns it unchanged if no layout is given or the pool has a single worker.
    """
    if layout is None or (
        layout.is_whole_on_first_worker and session.engine().environment.workers == 1
    ):
        return array
    return Array(redistribute(array.node, layout))


_MATRICES = (LazyArray, np.ndarray, *LISTS)


def binary(operation: str, x: Any, y: Any) -> Array:
    """Apply an element-wise operation to two operands, promoted and broadcast.

    One operand may be a number.
    """
    return Array(operator_result(operation, x, y, binary_node, FUNCTION_FRAMES), WAS_ATTEMPTED)


@dispatch_cached
def unary(operation: str, x: Array) -> Array:
    """Apply an element-wise operation to one array."""
    if x.is_weak:
        return x._unary(operation)
    return Array(unary_node(operation, x.node, user_line()))


def floating(operation: str, x: Any) -> Array:
    """Return an array (see `as_array`), with integers converted to floating point by
    `promotion.floating_dtype`."""
    array = as_array(operation, x)
    node = e.astype(array.node, floating_dtype(array.dtype))
    return array if node is array.node else Array(node)


def as_array(operation: str, value: Any, dtype: DType | str | type | None = None) -> Array:
    """Return `value` if it is an Array; convert NumPy arrays and scalars, nested lists, tuples and
    traced numbers.

    With `dtype`, the array has that type. Numbers and lists take it without a default type between,
    which would round them; RangeError is raised for those that an integer type cannot hold.
    """
    if dtype is not None:
        element = as_dtype(dtype)
        if isinstance(value, Array) and value.dtype is element and not value.is_weak:
            return value
        return Array(node_in_type(operation, value, element))
    if isinstance(value, Array):
        return value.converted() if value.is_weak else value
    return Array(node_of_value(operation, value))


def as_arrays(operation: str, *values: Any) -> list[Array]:
    """Return arrays as `as_array` does, but numbers and lists of numbers in the type that they have
    in an element-wise operation with the other values."""
    return [as_array(operation, Array(node)) for node in unpromoted_nodes(operation, *values)]


def as_array_for(operation: str, value: Any, other: Array) -> Array:
    """Return `value` as `as_array` does, but floats, also in lists, with the digits that they have
    in an element-wise operation with another array; integers remain integers."""
    array = as_array(operation, value)
    is_exact = array.dtype.kind not in ("float", "complex")
    return array if is_exact else as_arrays(operation, other, value)[1]


@dispatch_cached
def _product(x: Any, y: Any) -> Array:
    return Array(contraction.matmul(*promoted_nodes("matmul", x, y), line=user_line()))


def _with_parts(dtype: DType, real: Any, imag: Any) -> Array:
    """Return complex numbers with these parts, which are written into arrays of a real type."""
    parts = written_operand(dtype, real), written_operand(dtype, imag)
    return Array(apply_to(e.OPERATIONS["complex"], parts, user_line()))


def _restored(name: str, values: Any, rule: Any, workers: int, is_memory: bool = False) -> Array:
    """Return a pickled array. `is_memory`: without dimensions it is no number (`as_memory`)."""
    array = Array(restored_leaf(name, values, rule, workers))
    return as_memory(array) if is_memory else array
