"""The functions of the array API on arrays: element-wise, reductions, products, shapes.

Element-wise functions differ in name alone, so they are made from a table; everything else is
written out. Compositions (mean, var, std, clip, relu, softmax …) are written in operations that
exist; the fuser makes them fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from magmath.array.array import Array, as_array, binary, operands, unary, user_line
from magmath.core.dtypes import DType, accumulator, as_dtype, promote, scalar_dtype
from magmath.core.shapes import broadcast, normal_axes, normal_axis, size_of
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Shape, apply
from magmath.ops import elementwise as e
from magmath.ops import linalg, manipulation, reductions
from magmath.ops.leaves import constant

Axis = int | tuple[int, ...] | None


def _unary(name: str, operation: str | None = None, text: str = "") -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        return unary(operation or name, as_array(name, x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text or f"Element-wise {name} of x."
    return function


def _binary(name: str, text: str = "") -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        return binary(name, x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text or f"Element-wise {name} of x1 and x2, which broadcast."
    return function


abs = _unary("abs", text="The absolute value of each element.")
acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
bitwise_invert = _unary("bitwise_invert")
ceil = _unary("ceil")
cos = _unary("cos")
cosh = _unary("cosh")
exp = _unary("exp")
expm1 = _unary("expm1")
floor = _unary("floor")
isfinite = _unary("isfinite")
isinf = _unary("isinf")
isnan = _unary("isnan")
log = _unary("log", text="The natural logarithm of each element.")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
logical_not = _unary("logical_not")
negative = _unary("negative")
reciprocal = _unary("reciprocal")
round = _unary("round", text="Each element rounded to the nearest integer, ties to even.")
sign = _unary("sign")
sin = _unary("sin")
sinh = _unary("sinh")
sqrt = _unary("sqrt")
square = _unary("square")
tan = _unary("tan")
tanh = _unary("tanh")
trunc = _unary("trunc")

add = _binary("add")
atan2 = _binary("atan2")
bitwise_and = _binary("bitwise_and")
bitwise_left_shift = _binary("bitwise_left_shift")
bitwise_or = _binary("bitwise_or")
bitwise_right_shift = _binary("bitwise_right_shift")
bitwise_xor = _binary("bitwise_xor")
copysign = _binary("copysign")
divide = _binary("divide")
equal = _binary("equal")
floor_divide = _binary("floor_divide")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
hypot = _binary("hypot")
less = _binary("less")
less_equal = _binary("less_equal")
logaddexp = _binary("logaddexp")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply")
not_equal = _binary("not_equal")
pow = _binary("power", "x1 raised to the power x2, element by element.")
remainder = _binary("remainder")
subtract = _binary("subtract")


def positive(x: Array, /) -> Array:
    """x itself."""
    return as_array("positive", x)


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """x1 where the condition holds, else x2."""
    x, y = operands("where", x1, x2)
    return Array(apply(e.WHERE, as_array("where", condition).node, x, y, line=user_line()))


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """x limited to [min, max]; None leaves a side open."""
    result = as_array("clip", x)
    if min is not None:
        result = maximum(result, min)
    return result if max is None else minimum(result, max)


def astype(x: Array, dtype: DType | str | type, /, *, copy: bool = True) -> Array:
    """x with its elements converted to `dtype`."""
    x, element = as_array("astype", x), as_dtype(dtype)
    if x.dtype == element and not copy:
        return x
    return Array(apply(e.ASTYPE, x.node, dtype=element, line=user_line()))


# reductions ---------------------------------------------------------------------------------


def _reduction(name: str, x: Array, axis: Axis, keepdims: bool, dtype: Any = None) -> Array:
    x = as_array(name, x)
    if dtype is not None and as_dtype(dtype) != x.dtype:
        x = astype(x, dtype)
    axes = normal_axes(name, axis, x.ndim)
    record = reductions.BY_NAME[name]
    result = apply(record, x.node, axis=axes, keepdims=keepdims, line=user_line())
    if dtype is not None:
        result = e.astype(result, as_dtype(dtype))
    return Array(result)


def sum(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The sum over `axis` (all axes for None); small integers accumulate in 64 bits."""
    return _reduction("sum", x, axis, keepdims, dtype)


def prod(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The product over `axis`; small integers accumulate in 64 bits."""
    return _reduction("prod", x, axis, keepdims, dtype)


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest element along `axis`."""
    return _reduction("max", x, axis, keepdims)


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest element along `axis`."""
    return _reduction("min", x, axis, keepdims)


def _truth(x: Array) -> Array:
    x = as_array("any/all", x)
    return x if x.dtype.kind == "bool" else not_equal(x, 0)


def any(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """True where an element along `axis` is true or not zero."""
    return _reduction("any", _truth(x), axis, keepdims)


def all(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """True where every element along `axis` is true or not zero."""
    return _reduction("all", _truth(x), axis, keepdims)


def _count(x: Array, axis: Axis) -> int:
    return size_of(x.shape[d] for d in normal_axes("mean", axis, x.ndim))


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The arithmetic mean over `axis`; nan where there are no elements."""
    count = _count(x, axis)
    total = sum(_floating("mean", x), axis=axis, keepdims=keepdims)
    return multiply(total, 1.0 / count) if count else divide(total, 0.0)


def var(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The variance over `axis`: squared deviations from the mean over (count - correction)."""
    deviation = subtract(_floating("var", x), mean(x, axis=axis, keepdims=True))
    total = sum(square(deviation), axis=axis, keepdims=keepdims)
    return divide(total, float(_count(x, axis) - correction))


def std(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The standard deviation over `axis`."""
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _floating(name: str, x: Array) -> Array:
    x = as_array(name, x)
    if not x.dtype.is_floating and x.dtype.kind != "complex":
        raise DTypeError(f"{name}: takes floating point, was given {x.dtype}; use mm.astype first")
    return x


def _arg(name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    x = as_array(name, x)
    node = x.node if axis is not None else manipulation.reshape(x.node, (x.size,))
    position = 0 if axis is None else normal_axis(name, axis, x.ndim)
    record = reductions.OPERATIONS[name]
    result = apply(record, node, axis=position, keepdims=keepdims, line=user_line())
    if axis is None and keepdims:
        result = manipulation.reshape(result, (1,) * x.ndim)
    return Array(result)


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the first largest element along `axis` (of the flat array for None)."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The position of the first smallest element along `axis` (of the flat array for None)."""
    return _arg("argmin", x, axis, keepdims)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Running sums along `axis`, from the first element (or from 0 with `include_initial`)."""
    x = as_array("cumulative_sum", x)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"cumulative_sum: needs `axis` for an array of {x.ndim} dimensions")
    position = normal_axis("cumulative_sum", 0 if axis is None else axis, x.ndim)
    element = accumulator(x.dtype) if dtype is None else as_dtype(dtype)
    node = apply(
        reductions.CUMULATIVE_SUM, e.astype(x.node, element), axis=position, line=user_line()
    )
    if include_initial:
        from magmath.array.creation import zeros

        shape = (*x.shape[:position], 1, *x.shape[position + 1 :])
        return concat([zeros(shape, dtype=node.dtype), Array(node)], axis=position)
    return Array(node)


# products -----------------------------------------------------------------------------------


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product; 1-D operands are a row on the left and a column on the right."""
    a, b = as_array("matmul", x1), as_array("matmul", x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul: needs arrays of 1 or more dimensions, got {a.shape} @ {b.shape}")
    dtype, line = promote(a.dtype, b.dtype), user_line()
    left, right = e.astype(a.node, dtype), e.astype(b.node, dtype)
    if a.ndim == 1:
        left = manipulation.reshape(left, (1, *a.shape))
    if b.ndim == 1:
        right = manipulation.reshape(right, (*b.shape, 1))
    try:
        product = apply(linalg.MATMUL, left, right, line=line)
    except ShapeError as error:
        raise ShapeError(f"{error} (operands {a.shape} @ {b.shape})") from None
    shape = list(product.shape)
    if b.ndim == 1:
        del shape[-1]
    if a.ndim == 1:
        del shape[-2 if b.ndim > 1 else -1]
    return Array(manipulation.reshape(product, tuple(shape)))


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged."""
    x = as_array("matrix_transpose", x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: needs 2 or more dimensions, was given {x.shape}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


# shapes -------------------------------------------------------------------------------------


def _resolved(shape: Sequence[int], size: int) -> Shape:
    extents = tuple(int(n) for n in shape)
    if extents.count(-1) > 1 or [n for n in extents if n < -1]:
        raise ShapeError(f"reshape: at most one extent may be -1, was given {extents}")
    if -1 not in extents:
        return extents
    known = math.prod(n for n in extents if n != -1)
    if known == 0 or size % known:
        raise ShapeError(f"reshape: {size} elements cannot be reshaped to {extents}")
    return tuple(size // known if n == -1 else n for n in extents)


def reshape(x: Array, /, shape: int | Sequence[int], *, copy: bool | None = None) -> Array:
    """The same elements, in C order, in another shape; one extent may be -1."""
    x = as_array("reshape", x)
    extents = (shape,) if isinstance(shape, int) else shape
    return Array(manipulation.reshape(x.node, _resolved(extents, x.size)))


def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """The axes in another order."""
    x = as_array("permute_dims", x)
    order = tuple(normal_axis("permute_dims", axis, x.ndim) for axis in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"permute_dims: {tuple(axes)} is not an ordering of {x.ndim} axes")
    return Array(manipulation.permute(x.node, order))


def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """A new axis of extent 1 at position `axis`."""
    position = normal_axis("expand_dims", axis, x.ndim + 1)
    return reshape(x, (*x.shape[:position], 1, *x.shape[position:]))


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """Without the axes named, whose extent must be 1."""
    axes = normal_axes("squeeze", axis, x.ndim)
    if [d for d in axes if x.shape[d] != 1]:
        raise ShapeError(f"squeeze: axes {axes} of shape {x.shape} are not all of extent 1")
    return reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in axes))


def broadcast_to(x: Array, /, shape: Sequence[int]) -> Array:
    """x stretched to a larger shape."""
    x = as_array("broadcast_to", x)
    return Array(manipulation.broadcast_to(x.node, tuple(shape)))


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """The arrays stretched to their common shape."""
    shape = broadcast("broadcast_arrays", *[a.shape for a in arrays])
    return [broadcast_to(a, shape) for a in arrays]


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an existing axis (flattened first for None)."""
    given = [as_array("concat", a) for a in arrays]
    if not given:
        raise ShapeError("concat: needs at least one array")
    if axis is None:
        given, axis = [reshape(a, (-1,)) for a in given], 0
    dtype = promote(*[a.dtype for a in given])
    position = normal_axis("concat", axis, given[0].ndim)
    nodes = [e.astype(a.node, dtype) for a in given]
    return Array(apply(manipulation.CONCAT, *nodes, axis=position, line=user_line()))


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Arrays of one shape joined along a new axis."""
    shapes = {a.shape for a in arrays}
    if len(shapes) != 1:
        raise ShapeError(f"stack: needs arrays of one shape, was given {sorted(shapes)}")
    position = normal_axis("stack", axis, arrays[0].ndim + 1)
    return concat([expand_dims(a, axis=position) for a in arrays], axis=position)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Elements along one axis, at integer positions (0 … extent-1)."""
    x, positions = as_array("take", x), as_array("take", indices)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: needs `axis` for an array of {x.ndim} dimensions")
    place = normal_axis("take", 0 if axis is None else axis, x.ndim)
    return Array(apply(manipulation.TAKE, x.node, positions.node, axis=place, line=user_line()))


# compositions for networks ------------------------------------------------------------------


def relu(x: Array, /) -> Array:
    """max(x, 0); its slope at 0 is 0."""
    x = as_array("relu", x)
    return Array(apply(e.OPERATIONS["maximum"], x.node, constant(0, x.dtype), line=user_line()))


def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(-x)), as (1 + tanh(x/2)) / 2, which does not overflow."""
    x = as_array("sigmoid", x)
    half = constant(0.5, x.dtype)
    return Array(e.add(e.multiply(e.call("tanh", e.multiply(x.node, half)), half), half))


def log_softmax(x: Array, /, *, axis: int = -1) -> Array:
    """log(exp(x) / sum(exp(x))) along `axis`, shifted by the largest element."""
    shifted = subtract(x, stop_gradient(max(x, axis=axis, keepdims=True)))
    return subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))


def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, shifted by the largest element."""
    powers = exp(subtract(x, stop_gradient(max(x, axis=axis, keepdims=True))))
    return divide(powers, sum(powers, axis=axis, keepdims=True))


def stop_gradient(x: Array, /) -> Array:
    """x, taken as a constant by `grad`."""
    return Array(apply(e.OPERATIONS["stop_gradient"], x.node, line=user_line()))


def result_type(*values: Any) -> DType:
    """The element type of a result of these arrays and types."""
    arrays = [v.dtype if isinstance(v, Array) else v for v in values]
    known = [as_dtype(v) for v in arrays if not isinstance(v, (bool, int, float, complex))]
    dtype = promote(*known)
    for value in arrays:
        if isinstance(value, (bool, int, float, complex)):
            dtype = promote(dtype, scalar_dtype(value, dtype))
    return dtype
