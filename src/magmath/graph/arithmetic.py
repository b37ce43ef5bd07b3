"""Python's arithmetic operators on nodes, such as `g * n / (x + x)`, for gradients and optimizers.

A node that an operator builds is the application of an ordinary operation. The records of the
operations are in `ops`, above this package, so `ops/elementwise/node_functions.py` passes the
function that applies them to `define_operators`. A Python number becomes a constant of the other
operand's type. Nodes are compared by identity: `==` is not an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from magmath.core.type_aliases import Number

Build = Callable[..., Any]
"""(name of the operation, *operands) → node; at least one of the operands is a node."""


def _undefined(name: str, *operands: Any) -> Any:
    raise RuntimeError(f"{name}: the operations are not loaded; import magmath.ops first")


_build: Build = _undefined


def define_operators(build: Build) -> None:
    """Set the function that applies an operation, by its name, to nodes and numbers."""
    global _build
    _build = build


class Arithmetic:
    """The arithmetic operators of nodes and of weak scalars."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy arrays are not operands; NumPy scalars are numbers

    def __neg__(self) -> Self:
        return _unary("negative", self)

    def __abs__(self) -> Self:
        return _unary("abs", self)

    def __add__(self, other: Self | Number) -> Self:
        return _left("add", self, other)

    def __radd__(self, other: Number) -> Self:
        return _right("add", self, other)

    def __sub__(self, other: Self | Number) -> Self:
        return _left("subtract", self, other)

    def __rsub__(self, other: Number) -> Self:
        return _right("subtract", self, other)

    def __mul__(self, other: Self | Number) -> Self:
        return _left("multiply", self, other)

    def __rmul__(self, other: Number) -> Self:
        return _right("multiply", self, other)

    def __truediv__(self, other: Self | Number) -> Self:
        return _left("divide", self, other)

    def __rtruediv__(self, other: Number) -> Self:
        return _right("divide", self, other)

    def __pow__(self, other: Self | Number) -> Self:
        return _left("power", self, other)

    def __rpow__(self, other: Number) -> Self:
        return _right("power", self, other)


N = TypeVar("N", bound=Arithmetic)
_OPERANDS = (Arithmetic, int, float, complex)


def _unary(name: str, node: N) -> N:
    result: N = _build(name, node)
    return result


def _left(name: str, node: N, other: N | Number) -> N:
    """Apply an operation whose first operand is the node."""
    result: N = _build(name, node, other) if isinstance(other, _OPERANDS) else NotImplemented
    return result


def _right(name: str, node: N, other: Number) -> N:
    """Apply an operation whose second operand is the node."""
    result: N = _build(name, other, node) if isinstance(other, _OPERANDS) else NotImplemented
    return result
