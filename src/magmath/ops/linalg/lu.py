"""The LU factorization, A·P = L·U, and the solution of systems with its factors.

Gradients follow Giles (2008), "Collected matrix derivative results for forward and reverse mode
algorithmic differentiation"; cotangents are with respect to x, not to its conjugate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from magmath.core.block_cyclic import PERMUTED_COLUMNS, panel_rows, round_to_cache_lines
from magmath.core.dtypes import DType, int64
from magmath.errors import ShapeError
from magmath.graph import CollectiveKernel, Node, NodeLayouts, Operation, Shape, Workspace, apply
from magmath.graph.operation import Gradients
from magmath.layout import Mesh
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import iota
from magmath.ops.elementwise import astype, call
from magmath.ops.linalg.factorization_layouts import (
    block_cyclic_layout,
    collective_kernel,
    panel_bytes,
    panel_traffic,
)
from magmath.ops.linalg.lapack import (
    check_matrix,
    check_type,
    columns_axes,
    elimination_flops,
    lapack,
    matrix_count,
    stacked_axes,
)
from magmath.ops.linalg.matrix_algebra import (
    CHECKED_MATRIX,
    columns,
    identity_matrix,
    rows,
    triangle,
)
from magmath.ops.linalg.triangular import columns_layouts, solve_triangular
from magmath.ops.manipulation import transpose
from magmath.ops.product.contraction import matmul
from magmath.ops.shared_fields import unreachable, vjp_after_gradients


def _lu_infer(a: Node) -> tuple[Shape, DType]:
    check_type("lu", a)
    check_matrix("lu", a)
    return (*a.shape[:-2], a.shape[-2] + 1, a.shape[-1]), a.dtype


def lu_parts(packed: Node) -> tuple[Node, Node, Node]:
    """Return the permutation matrix P, L and U, with a·P = L·U."""
    m, n = packed.shape[-2] - 1, packed.shape[-1]
    k = min(m, n)
    order = rows(packed, 0, 1)
    factors = rows(packed, 1, m + 1)
    low = triangle(columns(factors, 0, k), lower=True)
    high = triangle(rows(factors, 0, k), lower=False, strict=True) + identity_matrix(k, n, factors)
    return permutation_matrix(order), low, high


def permutation_matrix(order: Node) -> Node:
    """Return P with (a·P)[:, j] = a[:, order[j]] for `order` (…, 1, n), of the type of `order`."""
    n = order.shape[-1]
    counted = astype(iota((n, 1), 0, int64), order.dtype)
    return astype(call("equal", counted, order), order.dtype)


def _lu_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā for A·P = L·U, in which U has a unit diagonal.

    For square A, Ā·P = L⁻ᵀ·M·U⁻ᵀ, where M consists of the lower triangle of LᵀL̄ and the strictly
    upper triangle of Ū·Uᵀ. The part beyond the square depends on the square by a triangular system.
    """
    m, n = node.shape[-2] - 1, node.shape[-1]
    k = min(m, n)
    p, low, high = lu_parts(node)
    factors, cotangent = rows(node, 1, m + 1), rows(g, 1, m + 1)
    square = columns(rows(factors, 0, k), 0, k)
    by_low = triangle(columns(rows(cotangent, 0, k), 0, k), lower=True)
    by_high = triangle(columns(rows(cotangent, 0, k), 0, k), lower=False, strict=True)
    low1, high1 = rows(low, 0, k), columns(high, 0, k)
    beyond = None
    if n > k:  # U₂ = L⁻¹·A₂
        u2, g2 = columns(high, k, n), columns(cotangent, k, n)
        beyond = solve_triangular(square, g2, lower=True, transpose=True)
        by_low = by_low - matmul(beyond, transpose(u2))
    if m > k:  # L₂ = A₂·U⁻¹
        l2, g2 = rows(low, k, m), rows(cotangent, k, m)
        beyond = transpose(solve_triangular(square, transpose(g2), lower=False, unit=True))
        by_high = by_high - matmul(transpose(l2), beyond)
    middle = triangle(matmul(transpose(low1), by_low), lower=True) + triangle(
        matmul(by_high, transpose(high1)), lower=False, strict=True
    )
    left = solve_triangular(square, middle, lower=True, transpose=True)
    by_square = transpose(solve_triangular(square, transpose(left), lower=False, unit=True))
    axis = node.ndim - 1 if n > k else node.ndim - 2
    by_ap = by_square if beyond is None else apply(CONCAT, by_square, beyond, axis=axis)
    return (matmul(by_ap, transpose(p)),)


def _lu_reference(a: Any) -> Any:
    from scipy.linalg import lu_factor

    a = np.asarray(a)
    packed = np.empty((*a.shape[:-2], a.shape[-2] + 1, a.shape[-1]), a.dtype)
    for index in np.ndindex(*a.shape[:-2]):
        factors, pivots = lu_factor(a[index].T) if a[index].size else (a[index].T, ())
        order = np.arange(a.shape[-1])
        for i, j in enumerate(pivots):
            order[[i, j]] = order[[j, i]]
        packed[index] = np.concatenate([order[None], factors.T])
    return packed


def _lu_layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
    """Return block-cyclic rows; the row with the column order belongs to the first panel."""
    (a,) = node.inputs
    if a.ndim != 2 or not a.size:
        return None
    result = block_cyclic_layout(node.shape, mesh, 0, before=1)
    return NodeLayouts((block_cyclic_layout(a.shape, mesh, 0),), result)


def _lu_workspace(node: Node, workers: int) -> Workspace:
    """Return the workspace: a panel with its pivots."""
    shape = node.inputs[0].shape
    pivots = round_to_cache_lines(4 * panel_rows(shape[0], workers))
    return Workspace(pivots + panel_bytes(shape, node, workers))


def _collective_lu() -> Callable[..., None]:
    from magmath.kernels.linalg.blocked_factorization import lu

    return lu


LU = Operation(  # a·P = L·U; partial pivoting of columns needs no transposition
    name="lu",
    infer=_lu_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_lu_vjp,
    kernel=lapack("lu"),
    native=None,
    reference=_lu_reference,
    flops=lambda node: matrix_count(node) * elimination_flops(*node.inputs[0].shape[-2:]),
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=CollectiveKernel(
        layouts=_lu_layouts,
        kernel=collective_kernel(_collective_lu),
        workspace=_lu_workspace,
        traffic=lambda node, w: panel_traffic(node.inputs[0].shape, node, w, 0.5),
    ),
)


def lu(a: Node) -> Node:
    """Return the column order over L\\U, (…, m + 1, n): a[:, order] = L·U."""
    return apply(LU, a)


def _lu_solve_infer(factors: Node, b: Node, *, transpose: bool) -> tuple[Shape, DType]:
    n = factors.shape[-1]
    if factors.shape[:-1] != (*b.shape[:-2], n + 1) or b.shape[-2] != n:
        raise ShapeError(f"lu_solve: operands {factors} and {b} do not fit")
    return b.shape, b.dtype


def _lu_solve_reference(factors: Any, b: Any, *, transpose: bool) -> Any:
    order, packed = factors[..., 0, :].real.astype(int), factors[..., 1:, :]
    eye = np.eye(packed.shape[-1], dtype=packed.dtype)
    a = np.tril(packed) @ (np.triu(packed, 1) + eye)
    a = np.take_along_axis(a, np.argsort(order)[..., None, :] + 0 * a.real.astype(int), -1)
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transpose else a, b)


def _lu_solve_workspace(node: Node, workers: int) -> Workspace:
    """Return the workspace: a panel or the column order, and some columns of the solution.

    The columns are permuted in this memory.
    """
    n = node.shape[0]
    panel = max(panel_bytes((n, n), node, workers), n * node.dtype.itemsize)
    return Workspace(panel, n * PERMUTED_COLUMNS * node.dtype.itemsize)


def _collective_lu_solve() -> Callable[..., None]:
    from magmath.kernels.linalg.triangular_solve import lu_solve

    return lu_solve


LU_SOLVE = Operation(
    name="lu_solve",
    infer=_lu_solve_infer,
    axes=columns_axes,
    reduction=None,
    vjp=vjp_after_gradients,
    kernel=lapack("lu_solve", "transpose"),
    native=None,
    reference=_lu_solve_reference,
    flops=lambda node: 2.0 * node.size * node.shape[-2],
    uses_lapack=True,
    checked=replace(CHECKED_MATRIX, harmless=unreachable),  # made after branches
    collective=CollectiveKernel(
        layouts=columns_layouts(1),
        kernel=collective_kernel(_collective_lu_solve, "transpose", before=1),
        workspace=_lu_solve_workspace,
        traffic=lambda node, w: panel_traffic((node.shape[0],) * 2, node, w, 1.0),
    ),
)


def lu_solve(factors: Node, b: Node, *, transpose: bool = False) -> Node:
    """Return a⁻¹·b or a⁻ᵀ·b from the result of `lu(a)`."""
    return apply(LU_SOLVE, factors, b, transpose=transpose)


OPERATIONS = {operation.name: operation for operation in (LU, LU_SOLVE)}
