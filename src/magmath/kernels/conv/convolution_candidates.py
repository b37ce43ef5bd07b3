"""The candidates for a convolution on one device.

`ROWS` lists the devices and types of each candidate, in order of preference;
`kernels/conv/convolution.py` chooses among them.
"""

from __future__ import annotations

from functools import partial

from magmath.codegen.background_build import compile_in_background
from magmath.kernels.conv import (
    depthwise,
    direct,
    fourier_convolution,
    packed_convolution,
    product_convolution,
    torch_convolution,
    vector_correlation,
    winograd,
    winograd_loops,
)
from magmath.kernels.conv.winograd_loops import is_compiled
from magmath.kernels.dispatch.candidate import (
    ANYWHERE,
    COMPLEX,
    CPU,
    FLOATING,
    HALF,
    SINGLE,
    SINGLE_AND_DOUBLE,
    KernelCandidate,
    Row,
    can_apply_all_epilogues,
)


def _winograd(method: winograd.Method) -> KernelCandidate:
    def is_ready() -> bool:
        missing = [name for name in method.algorithms if not is_compiled(name)]
        for name in missing:
            compile_in_background(winograd_loops.code, name)
        return not missing

    return KernelCandidate(
        method.name,
        partial(winograd.can_bind, method=method),
        lambda problem, bind_product: winograd.bind(problem, method),
        partial(winograd.workspace, method=method),
        is_ready,
    )


_TORCH = KernelCandidate(
    "torch",
    torch_convolution.can_bind,
    torch_convolution.bind,
    can_apply_epilogue=can_apply_all_epilogues,
)
_DOT_PRODUCTS = KernelCandidate(
    "dot products",
    vector_correlation.can_bind,
    vector_correlation.bind,
    vector_correlation.workspace,
)
_WIDENED = KernelCandidate(
    "widened",
    torch_convolution.can_bind_widened,
    torch_convolution.bind_widened,
    torch_convolution.widened_workspace,
)
_CHANNELS_LAST = KernelCandidate(
    "channels-last",
    torch_convolution.can_bind_channels_last,
    torch_convolution.bind_channels_last,
    torch_convolution.channels_last_workspace,
    can_apply_epilogue=can_apply_all_epilogues,
)
_PACKED = KernelCandidate(
    "packed",
    packed_convolution.can_bind,
    packed_convolution.bind,
    packed_convolution.workspace,
    can_apply_epilogue=can_apply_all_epilogues,
)
_DIRECT = KernelCandidate(
    "direct",
    direct.can_bind,
    direct.bind,
    direct.workspace,
    direct.is_ready,
    direct.can_apply_epilogue,
)
_FOURIER = KernelCandidate(
    "fourier", fourier_convolution.can_bind, fourier_convolution.bind, fourier_convolution.workspace
)
_DEPTHWISE = KernelCandidate(
    "depthwise", depthwise.can_bind, depthwise.bind, is_ready=depthwise.is_ready
)
_PRODUCTS = KernelCandidate("products", product_convolution.can_bind, product_convolution.bind)

ROWS: tuple[Row, ...] = (
    Row(_TORCH, ANYWHERE, FLOATING | COMPLEX),
    Row(_DOT_PRODUCTS, CPU, SINGLE_AND_DOUBLE),
    Row(_WIDENED, ANYWHERE, HALF),
    Row(_CHANNELS_LAST, ANYWHERE, HALF | SINGLE),
    Row(_PACKED, CPU, SINGLE),
    *[Row(_winograd(method), CPU, SINGLE) for method in winograd.ERROR_BOUND],
    Row(_DIRECT, CPU, SINGLE),
    Row(_FOURIER, CPU, SINGLE_AND_DOUBLE),
    Row(_DEPTHWISE, CPU, SINGLE),
    Row(_PRODUCTS, CPU, SINGLE),
)
