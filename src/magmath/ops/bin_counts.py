"""The number of occurrences of each integer from 0 to a largest one. Each worker counts its own
elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.ops.index_letters import LETTERS
from magmath.ops.kernel_binding import by_reference
from magmath.ops.shared_fields import no_gradient
from magmath.ops.type_rules import require_kind


def _infer(x: Node, *, extent: int) -> tuple[Shape, DType]:
    require_kind("bin_counts", "integer", x.dtype)
    return (extent,), int64


def _kernel(call: KernelCall) -> BoundCall:
    import torch

    (x,), out = call.inputs, call.out
    return lambda: out.copy_(torch.bincount(x.long().reshape(-1), minlength=len(out)))


def _reference(x: Any, *, extent: int) -> Any:
    return np.bincount(np.asarray(x, np.int64).reshape(-1), minlength=extent)


BIN_COUNTS = Operation(
    name="bin_counts",
    infer=_infer,
    axes=lambda node: f"{LETTERS[: node.inputs[0].ndim]}->.",
    reduction="sum",
    vjp=no_gradient,
    kernel=_kernel,
    native=None,
    reference=_reference,
    numpy_function=by_reference,
    flops=lambda node: float(node.inputs[0].size),
)

OPERATIONS = {BIN_COUNTS.name: BIN_COUNTS}
