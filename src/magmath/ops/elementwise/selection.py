"""`where`: the selection between two operands by a condition, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import broadcast
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.graph.operation import Gradients
from magmath.ops.elementwise.gradients import constant_like
from magmath.ops.elementwise.node_functions import where
from magmath.ops.index_letters import pointwise_axes
from magmath.ops.kernel_binding import torch_kernel
from magmath.ops.shared_fields import flops_per_element, is_always_exact
from magmath.ops.type_rules import pointwise_infer, require_kind


def _infer(condition: Node, x: Node, y: Node) -> tuple[Shape, DType]:
    require_kind("where (condition)", "bool", condition.dtype)
    shape, dtype = pointwise_infer("where", "any")(x, y)
    return broadcast("where", condition.shape, shape), dtype


def _vjp(node: Node, g: Node) -> Gradients:
    condition, zero = node.inputs[0], constant_like(0, g)
    return None, where(condition, g, zero), where(condition, zero, g)


def _numpy_where(condition: Any, x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


_torch_where = torch_kernel("where", np.where)


def _kernel(call: KernelCall) -> BoundCall:
    """Bind the kernel of `kernels/selection.py` if it takes the operands: it is faster for large
    arrays."""
    from magmath.kernels import selection

    condition, x, y = call.inputs
    if selection.can_bind(condition, x, y, call.out):
        return selection.bind(condition, x, y, call.out)
    return _torch_where(call)


WHERE = Operation(
    name="where",
    infer=_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_vjp,
    kernel=_kernel,
    native="({1} if {0} else {2})",
    reference=np.where,
    numpy_function=lambda node: _numpy_where,
    flops=flops_per_element(1),
    has_same_bits=is_always_exact,
    is_elementwise=True,
)
