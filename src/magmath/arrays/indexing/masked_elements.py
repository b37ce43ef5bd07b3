"""`x[mask]` in a function that is traced: selected elements, whose number is unknown.

Arithmetic on them computes all elements of the array, and a write with the same mask, or a
reduction, drops those that are not selected. So `x[mask] *= 2` and `x[mask] = np.exp(y[mask])` keep
the shape, and can be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, final

from magmath.arrays.indexing.mask_position import MaskPosition, mask_position
from magmath.arrays.indexing.masks import UnknownCount
from magmath.arrays.indexing.subscripts import setitem
from magmath.arrays.inputs.number_list import LISTS
from magmath.arrays.inputs.operands import written_operand
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.protocols.namespace import array_namespace
from magmath.arrays.protocols.numpy_protocols import call_ufunc
from magmath.arrays.protocols.operators import Operators
from magmath.core.shapes import reduced_axes
from magmath.engine.user_line import user_line
from magmath.errors import TracingError
from magmath.graph import Node, apply, structure_of, topological
from magmath.ops import elementwise as e
from magmath.ops.leaves import SCALAR, constant
from magmath.ops.manipulation import reshape

if TYPE_CHECKING:
    import numpy as np

    from magmath.core.dtypes import DType


F = TypeVar("F", bound=Callable[..., Any])
Array = Any
"""An `Array`, whose module imports this one."""


def _reduction(name: str) -> Callable[..., Any]:
    """Return the method for a reduction of the namespace."""

    def method(elements: MaskedElements, axis: Any = None, **options: Any) -> Any:
        return getattr(array_namespace(), name)(elements, axis, **options)

    method.__name__ = name
    method.__doc__ = f"Return the {name} of the elements; see `mm.{name}`."
    return method


@final
class MaskedElements(Operators["MaskedElements"]):
    """The elements of an array that a mask selects, while their number is unknown.

    The other elements are 1 in all intermediate results, so that neither they nor their derivatives
    become infinite or nan, which would reach gradients.

    They take Python's operators, element-wise functions, `astype`, and reductions: over all
    elements, over the selected dimension and over those after it; `max` of no elements is the least
    number of the type. Other operands are numbers, elements that the same mask selects, and arrays
    that broadcast to the dimensions after those of the mask.
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
        dtype: DType = self._values.dtype
        return dtype

    def astype(self, dtype: Any) -> MaskedElements:
        """Return the elements in another type."""
        return self._with(array_namespace().astype(self._values, dtype))

    def copy(self) -> MaskedElements:
        """Return the elements, which are a copy already."""
        return self

    @property
    def ndim(self) -> int:
        """The number of dimensions: those of the mask are one."""
        count: int = self._values.ndim - self._mask.ndim + 1
        return count

    @property
    def size(self) -> Array:
        """The number of elements: an integer that the compiled function computes."""
        return array_namespace().count_nonzero(self._wide_condition())

    def written(self, x: Array, key: Any) -> Node:
        """Return the node of x with these elements at the positions that an index selects. Raises
        TracingError unless the index has the same mask."""
        position = mask_position(x.node, key)
        if (
            position is None
            or position.axis != self._axis
            or not _is_same(position.mask, self._mask)
        ):
            raise _unknown("writing elements that another mask selects")
        if position.part.ndim - position.mask.ndim + 1 != self.ndim:
            raise _unknown("writing selected elements of other dimensions")
        return position.written(
            x.node, self._selected(written_operand(x.dtype, self._values), position.part)
        )

    def replaced(self, x: Array, position: MaskPosition, value: Any) -> Node:
        """Return the node of x with a value at these positions: a number, or an array that
        broadcasts to the dimensions behind those of the mask."""
        operand = written_operand(x.dtype, self._operand("writing", value))
        return position.written(x.node, self._selected(operand, position.part))

    def _selected(self, values: Node, others: Node) -> Node:
        """Return the node of values where the mask is true, and of others elsewhere."""
        return apply(e.WHERE, self._condition, values, others, line=user_line())

    # reductions ---------------------------------------------------------------------------------

    sum, prod, any, all, mean, var, std, max, min = map(
        _reduction, ("sum", "prod", "any", "all", "mean", "var", "std", "max", "min")
    )

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
        if getattr(other, "ndim", 0) > self._behind or isinstance(other, LISTS):
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
    """Return the elements that an index selects; None if it has no mask, or has other arrays
    too."""
    position = mask_position(x.node, key)
    return None if position is None else _elements_at(position)


def _elements_at(position: MaskPosition) -> MaskedElements:
    return MaskedElements(array_namespace().Array(position.part), position.mask, position.axis)


def with_item(x: LazyArray, key: Any, value: Any) -> Node:
    """Return the node of x with x[index] replaced by a value. Raises as `setitem`."""
    if type(value) is MaskedElements:
        return value.written(x, key)
    try:
        return setitem(x.node, key, written_operand(x.dtype, value))
    except UnknownCount:
        position = mask_position(x.node, key)
        if position is None:
            raise
        return _elements_at(position).replaced(x, position, value)


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
    orders = topological((x,), pending=True), topological((y,), pending=True)
    if any(node.operation.is_random for node in orders[0]):
        return False
    (key, leaves), (other_key, others) = (
        structure_of(order, (mask,), (None,)) for order, mask in zip(orders, (x, y), strict=True)
    )
    return key == other_key and all(
        a is b or (a.operation is SCALAR and a.value is not None and a.value == b.value)
        for a, b in zip(leaves, others, strict=True)
    )


def _unknown(operation: str) -> TracingError:
    return TracingError(
        f"indexing: {operation} needs the number of elements that a mask selects, which is unknown "
        f"while mm.compile traces a function ({':'.join(map(str, user_line() or ()))}). There, "
        f"x[mask] takes element-wise functions of numbers and of elements that the same mask "
        f"selects, and reductions such as sum and mean; otherwise keep the shape with "
        f"mm.where(mask, x, y), or index outside of the compiled function"
    )
