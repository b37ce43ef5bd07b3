"""The Cholesky factorization, A = L·Lᴴ.

Gradients follow Giles (2008), "Collected matrix derivative results for forward and reverse mode
algorithmic differentiation"; cotangents are with respect to x, not to its conjugate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from magmath.graph import CollectiveKernel, Node, NodeLayouts, Operation, Workspace, apply
from magmath.graph.operation import Gradients
from magmath.layout import Mesh
from magmath.ops.elementwise import conj
from magmath.ops.leaves import constant
from magmath.ops.linalg.factorization_layouts import (
    block_cyclic_layout,
    collective_kernel,
    panel_bytes,
    panel_traffic,
)
from magmath.ops.linalg.lapack import (
    lapack,
    matrix_count,
    small_matrices,
    square_infer,
    stacked_axes,
)
from magmath.ops.linalg.matrix_algebra import (
    CHECKED_MATRIX,
    adjoint,
    diagonal_part,
    hermitian_part,
    triangle,
)
from magmath.ops.linalg.triangular import solve_adjoint
from magmath.ops.product.contraction import matmul


def _cholesky_vjp(node: Node, g: Node) -> Gradients:
    """Return the Hermitian part of Ā = L⁻ᴴ·P·L⁻¹.

    P is the lower triangle of LᴴL̄ with halved diagonal.
    """
    g = triangle(conj(g), lower=True)
    product = matmul(adjoint(node), g)
    half = constant(0.5, node.dtype)
    p = triangle(product, lower=True) - diagonal_part(product) * half
    left = solve_adjoint(node, p, lower=True)
    return (conj(hermitian_part(adjoint(solve_adjoint(node, adjoint(left), lower=True)))),)


def _cholesky_layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
    """Return block-cyclic rows."""
    if node.ndim != 2 or not node.size:
        return None
    layout = block_cyclic_layout(node.shape, mesh, 0)
    return NodeLayouts((layout,), layout)


def _collective_cholesky() -> Callable[..., None]:
    from magmath.kernels.linalg.blocked_factorization import cholesky

    return cholesky


CHOLESKY = Operation(  # a = L·Lᴴ; reads the lower triangle of a
    name="cholesky",
    infer=square_infer("cholesky"),
    axes=stacked_axes,
    reduction=None,
    vjp=_cholesky_vjp,
    kernel=lapack("cholesky"),
    numpy_function=small_matrices("cholesky"),
    native=None,
    reference=np.linalg.cholesky,
    flops=lambda node: matrix_count(node) * node.shape[-1] ** 3 / 3,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=CollectiveKernel(
        layouts=_cholesky_layouts,
        kernel=collective_kernel(_collective_cholesky),
        workspace=lambda node, workers: Workspace(panel_bytes(node.shape, node, workers)),
        traffic=lambda node, workers: panel_traffic(node.shape, node, workers, 0.5),
    ),
)


def cholesky(a: Node) -> Node:
    """Return the lower triangular L with a = L·Lᴴ."""
    return apply(CHOLESKY, a)


OPERATIONS = {CHOLESKY.name: CHOLESKY}
