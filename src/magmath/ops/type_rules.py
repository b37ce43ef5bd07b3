"""Rules for element types: the types that operations take, and those of their results."""

from __future__ import annotations

from collections.abc import Callable

from magmath.core.dtypes import DType
from magmath.core.shapes import broadcast
from magmath.errors import DTypeError
from magmath.graph import Node, Shape
from magmath.graph.operation import Infer

DOMAINS: dict[str, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "float", "complex"}),
    "numeric": frozenset({"int", "uint", "float", "complex"}),
    "real": frozenset({"int", "uint", "float"}),
    "ordered": frozenset({"bool", "int", "uint", "float"}),
    "floating": frozenset({"float", "complex"}),
    "real floating": frozenset({"float"}),
    "integer": frozenset({"int", "uint"}),
    "integer or bool": frozenset({"int", "uint", "bool"}),
    "bool": frozenset({"bool"}),
}
"""The kinds of element types that an operation may take, by the name that errors give them."""


ResultType = DType | Callable[[DType], DType] | None
"""The result's type, or the function from the operands' type to it; None: the operands' type."""


def require_kind(operation: str, domain: str, dtype: DType) -> None:
    """Raise DTypeError unless `dtype` belongs to the operation's domain."""
    if dtype.kind not in DOMAINS[domain]:
        remedy = "convert with mm.astype(x, …)"
        if dtype.kind == "complex":
            remedy = "take its real part, x.real, or its absolute value, mm.abs(x)"
        raise DTypeError(f"{operation}: takes {domain} types, was given {dtype}; {remedy}")


def pointwise_infer(name: str, domain: str, result: ResultType = None) -> Infer:
    """Return a rule that broadcasts operands of one type.

    The result has this type too, unless `result` gives another one.
    """

    def infer(*inputs: Node) -> tuple[Shape, DType]:
        dtype = inputs[0].dtype
        require_kind(name, domain, dtype)
        for node in inputs:
            if node.dtype is not dtype:
                require_kind(name, domain, node.dtype)
                raise DTypeError(
                    f"{name}: operands have types {dtype} and {node.dtype}"
                    "; convert one with mm.astype"
                )
        shape = broadcast(name, *[node.shape for node in inputs])
        if result is None or isinstance(result, DType):
            return shape, result or dtype
        return shape, result(dtype)

    return infer


def numpy_name(dtype: DType) -> str:
    """Return the NumPy type that represents `dtype`: float32 for bfloat16, which NumPy lacks."""
    return "float32" if dtype.name == "bfloat16" else dtype.name
