"""Identities: operations that return their operand, and that autodiff tells from it."""

from __future__ import annotations

import numpy as np

from magmath.graph import Operation
from magmath.ops.index_letters import pointwise_axes
from magmath.ops.kernel_binding import copy_kernel
from magmath.ops.shared_fields import flops_per_element, is_always_exact, no_gradient
from magmath.ops.type_rules import pointwise_infer

STOP_GRADIENT = Operation(  # a mark for autodiff; the simplify pass removes it
    name="stop_gradient",
    infer=pointwise_infer("stop_gradient", "any"),
    axes=pointwise_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=copy_kernel,
    native="{0}",
    reference=np.asarray,
    flops=flops_per_element(0),
    has_same_bits=is_always_exact,
    is_elementwise=True,
)

ARGUMENT = Operation(  # x as a separate node: an argument of a differentiated function
    name="argument",
    infer=pointwise_infer("argument", "any"),
    axes=pointwise_axes,
    reduction=None,
    vjp=lambda node, g: (g,),
    kernel=copy_kernel,
    native="{0}",
    reference=np.asarray,
    flops=flops_per_element(0),
    is_elementwise=True,
)
