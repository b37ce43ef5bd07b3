"""`x[mask]` in a function that is traced: selected elements, whose number is unknown.

Arithmetic on them computes all elements of the array, and a write with the same mask, or a
reduction, drops those that are not selected. So `x[mask] *= 2` and `x[mask] = np.exp(y[mask])` keep
the shape, and can be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

import numpy as np

from magmath.arrays.masks import UnknownCount
from magmath.arrays.namespace import array_namespace
from magmath.arrays.numpy_protocols import call_ufunc
from magmath.arrays.operands import written_operand
from magmath.arrays.operators import Operators
from magmath.arrays.subscripts import getitem, setitem
from magmath.core.shapes import reduced_axes
from magmath.engine.user_line import user_line
from magmath.errors import TracingError
from magmath.graph import Node, apply, structure_of, topological
from magmath.ops import elementwise as e
from magmath.ops.leaves import PARAMETER, constant
from magmath.ops.manipulation import reshape

if TYPE_CHECKING:
    from magmath.core.dtypes import DType


F = TypeVar("F", bound=Callable[..., Any])
Array = Any
"""An `Array`, whose module imports this one."""


@final
class MaskedElements(Operators["MaskedElements"]):
    """The elements of an array that a mask selects, while their number is unknown.

    The other elements are 1 in all intermediate results, so that neither they nor their derivatives
    become infinite or nan, which would reach gradients.

    They take Python's operators, element-wise functions, `astype`, and reductions: over all
    elements, over the selected dimension, and over those behind it. Other operands are numbers,
    elements that the same mask selects, and arrays that broadcast to the dimensions behind those of
    the mask.
    """

    __slots__ = ("_axis", "_behind", "_condition", "_mask", "_values")

    def __init__(self, values: Array, mask: Node, axis: int) -> None:
        self._mask, self._axis = mask, axis
        behind = values.ndim - axis - mask.ndim
        self._behind = behind  # the number of dimensions behind those of the mask
        self._condition = reshape(mask, (*mask.shape, *(1,) * behind))
        one = constant(1, values.dtype)
        self._values = array_namespace().Array(self._selected(values.node, one))

    @property
    def dtype(self) -> DType:
        """The element type."""
        found: DType = self._values.dtype
        return found

    def astype(self, dtype: Any) -> MaskedElements:
        """Return the elements in another type."""
        return self._with(array_namespace().astype(self._values, dtype))

    def copy(self) -> MaskedElements:
        """Return the elements, which are a copy already."""
        return self

    @property
    def ndim(self) -> int:
        """The number of dimensions: those of the mask are one."""
        found: int = self._values.ndim - self._mask.ndim + 1
        return found

    @property
    def size(self) -> Array:
        """The number of elements: an integer that the compiled function computes."""
        return array_namespace().count_nonzero(self._wide_condition())

    def written(self, x: Array, key: Any) -> Node:
        """Return the node of x with these elements at the positions that a key selects. Raises
        TracingError unless the key has the same mask."""
        place = _place(x, key)
        if place is None or place.axis != self._axis or not _is_same(place.mask, self._mask):
            raise _unknown("writing elements that another mask selects")
        if place.part.ndim - place.mask.ndim + 1 != self.ndim:
            raise _unknown("writing selected elements of other dimensions")
        return place.written(x, self._selected(written_operand(x.dtype, self._values), place.part))

    def replaced(self, x: Array, place: _Place, value: Any) -> Node:
        """Return the node of x with a value at these positions: a number, or an array that
        broadcasts to the dimensions behind those of the mask."""
        given = written_operand(x.dtype, self._operand("writing", value))
        return place.written(x, self._selected(given, place.part))

    def _selected(self, values: Node, others: Node) -> Node:
        """Return the node of values where the mask is true, and of others elsewhere."""
        return apply(e.WHERE, self._condition, values, others, line=user_line())

    # reductions ---------------------------------------------------------------------------------

    def sum(self, axis: Any = None, **options: Any) -> Any:
        """Return the sum of the elements."""
        return array_namespace().sum(self, axis, **options)

    def prod(self, axis: Any = None, **options: Any) -> Any:
        """Return the product of the elements."""
        return array_namespace().prod(self, axis, **options)

    def any(self, axis: Any = None, **options: Any) -> Any:
        """Return True if an element is true."""
        return array_namespace().any(self, axis, **options)

    def all(self, axis: Any = None, **options: Any) -> Any:
        """Return True if all elements are true."""
        return array_namespace().all(self, axis, **options)

    def mean(self, axis: Any = None, **options: Any) -> Any:
        """Return the mean of the elements; nan if there are none."""
        return array_namespace().mean(self, axis, **options)

    def var(self, axis: Any = None, **options: Any) -> Any:
        """Return the variance of the elements."""
        return array_namespace().var(self, axis, **options)

    def std(self, axis: Any = None, **options: Any) -> Any:
        """Return the standard deviation of the elements."""
        return array_namespace().std(self, axis, **options)

    def max(self, axis: Any = None, **options: Any) -> Any:
        """Return the largest element; the smallest number of the type if there are none."""
        return array_namespace().max(self, axis, **options)

    def min(self, axis: Any = None, **options: Any) -> Any:
        """Return the smallest element; the largest number of the type if there are none."""
        return array_namespace().min(self, axis, **options)

    def reduced(
        self,
        function: Callable[..., Any],
        axis: Any = None,
        *given: Any,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        """Return a reduction by a function of arrays that takes `where`.

        The results for each selected row, without the selected dimension, are elements that the
        mask selects.
        """
        name, rank = function.__name__, self._mask.ndim
        if given or any(options.get(key) is not None for key in ("where", "out")):
            raise _unknown(f"{name} with other arguments than axis, keepdims and dtype by name")
        axes = reduced_axes(name, axis, self.ndim)
        wide = tuple(
            d
            for a in axes
            for d in (
                range(a, a + rank) if a == self._axis else [a + rank - 1 if a > self._axis else a]
            )
        )
        if self._axis not in axes:
            result = function(self._values, axis=wide, keepdims=keepdims, **options)
            before = 0 if keepdims else len([a for a in axes if a < self._axis])
            return MaskedElements(result, self._mask, self._axis - before)
        if name in ("max", "min") and options.get("initial") is None:
            options["initial"] = _limit(self.dtype, lowest=name == "max")
        result = function(
            self._values, axis=wide, keepdims=keepdims, where=self._wide_condition(), **options
        )
        if keepdims and rank > 1:
            shape = result.shape
            result = result.reshape(shape[: self._axis] + shape[self._axis + rank - 1 :])
        return result

    def _wide_condition(self) -> Array:
        """Return the mask in the shape of the array."""
        namespace = array_namespace()
        return namespace.broadcast_to(namespace.Array(self._condition), self._values.shape)

    # arithmetic ---------------------------------------------------------------------------------

    def _unary(self, operation: str) -> MaskedElements:
        return self._with(self._values._unary(operation))

    def _binary(self, operation: str, other: Any) -> MaskedElements:
        return self._with(self._values._binary(operation, self._operand(operation, other)))

    def _reflected(self, operation: str, other: Any) -> MaskedElements:
        return self._with(self._values._reflected(operation, self._operand(operation, other)))

    def _update(self, operation: str, other: Any) -> MaskedElements:
        return self._binary(operation, other)  # it is a copy: the name refers to another value

    def _with(self, values: Array) -> MaskedElements:
        """Return other values at the selected positions."""
        if values is NotImplemented:
            return values  # type: ignore[no-any-return]
        return MaskedElements(values, self._mask, self._axis)

    def mapped(
        self, function: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any]
    ) -> MaskedElements:
        """Return an element-wise function of these elements and other operands."""
        name = function.__name__
        operands = [self._operand(name, x) for x in given]
        named = {key: self._operand(name, x) for key, x in options.items()}
        return self._with(function(*operands, **named))

    def _operand(self, operation: str, other: Any) -> Any:
        """Return an operand for all elements of the array."""
        if isinstance(other, MaskedElements):
            if other.ndim != self.ndim:
                raise _unknown(f"{operation} of selected elements of different dimensions")
            if other._axis == self._axis and _is_same(other._mask, self._mask):
                return other._values
            raise _unknown(f"{operation} of elements that two masks select")
        if getattr(other, "ndim", 0) > self._behind or isinstance(other, (list, tuple)):
            raise _unknown(f"{operation} with an array along the selected dimension")
        return other

    # conversions --------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, options)

    def refuse(self, operation: str) -> TracingError:
        """Return the error for another operation."""
        return _unknown(operation)

    def _refuse_value(self, *_: Any, **__: Any) -> Any:
        raise _unknown("a value, a length or an iteration")

    def _refuse_product(self, other: Any) -> Any:
        raise _unknown("a matrix product")

    __matmul__ = __rmatmul__ = __imatmul__ = _refuse_product
    __array__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __index__ = _refuse_value
    __getitem__ = __setitem__ = _refuse_value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _unknown(f"x[mask].{name}")

    def __repr__(self) -> str:
        return f"<elements of {self._values!r} that a mask selects>"


def takes_selected(function: F) -> F:
    """Return an element-wise function, composed of others, that also takes the elements that a mask
    selects."""

    @wraps(function)
    def mapped(*given: Any, **options: Any) -> Any:
        for x in given:
            if type(x) is MaskedElements:
                return x.mapped(function, given, options)
        return function(*given, **options)

    return mapped  # type: ignore[return-value]


def reduces_selected(function: F) -> F:
    """Return a reduction that also takes the elements that a mask selects."""

    @wraps(function)
    def reduced(*given: Any, **options: Any) -> Any:
        if given and type(given[0]) is MaskedElements:
            return given[0].reduced(function, *given[1:], **options)
        return function(*given, **options)

    return reduced  # type: ignore[return-value]


def masked_elements(x: Array, key: Any) -> MaskedElements | None:
    """Return the elements that a key selects, None if it has no mask, or other arrays."""
    place = _place(x, key)
    if place is None:
        return None
    return MaskedElements(array_namespace().Array(place.part), place.mask, place.axis)


def with_item(x: Array, key: Any, value: Any) -> Node:
    """Return the node of x with x[key] replaced by a value. Raises as `setitem`."""
    if type(value) is MaskedElements:
        return value.written(x, key)
    try:
        return setitem(x.node, key, written_operand(x.dtype, value))
    except UnknownCount:
        place, elements = _place(x, key), masked_elements(x, key)
        if place is None or elements is None:
            raise
        return elements.replaced(x, place, value)


class _Place(NamedTuple):
    """The place of a mask in a key: the mask, the part of the array that the rest of the key
    selects, the rest (None if that is the whole array), and the first dimension of the mask in the
    part."""

    mask: Node
    part: Node
    rest: tuple[Any, ...] | None
    axis: int

    def written(self, x: Array, part: Node) -> Node:
        """Return the node of x with another part."""
        return part if self.rest is None else setitem(x.node, self.rest, part)


def _place(x: Array, key: Any) -> _Place | None:
    """Return the place of the only mask in a key; None for a key with other arrays, and if slices
    separate the mask from positions, so that NumPy moves the selected dimension."""
    items = list(key) if isinstance(key, tuple) else [key]
    found = [i for i, item in enumerate(items) if _is_mask(item)]
    plain = [item is None or item is Ellipsis or isinstance(item, slice) for item in items]
    positions = [i for i, item in enumerate(items) if not plain[i] and _is_position(item)]
    together = sorted([*found, *positions])
    if len(found) != 1 or sum(plain) + len(together) < len(items):
        return None
    if together[-1] - together[0] >= len(together):
        return None
    (at,) = found
    mask = array_namespace().asarray(items[at])
    if not mask.ndim:
        return None
    items[at : at + 1] = [slice(None)] * mask.ndim
    before, after = items[:at], items[at + mask.ndim :]
    consumed = [item for item in before if item is not None and item is not Ellipsis]
    axis = len(consumed)
    if Ellipsis in [item for item in before if item is Ellipsis]:
        later = [item for item in after if item is not None]
        axis = x.ndim - mask.ndim - len(later)
    shape = x.shape[axis : axis + mask.ndim]
    if mask.shape != shape:
        raise IndexError(
            f"indexing: the mask has shape {mask.shape}, and the dimensions that it selects from "
            f"have {shape}; give a mask of their shape"
        )
    axis += len([1 for item in before if item is None]) - len([i for i in positions if i < at])
    whole = all(item is Ellipsis or item == slice(None) for item in items)
    if whole:
        return _Place(mask.node, x.node, None, axis)
    return _Place(mask.node, getitem(x.node, tuple(items))[0], tuple(items), axis)


def _is_mask(item: Any) -> bool:
    if isinstance(item, list):
        return bool(item) and all(isinstance(value, (bool, np.bool_)) for value in item)
    return getattr(getattr(item, "dtype", None), "kind", "") in ("bool", "b")


def _is_position(item: Any) -> bool:
    """Return True for an integer, not an array of integers."""
    return not hasattr(item, "dtype") and hasattr(item, "__index__")


def _limit(dtype: DType, *, lowest: bool) -> Any:
    """Return the smallest or the largest number of a type."""
    if dtype.kind == "bool":
        return not lowest
    if dtype.is_integer:
        limits = array_namespace().iinfo(dtype)
        return limits.min if lowest else limits.max
    return -inf if lowest else inf


def _is_same(x: Node, y: Node) -> bool:
    """Return True if two masks are the same expression of the same arrays and numbers."""
    if x is y:
        return True
    orders = topological((x,), cut=True), topological((y,), cut=True)
    if any(node.operation.random for node in orders[0]):
        return False
    (key, leaves), (other_key, others) = (
        structure_of(order, (mask,), (None,)) for order, mask in zip(orders, (x, y), strict=True)
    )
    return key == other_key and all(
        a is b or (a.operation is PARAMETER and a.value is not None and a.value == b.value)
        for a, b in zip(leaves, others, strict=True)
    )


def _unknown(operation: str) -> TracingError:
    return TracingError(
        f"indexing: the number of elements that a mask selects is unknown while mm.compile traces "
        f"a function ({':'.join(map(str, user_line() or ()))}), which {operation} needs; x[mask] "
        f"takes numbers and elements that the same mask selects, and reductions such as sum and "
        f"mean; otherwise keep the shape with mm.where(mask, x, y), or index outside of it"
    )
