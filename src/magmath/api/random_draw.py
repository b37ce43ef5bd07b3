"""Draws from a generator: parameters, shapes and element types of random arrays."""

from __future__ import annotations

import numbers
from typing import Any, Protocol, final

import numpy as np

from magmath.api.creation import DTypeLike, normal_shape
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.conversion import LayoutLike, bind_layout
from magmath.arrays.inputs.number_list import LISTS
from magmath.arrays.traced_scalar import TracedScalar
from magmath.core.dtypes import DType, as_dtype, float64, int64
from magmath.core.parameter_ranges import ParameterRange
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import broadcast
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Node, Operation, Shape, apply
from magmath.ops import elementwise as e
from magmath.ops import samplers
from magmath.ops.leaves import scalar
from magmath.ops.redistribute import redistribute
from magmath.ops.sums import broadcast_to

Size = int | tuple[int, ...] | None
"""A shape by NumPy's name."""
WITH_SHAPE = ("normal", "uniform", "integers")
"""Functions whose size is the parameter `shape`; they take NumPy's name too."""
DistributionParameter = Any
"""A number, or an array of one number for each element, which broadcasts to the result."""


class DrawState(Protocol):
    """The state of a generator, from which random arrays are drawn."""

    def draw(self) -> tuple[Node, Node]:
        """Return the seed and the number of the next stream as operands of a random operation."""


@final
class Draw:
    """One call of a distribution: the shape and type of its result, and its parameters.

    `parameters` are numbers and arrays by name. Without a size the result has the shape to which
    they broadcast. Raises ShapeError if they do not broadcast to the size, DTypeError for a result
    that is not floating point.
    """

    def __init__(
        self,
        state: DrawState,
        name: str,
        size: Size,
        dtype: DTypeLike,
        **parameters: DistributionParameter,
    ) -> None:
        self.state, self.name = state, name
        self.dtype = floating_type(dtype)
        self._parameters = {
            parameter: self._operand(parameter, value) for parameter, value in parameters.items()
        }
        shapes = [x.shape for x in self._parameters.values() if isinstance(x, Array)]
        parameter_shape = broadcast(f"random.{name}", *shapes)
        self.shape: Shape = (
            parameter_shape if size is None else normal_shape(f"random.{name}", size)
        )
        check_fits(f"random.{name}", parameter_shape, self.shape)

    def _operand(self, parameter: str, value: Any) -> float | Array:
        if isinstance(value, numbers.Real | np.number):
            return float(value)
        if isinstance(value, (tuple, str)) or value is None:
            argument = "shape" if self.name in WITH_SHAPE else "size"
            raise ShapeError(
                f"random.{self.name}: {parameter} must be a number or an array, was given "
                f"{value!r}; a shape is the argument {argument}, as in random.{self.name}(…, "
                f"{argument}=(2, 3))"
            )
        is_untyped = isinstance(value, (TracedScalar, *LISTS))
        array = as_array(f"random.{self.name}", value, float64 if is_untyped else None)
        if array.dtype.kind == "complex":
            raise DTypeError(
                f"random.{self.name}: {parameter} must be real, was given {array.dtype}"
                "; convert it with mm.real(x)"
            )
        return array

    def check(
        self, parameter: str, low: float, high: float = float("inf"), above: bool = False
    ) -> None:
        """Raise OptionError if a parameter is a number below `low` (or equal to it, if it must be
        `above`), larger than `high`, or NaN. Arrays, whose values are unknown, are not checked."""
        value = self._parameters[parameter]
        if isinstance(value, Array) or (low <= value <= high and not (above and value == low)):
            return
        least = f"greater than {low:g}" if above else f"at least {low:g}"
        most = f" and at most {high:g}" if high < float("inf") else ""
        raise OptionError(
            f"random.{self.name}: {parameter} must be {least}{most}, was given {value:g}"
        )

    def parameter(self, name: str, dtype: DType | None = None) -> Node:
        """Return a parameter as a node of the type of the result, or another one."""
        value, dtype = self._parameters[name], dtype or self.dtype
        if isinstance(value, Array):
            return e.astype(value.node, dtype)
        return scalar(value, dtype)

    def standard(self, record: Operation, dtype: DType | None = None) -> Node:
        """Return numbers of a distribution without parameters, from the next stream."""
        seed, stream = self.state.draw()
        element = dtype or self.dtype
        return apply(record, seed, stream, shape=self.shape, dtype=element, line=user_line())

    def sampled(self, record: Operation, *parameters: Node, dtype: DType = float64) -> Node:
        """Return numbers of a distribution with float64 parameters, from the next stream."""
        seed, stream = self.state.draw()
        operands = [broadcast_to(x, self.shape) if x.ndim else x for x in parameters]
        return apply(
            record, seed, stream, *operands, shape=self.shape, dtype=dtype, line=user_line()
        )

    def check_order(self, low: str, high: str) -> None:
        """Raise OptionError if two parameters are numbers in the wrong order."""
        first, last = self._parameters[low], self._parameters[high]
        if isinstance(first, float) and isinstance(last, float) and not first <= last:
            raise OptionError(
                f"random.{self.name}: needs {low} ≤ {high}, was given {first:g} and {last:g}"
                "; swap them"
            )

    def difference(self, high: str, low: str) -> Node:
        """Return the difference of two parameters, computed in float64."""
        last, first = self._parameters[high], self._parameters[low]
        if isinstance(first, float) and isinstance(last, float):
            return scalar(last - first, self.dtype)
        return e.astype(self.parameter(high, float64) - self.parameter(low, float64), self.dtype)

    def has_numbers(self, **numbers: float) -> bool:
        """Return True if these parameters are these numbers."""
        return all(
            isinstance(self._parameters[name], float) and self._parameters[name] == number
            for name, number in numbers.items()
        )

    def check_range(self, parameter: str, allowed: ParameterRange) -> None:
        """Raise OptionError if a parameter is a number outside of a range. For arrays the kernel
        does this when the values are computed."""
        value = self._parameters[parameter]
        if not (isinstance(value, Array) or allowed.contains(value)):
            raise OptionError(allowed.message(value))

    def check_sum(self, part: str, *parts: str) -> None:
        """Raise OptionError if a parameter is a number larger than the sum of others."""
        terms = [self._parameters[parameter] for parameter in parts]
        if all(isinstance(x, float) for x in terms):
            total = sum(x for x in terms if isinstance(x, float))
            self.check_total(part, " + ".join(parts), total)

    def check_total(self, part: str, whole: str, total: float) -> None:
        """Raise OptionError if a parameter is a number larger than a total, which `whole` names."""
        value = self._parameters[part]
        if isinstance(value, float) and value > total:
            raise OptionError(
                f"random.{self.name}: {part} must be at most {whole}, was given {value:g} and "
                f"{total:g}"
            )

    def result(self, node: Node, layout: LayoutLike) -> Array:
        """Return floating-point numbers as an array of the type and layout of the result."""
        return in_layout(e.astype(node, self.dtype), layout)


def gamma_numbers(
    draw: Draw, parameter: str, factor: float = 1.0, record: Operation = samplers.GAMMA
) -> Node:
    """Return gamma numbers, float64, whose shape is `factor` times a parameter."""
    draw.check_range(parameter, samplers.SHAPE)
    shape = draw.parameter(parameter, float64)
    return draw.sampled(record, shape if factor == 1 else factor * shape)


def check_fits(name: str, parameter_shape: Shape, size: Shape) -> None:
    """Raise ShapeError unless the shape of the parameters broadcasts to the size."""
    if parameter_shape and broadcast(name, parameter_shape, size) != size:
        raise ShapeError(
            f"{name}: the parameters have shape {parameter_shape}, which does not broadcast to the "
            f"size {size}; leave `size` out, or give one to which they broadcast"
        )


def in_layout(node: Node, layout: LayoutLike) -> Array:
    """Return an array in this layout, if one is given."""
    if layout is None:
        return Array(node)
    return Array(redistribute(node, bind_layout("random", layout, node.shape)))


def floating_type(dtype: DTypeLike) -> DType:
    """Return a type of random numbers, by default the default type.

    Raises DTypeError if it is not floating point.
    """
    element = as_dtype(dtype) if dtype is not None else get_default_dtype()
    if not element.is_floating:
        raise DTypeError(
            f"random: draws floating point numbers, was given dtype {element}"
            "; pass dtype=mm.float32 or mm.float64"
        )
    return element


def whole_numbers(node: Node, dtype: DTypeLike, layout: LayoutLike) -> Array:
    """Return numbers without fractions as an array of a type, by default int64."""
    return in_layout(e.astype(node, int64 if dtype is None else as_dtype(dtype)), layout)


def one_size(name: str, shape: Size, size: Size) -> Size:
    """Return the shape of a result, which a call may give by either name, or None. Raises
    OptionError if it gives both."""
    if shape is not None and size is not None:
        raise OptionError(
            f"random.{name}: shape and size are two names of one argument, was given {shape} and "
            f"{size}; give one of them"
        )
    return shape if size is None else size


def size_or_shape_of(size: Size, out: Any) -> Size:
    """Return a size, by default that of the array in which the numbers are stored, if any."""
    return out.shape if size is None and isinstance(out, Array) else size
