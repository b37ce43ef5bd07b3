"""The QR factorization, A = Q·R.

The gradient follows Roberts and Roberts (2020), "QR and LQ decomposition matrix backpropagation
algorithms for square, wide, and deep matrices"; cotangents are with respect to x, not to its
conjugate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.core.block_cyclic import panel_rows, round_to_cache_lines
from magmath.core.dtypes import DType
from magmath.core.tall_skinny import is_tall
from magmath.core.type_aliases import BoundCall
from magmath.errors import GradientError
from magmath.graph import (
    CollectiveCall,
    CollectiveKernel,
    Node,
    NodeLayouts,
    Operation,
    Shape,
    Workspace,
    apply,
)
from magmath.graph.operation import Gradients
from magmath.layout import CutPieces, Layout, Mesh, Split, even_cuts
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import conj
from magmath.ops.linalg.factorization_layouts import (
    block_cyclic_layout,
    block_cyclic_rows,
    panel_traffic,
)
from magmath.ops.linalg.lapack import (
    check_matrix,
    check_type,
    elimination_flops,
    lapack,
    matrix_count,
    small_matrices,
    stacked_axes,
)
from magmath.ops.linalg.matrix_algebra import (
    CHECKED_MATRIX,
    adjoint,
    columns,
    hermitian_from_lower,
    rows,
    triangle,
)
from magmath.ops.linalg.triangular import solve_triangular
from magmath.ops.product.contraction import matmul


def _qr_infer(a: Node, *, full: bool) -> tuple[Shape, DType]:
    check_type("qr", a)
    check_matrix("qr", a)
    m, n = a.shape[-2:]
    j = m if full else min(m, n)
    return (*a.shape[:-2], m + j, max(j, n)), a.dtype


def qr_parts(packed: Node, m: int, n: int) -> tuple[Node, Node]:
    """Return Q (…, m, j) and R (…, j, n)."""
    j = packed.shape[-2] - m
    return columns(rows(packed, 0, m), 0, j), columns(rows(packed, m, m + j), 0, n)


def _qr_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā = (Q̄ + Q·H(R·R̄ᴴ - Q̄ᴴ·Q)) · R⁻ᴴ.

    H makes the lower triangle Hermitian. For a wide matrix, the part of R beyond the square is
    QᴴA₂.
    """
    a = node.inputs[0]
    m, n = a.shape[-2:]
    k = min(m, n)
    if node.attributes["full"] and m > n:
        raise GradientError(
            'qr: with mode="complete", the gradient of a matrix of more rows than columns is not '
            'defined: the last columns of Q are arbitrary; use mode="reduced"'
        )
    (q, r), (by_q, by_r) = qr_parts(node, m, n), qr_parts(conj(g), m, n)
    by_r = triangle(by_r, lower=False)
    parts = []
    if n > m:
        beyond, by_beyond = columns(a, k, n), columns(by_r, k, n)
        by_q = by_q + matmul(beyond, adjoint(by_beyond))
        parts = [matmul(q, by_beyond)]
        r, by_r = columns(r, 0, k), columns(by_r, 0, k)
    inner = matmul(r, adjoint(by_r)) - matmul(adjoint(by_q), q)
    total = by_q + matmul(q, hermitian_from_lower(inner))
    # total·R⁻ᴴ = (R⁻¹·totalᴴ)ᴴ
    square = adjoint(solve_triangular(r, adjoint(total), lower=False))
    return (conj(apply(CONCAT, square, *parts, axis=a.ndim - 1) if parts else square),)


def _qr_reference(a: Any, *, full: bool) -> Any:
    from magmath.kernels.linalg.diagonal_signs import normalize_signs

    a = np.asarray(a)
    q, r = np.linalg.qr(a, mode="complete" if full else "reduced")
    q, r = q.copy(), r.copy()
    normalize_signs(q, r)
    (m, n), j = a.shape[-2:], q.shape[-1]
    packed = np.zeros((*a.shape[:-2], m + j, max(j, n)), a.dtype)
    packed[..., :m, :j], packed[..., m:, :n] = q, r
    return packed


# Collective QR: by panels of columns or, for a tall matrix, by rows.


def _is_tall_by_rows(node: Node, workers: int) -> bool:
    """Return True for tall matrices of which each worker stores at least as many rows as
    columns."""
    m, n = node.inputs[0].shape
    return is_tall(m, n) and not node.attributes["full"] and m // workers >= n


def _qr_layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
    """Return block-cyclic columns or, for tall matrices, split rows with R on the last worker."""
    (a,) = node.inputs
    if a.ndim != 2 or not a.size:
        return None
    if not _is_tall_by_rows(node, mesh.size):
        rows = panel_rows(node.shape[1], mesh.size)
        operand, result = (block_cyclic_layout(x.shape, mesh, 1, rows=rows) for x in (a, node))
        return NodeLayouts((operand,), result)
    cuts = (*even_cuts(a.shape[0], mesh.size)[:-1], node.shape[0])
    split = Split(0, CutPieces(cuts, tuple(range(mesh.size))))
    result = Layout.replicated_on(node.shape, mesh).replace_split(0, split)
    return NodeLayouts((Layout.even(a.shape, mesh, 0),), result)


def _qr_workspace(node: Node, workers: int) -> Workspace:
    """Return the workspace.

    It has a panel of reflections with its triangle and signs, and twice as many rows of the columns
    to which they are applied; for a tall matrix, the triangles of all workers and their sum.
    """
    (m, n), size = node.inputs[0].shape, node.dtype.itemsize
    if _is_tall_by_rows(node, workers):
        return Workspace(0, (workers + 1) * n * n * size)
    width = node.shape[1]
    w = panel_rows(width, workers)
    panels = -(-width // w)
    own_columns = -(-panels // workers) * w
    return Workspace(
        round_to_cache_lines(w * m * size) + round_to_cache_lines(w * w * size) + w * size,
        2 * w * own_columns * size,
    )


def _qr_traffic(node: Node, workers: int) -> tuple[int, int]:
    """Return bytes and messages: all reflections twice or, for tall matrices, two allreduces."""
    m, n = node.inputs[0].shape
    if _is_tall_by_rows(node, workers):
        return 4 * n * n * node.dtype.itemsize * (workers - 1), 4 * (workers - 1)
    return panel_traffic((min(m, n), m), node, workers, 2.0)


def _qr_kernel(call: CollectiveCall) -> BoundCall:
    n, comm, out, (a,) = call.layouts[0].shape[1], call.comm, call.out, call.inputs
    if call.layout.mesh_axis_of(0) is None:
        from magmath.kernels.linalg.householder_qr import Reflections

        shares = block_cyclic_rows(call.layout.shape[1], comm)
        return lambda: Reflections(shares, call.ring, call.scratch, out, a, n).run()
    from magmath.kernels.linalg.tall_skinny_qr import distributed_tall_qr

    q, scratch = out[: len(a)], call.scratch
    square = scratch[: n * n * a.itemsize].view(a.dtype).view(n, n)
    r = out[len(a) :] if comm.rank == comm.size - 1 else square
    return lambda: distributed_tall_qr(comm, scratch[n * n * a.itemsize :], q, r, a)


QR = Operation(  # Q over R
    name="qr",
    infer=_qr_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_qr_vjp,
    kernel=lapack("qr"),
    numpy_function=small_matrices("qr"),
    native=None,
    reference=_qr_reference,
    flops=lambda node: 4 * matrix_count(node) * elimination_flops(*node.inputs[0].shape[-2:]),
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=CollectiveKernel(
        layouts=_qr_layouts, kernel=_qr_kernel, workspace=_qr_workspace, traffic=_qr_traffic
    ),
)


def qr(a: Node, *, full: bool = False) -> Node:
    """Return Q over R, (…, m + j, max(j, n)); `qr_parts` separates them."""
    return apply(QR, a, full=full)


OPERATIONS = {QR.name: QR}
