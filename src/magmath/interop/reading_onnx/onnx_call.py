"""A call of an ONNX operator: its attributes, and the conversion of operands to Python numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, final

import numpy as np
from onnx import helper

import magmath as mm
from magmath.core.dtypes import compute_dtype
from magmath.errors import MagmathError, UnsupportedError

OnnxValue = Any
"""An `Array`, or an array of NumPy if it depends on constants and shapes alone."""
Operator = Callable[..., Any]
"""A function of a call and its operands, None for those left out; several results are a tuple."""


@final
@dataclass(frozen=True)
class OnnxCall:
    """The settings of an operator in addition to its operands.

    operator   the name of the operator
    outputs    the names of the results, "" for one that nothing reads
    opset      the version of the operators
    training   True if the module is in training mode
    run_graph  returns the outputs of a graph that is an attribute, for inputs by name
    """

    operator: str
    attributes: dict[str, Any]
    outputs: tuple[str, ...] = ("",)
    opset: int = 21
    training: bool = False
    run_graph: Callable[..., list[OnnxValue]] | None = field(default=None, compare=False)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default if the model does not give it."""
        return self.attributes.get(name, default)

    def numbers(self, name: str, operand: OnnxValue) -> list[Any] | None:
        """Return an argument that is an operand in newer versions and an attribute in older ones,
        as a list, or None if the model does not give it."""
        if operand is not None:
            return list(np.asarray(operand).ravel().tolist())
        value = self.get(name)
        return None if value is None else list(np.ravel(value).tolist())

    def number(self, name: str, operand: OnnxValue, default: Any = None) -> Any:
        """Return an argument of one number; see `numbers`."""
        values = self.numbers(name, operand)
        return values[0] if values else default

    def unsupported(self, reason: str) -> MagmathError:
        """Return the error for something that magmath does not have."""
        return UnsupportedError(f"from_onnx: {self.operator} {reason}")


def dtype_of(element_type: int | None) -> Any:
    """Return magmath's element type for that of ONNX. Raises UnsupportedError for types such as
    strings."""
    try:
        name = np.dtype(helper.tensor_dtype_to_np_dtype(element_type or 0)).name
    except KeyError:
        name = str(element_type)
    dtype = getattr(mm, name, None)
    if dtype is None or name == "object":
        raise UnsupportedError(
            f"from_onnx: the element type {name} is not known to magmath; "
            f"convert the model to floating point, integers or truth values"
        )
    return dtype


def widened(x: OnnxValue) -> mm.Array:
    """Return x, half types in float32, which holds sums of their numbers and squares."""
    x = mm.asarray(x)
    return mm.astype(x, compute_dtype(x.dtype), copy=False)


def plain(function: Callable[..., Any]) -> Operator:
    """Return the operator of a function of the operands alone."""
    return lambda call, *operands: function(*operands)


def variadic(function: Callable[[Any, Any], Any]) -> Operator:
    """Return the operator that applies a function of two operands to any number of them."""
    return lambda call, *operands: reduce(function, operands)


def axes_of(axes: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front, all of them for None."""
    return tuple(range(ndim)) if axes is None else tuple([axis % ndim for axis in axes])
