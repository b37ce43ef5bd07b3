"""Traced scalars: numbers without a value, such as arguments of a compiled function and loop
counters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, final

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.inputs.number_list import is_number
from magmath.core.dtypes import DTYPE_OF_PYTHON, PYTHON_NUMBERS
from magmath.core.promotion import number_dtype
from magmath.engine.remote_array import no_value_error
from magmath.engine.user_line import user_line
from magmath.errors import TracingError
from magmath.graph import Node, apply, topological
from magmath.ops import elementwise as e
from magmath.ops import leaves

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
    "bitwise_invert": operator.invert,
    "negative": operator.neg,
    "abs": operator.abs,
}


@final
class NumberNeeded(TracingError):
    """The value of a traced number was requested; `leaves` are the numbers that determine it.

    `compile` catches the error if these are arguments of its function, and traces the function for
    their values.
    """

    def __init__(self, text: str, numbers: Iterable[Any]) -> None:
        super().__init__(text)
        nodes = [x.node for x in numbers if isinstance(x, (TracedScalar, TypedScalar))]
        self.leaves = {x for x in topological(nodes) if x.is_leaf and x.value is None}


@final
class TracedScalar(Array):
    """A Python number that becomes known when a compiled function is called.

    Like the number itself, it takes the element type of the arrays that it is combined with.
    Python's operators on such numbers return traced scalars. `sample` is any number of its class.
    """

    __slots__ = ("sample",)
    is_weak = True

    def __init__(self, node: Node, sample: bool | int | float | complex) -> None:
        self.sample = sample
        super().__init__(node)

    def converted(self) -> Array:
        """Return the array that `mm.asarray` makes of the number, of its class's default type."""
        return Array(e.astype(self.node, number_dtype(_class_of(self.sample))))

    @property
    def operand_kind(self) -> type:
        return type(self.sample)

    def evaluated_leaf(self) -> Node:
        """Raise NumberNeeded."""
        raise NumberNeeded(str(no_value_error()), [self])

    def __len__(self) -> int:
        raise NumberNeeded(str(no_value_error()), [self])  # it was passed as a shape or as axes

    def __hash__(self) -> int:
        raise NumberNeeded(str(no_value_error()), [self])  # it is looked up in a dictionary

    def __pos__(self) -> Array:
        return TracedScalar(self.node, +self.sample)

    def _unary(self, operation: str) -> Array:
        return of_numbers(operation, self)

    def _binary(self, operation: str, other: Any) -> Array:
        alone = isinstance(other, TracedScalar) or is_number(other)
        return of_numbers(operation, self, other) if alone else super()._binary(operation, other)

    def _reflected(self, operation: str, other: Any) -> Array:
        if is_number(other):
            return of_numbers(operation, other, self)
        return super()._reflected(operation, other)

    def _update(self, operation: str, other: Any) -> Array:
        return self._binary(operation, other)  # as for a number, it binds the name to another value

    def replace_value(self, node: Node) -> Array:
        return Array(node)


@final
class TypedScalar(Array):
    """A scalar of NumPy that becomes known when a compiled function is called.

    It has an element type, as an array does. Python's operators on such scalars and numbers return
    scalars again, whose values can be asked for.
    """

    __slots__ = ()

    def evaluated_leaf(self) -> Node:
        """Raise NumberNeeded."""
        raise NumberNeeded(str(no_value_error()), [self])

    def __len__(self) -> int:
        raise NumberNeeded(str(no_value_error()), [self])

    def __hash__(self) -> int:
        raise NumberNeeded(str(no_value_error()), [self])

    def _unary(self, operation: str) -> Array:
        return TypedScalar(super()._unary(operation).node)

    def _binary(self, operation: str, other: Any) -> Array:
        return _typed(super()._binary(operation, other), other)

    def _reflected(self, operation: str, other: Any) -> Array:
        return _typed(super()._reflected(operation, other), other)

    def _update(self, operation: str, other: Any) -> Array:
        return self._binary(operation, other)


def _typed(result: Array, other: Any) -> Array:
    """Return the result of an operator on a scalar and an operand: a scalar if both are."""
    if isinstance(other, (TracedScalar, TypedScalar)) or is_number(other):
        return TypedScalar(result.node)
    return result


def of_numbers(operation: str, *values: Any) -> TracedScalar:
    """Apply an operator or an element-wise function to numbers, some of which are traced.

    The class of the result is that for Python numbers of the same classes, found with ones as
    samples. The result is computed in the widest type of the classes. Raises NumberNeeded for a
    power of integers whose class depends on the sign of an argument.
    """
    if operation == "power":
        _check_class_of_power(*values)
    samples = [_class_of(v.sample)(1) if isinstance(v, TracedScalar) else v for v in values]
    sample = _operator(operation)(*samples)
    dtype = DTYPE_OF_PYTHON[max(map(_class_of, [*samples, sample]), key=PYTHON_NUMBERS.index)]
    nodes = [
        e.astype(v.node, dtype) if isinstance(v, TracedScalar) else leaves.scalar(v, dtype)
        for v in values
    ]
    return TracedScalar(apply(e.OPERATIONS[operation], *nodes, line=user_line()), sample)


def _check_class_of_power(base: Any, exponent: Any) -> None:
    """Raise NumberNeeded for an integer to the power of an integer argument, which in Python is a
    float if the argument is negative. Counters of loops are no arguments."""
    kinds = [_class_of(x.sample if isinstance(x, TracedScalar) else x) for x in (base, exponent)]
    if isinstance(exponent, TracedScalar) and {*kinds} <= {bool, int}:
        error = NumberNeeded(str(no_value_error()), [exponent])
        if error.leaves and all(leaf.name == "scalar" for leaf in error.leaves):
            raise error


def _operator(operation: str) -> Callable[..., Any]:
    """Return the function of Python numbers for an operation."""
    function = _OPERATORS.get(operation)
    if function is not None:
        return function

    def computed(*samples: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(e.OPERATIONS[operation].reference(*samples)).item()

    return computed


def _class_of(number: Any) -> type:
    """Return the class of Python numbers that a number belongs to."""
    return next(base for base in PYTHON_NUMBERS if isinstance(number, base))
