"""`astype`: the conversion of an array to another element type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.errors import DTypeError
from magmath.graph import Node, Operation, Shape
from magmath.graph.operation import Gradients
from magmath.ops.elementwise.node_functions import astype, real
from magmath.ops.index_letters import pointwise_axes
from magmath.ops.kernel_binding import copy_kernel
from magmath.ops.shared_fields import flops_per_element
from magmath.ops.type_rules import numpy_name


def check_imaginary_part(operation: str, source_dtype: DType, dtype: DType) -> None:
    """Raise DTypeError if a conversion would lose imaginary parts."""
    if source_dtype.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise DTypeError(
            f"{operation}: {source_dtype} has an imaginary part, {dtype} has none; convert to "
            f"complex64 or complex128, or take the absolute value with mm.abs(x)"
        )


def _infer(x: Node, *, dtype: DType) -> tuple[Shape, DType]:
    check_imaginary_part("astype", x.dtype, dtype)
    return x.shape, dtype


def _vjp(node: Node, g: Node) -> Gradients:
    dtype = node.inputs[0].dtype
    return (astype(g if dtype.kind == "complex" else real(g), dtype),)


def _reference(x: Any, *, dtype: DType) -> Any:
    return np.asarray(x).astype(numpy_name(dtype))


def _has_same_bits(result: DType, operands: Sequence[DType]) -> bool:
    """Return False if the result may depend on the processor's instruction.

    It does for floats that are converted to an integer type that cannot represent them.
    """
    return operands[0].kind != "float" or result.kind in ("bool", "float")


def _numpy_function(node: Node) -> Callable[..., object] | None:
    if not _has_same_bits(node.dtype, [x.dtype for x in node.inputs]):
        return None
    return lambda x, out: np.copyto(out, x, casting="unsafe")


ASTYPE = Operation(
    name="astype",
    infer=_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_vjp,
    kernel=copy_kernel,
    native="{cast}({0})",
    reference=_reference,
    numpy_function=_numpy_function,
    flops=flops_per_element(1),
    has_same_bits=_has_same_bits,
    is_elementwise=True,
)
