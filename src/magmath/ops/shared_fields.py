"""Values of fields that records of several families share: costs, gradients, and bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from magmath.core.dtypes import DType, float32, float64
from magmath.graph import Node
from magmath.graph.operation import Gradients


def unreachable(*_: Any, **__: Any) -> Any:
    """Raise AssertionError: a function of a record whose operation no program computes."""
    raise AssertionError("no program computes this operation")


def vjp_after_gradients(node: Node, cotangent: Node) -> NoReturn:
    """Raise AssertionError, for operations that only the passes build, after gradients."""
    raise AssertionError(f"{node.name} is made by the passes, after gradients")


def no_flops(node: Node) -> float:
    """Return 0, the cost of operations that only move data."""
    return 0.0


def flops_per_element(weight: float) -> Callable[[Node], float]:
    """Return the cost function of an operation with `weight` flops per element of its result."""
    return lambda node: weight * node.size


def no_gradient(node: Node, cotangent: Node) -> Gradients:
    """Return no cotangents.

    For operations that are constant almost everywhere, or whose results are not real numbers.
    """
    return (None,) * len(node.inputs)


def is_always_exact(result: DType, operands: Sequence[DType]) -> bool:
    """Return True, for operations that IEEE 754 rounds exactly, or that do not round."""
    return True


def is_exact_for_full_floats(result: DType, operands: Sequence[DType]) -> bool:
    """Return True for float32 and float64, for operations that are rounded exactly for these."""
    return all(dtype in (float32, float64) for dtype in (result, *operands))


def is_exact_for_integers(result: DType, operands: Sequence[DType]) -> bool:
    """Return True for integers and booleans.

    For operations whose floating-point results may differ, for example in the sign of a zero.
    """
    return not any(dtype.kind in ("float", "complex") for dtype in (result, *operands))
