"""Python's arithmetic operators on nodes, such as `g * n / (x + x)`, for gradients and optimizers.

A node that an operator builds is the application of an ordinary operation. The records of the
operations are in `ops`, above this package, so `ops/elementwise.py` passes their constructor to
`define`. A Python number becomes a constant of the other operand's type. Nodes are compared by
identity: `==` is not an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magmath.graph.node import Node

Number = int | float | complex
Build = Callable[..., "Node"]
"""(name of the operation, *operands) → node; at least one of the operands is a node."""


def _undefined(name: str, *operands: Node | Number) -> Node:
    raise RuntimeError(f"{name}: the operations are not loaded; import magmath.ops first")


_build: Build = _undefined


def define(build: Build) -> None:
    """Set the function that applies an operation, by its name, to nodes and numbers."""
    global _build
    _build = build


class Arithmetic:
    """The arithmetic operators of a node."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy arrays are not operands; NumPy scalars are numbers

    def __neg__(self) -> Node:
        return _build("negative", self)

    def __abs__(self) -> Node:
        return _build("abs", self)

    def __add__(self, other: Node | Number) -> Node:
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> Node:
        return _binary("add", other, self)

    def __sub__(self, other: Node | Number) -> Node:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Number) -> Node:
        return _binary("subtract", other, self)

    def __mul__(self, other: Node | Number) -> Node:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Number) -> Node:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Node | Number) -> Node:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Number) -> Node:
        return _binary("divide", other, self)

    def __pow__(self, other: Node | Number) -> Node:
        return _binary("power", self, other)

    def __rpow__(self, other: Number) -> Node:
        return _binary("power", other, self)


_OPERANDS = (Arithmetic, int, float, complex)


def _binary(name: str, x: Any, y: Any) -> Node:
    if isinstance(x, _OPERANDS) and isinstance(y, _OPERANDS):
        return _build(name, x, y)
    return NotImplemented  # type: ignore[no-any-return]
