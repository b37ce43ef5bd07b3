"""Triangular systems of equations, op(A)·X = B.

Gradients follow Giles (2008), "Collected matrix derivative results for forward and reverse mode
algorithmic differentiation"; cotangents are with respect to x, not to its conjugate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.graph import CollectiveKernel, Node, NodeLayouts, Operation, Shape, Workspace, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout, Mesh
from magmath.ops.elementwise import conj
from magmath.ops.linalg.factorization_layouts import (
    block_cyclic_layout,
    collective_kernel,
    panel_bytes,
    panel_traffic,
)
from magmath.ops.linalg.lapack import check_system, check_type, columns_axes, lapack
from magmath.ops.linalg.matrix_algebra import CHECKED_MATRIX, triangle
from magmath.ops.manipulation import transpose
from magmath.ops.product.contraction import matmul


def _solve_triangular_infer(
    a: Node, b: Node, *, lower: bool, transpose: bool, unit: bool
) -> tuple[Shape, DType]:
    check_type("solve_triangular", a, b)
    check_system("solve_triangular", a, b)
    return b.shape, b.dtype


def _solve_triangular_vjp(node: Node, g: Node) -> Gradients:
    """Return B̄ = op(A)⁻ᵀ·G and Ā = -B̄·Xᵀ (transposed for a transposed A) on A's triangle."""
    a = node.inputs[0]
    lower, flip, unit = (node.attributes[key] for key in ("lower", "transpose", "unit"))
    by_b = solve_triangular(a, g, lower=lower, transpose=not flip, unit=unit)
    outer = matmul(node, transpose(by_b)) if flip else matmul(by_b, transpose(node))
    return -triangle(outer, lower=lower, strict=unit), by_b


def _solve_triangular_reference(a: Any, b: Any, *, lower: bool, transpose: bool, unit: bool) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    if unit:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transpose else a, b)


def columns_layouts(
    before: int,
) -> Callable[[Node, Mesh], NodeLayouts | None]:
    """Return a layout function: the matrix block-cyclic by rows, the other arrays by columns.

    The other arrays are the right-hand side and the solution. The first `before` rows of the matrix
    belong to the first panel.
    """

    def layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
        if node.ndim != 2 or not node.size:
            return None
        divided = Layout.even(node.shape, mesh, 1)
        matrix = block_cyclic_layout(node.inputs[0].shape, mesh, 0, before=before)
        return NodeLayouts((matrix, divided), divided)

    return layouts


def _triangle_traffic(node: Node, workers: int) -> tuple[int, int]:
    return panel_traffic(node.inputs[0].shape, node, workers, 0.5)


def _collective_solve() -> Callable[..., None]:
    from magmath.kernels.linalg.triangular_solve import solve_triangular

    return solve_triangular


SOLVE_TRIANGULAR = Operation(
    name="solve_triangular",
    infer=_solve_triangular_infer,
    axes=columns_axes,
    reduction=None,
    vjp=_solve_triangular_vjp,
    kernel=lapack("solve_triangular", "lower", "transpose", "unit"),
    native=None,
    reference=_solve_triangular_reference,
    flops=lambda node: float(node.size * node.shape[-2]),
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=CollectiveKernel(
        layouts=columns_layouts(0),
        kernel=collective_kernel(_collective_solve, "lower", "transpose", "unit"),
        workspace=lambda node, w: Workspace(panel_bytes(node.inputs[0].shape, node, w)),
        traffic=_triangle_traffic,
    ),
)


def solve_triangular(
    a: Node, b: Node, *, lower: bool, transpose: bool = False, unit: bool = False
) -> Node:
    """Return op(a)⁻¹·b, with one triangle of a and, if `unit`, ones on its diagonal."""
    return apply(SOLVE_TRIANGULAR, a, b, lower=lower, transpose=transpose, unit=unit)


def solve_adjoint(triangular: Node, b: Node, *, lower: bool) -> Node:
    """Return t⁻ᴴ·b for the triangular matrix t."""
    return conj(solve_triangular(triangular, conj(b), lower=lower, transpose=True))


OPERATIONS = {SOLVE_TRIANGULAR.name: SOLVE_TRIANGULAR}
