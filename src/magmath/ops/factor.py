"""Cholesky, LU and QR factorisations and triangular systems, as LAPACK computes them.

An operation has one result, so what belongs together is packed into one array: Q over R, the order
of the columns over L and U; `qr_parts` and `lu_parts` take it apart. Stacks of matrices may be
split over workers, a matrix may not: its dimensions are `.`. Gradients follow Giles (2008),
"Collected matrix derivative results for forward and reverse mode algorithmic differentiation", and
for QR Roberts and Roberts (2020); cotangents are those of x, not of its conjugate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.core.panels import SORTED_COLUMNS, panel_rows, rounded
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Collective, LocalCall, Node, Operation, Shape, Workspace, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout, Mesh
from magmath.ops.collective import collective_kernel, dealt, panel_bytes, panel_traffic
from magmath.ops.collective_qr import COLLECTIVE_QR
from magmath.ops.contraction import matmul
from magmath.ops.creation import iota
from magmath.ops.elementwise import add, astype, call, conj, multiply, negative, subtract
from magmath.ops.leaves import constant
from magmath.ops.manipulation import CONCAT, transpose
from magmath.ops.matrices import (
    adjoint,
    by_lower,
    columns,
    diagonal_part,
    hermitian_from_lower,
    identity,
    rows,
    triangle,
)
from magmath.ops.rules import LETTERS, whole

TYPES = ("float32", "float64", "complex64", "complex128")


def check_type(name: str, *operands: Node) -> None:
    """DTypeError unless LAPACK has the operands' type, and they share it."""
    for x in operands:
        if x.dtype.name not in TYPES:
            raise DTypeError(
                f"{name}: takes {', '.join(TYPES)}, was given {x.dtype}; convert with "
                f"mm.astype(x, …)"
            )
        if x.dtype != operands[0].dtype:
            raise DTypeError(f"{name}: operands have types {operands[0].dtype} and {x.dtype}")


def check_matrix(name: str, a: Node, *, square: bool = False) -> None:
    """ShapeError unless `a` is a stack of matrices, square ones if they must be."""
    needed = "square matrices (…, n, n)" if square else "matrices (…, m, n)"
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise ShapeError(f"{name}: needs {needed}, was given {a.shape}")


def stacked_axes(node: Node) -> str:
    """Stacks may be split, matrices may not."""
    batch = LETTERS[: node.inputs[0].ndim - 2]
    inputs = ",".join(batch + whole(x.ndim - len(batch)) for x in node.inputs)
    return f"{inputs}->{batch}{whole(node.ndim - len(batch))}"


def columns_axes(node: Node) -> str:
    """The first operand as above; the columns of the second, which the result has, may be split."""
    batch = LETTERS[: node.ndim - 2]
    column = LETTERS[node.ndim]
    return f"{batch}..,{batch}.{column}->{batch}.{column}"


Compute = Callable[..., None]


def lapack(name: str, *keys: str) -> Callable[[LocalCall], Callable[[], object]]:
    """The kernel `magmath.kernels.lapack.<name>`, with these attributes."""

    def bind(call: LocalCall) -> Callable[[], object]:
        from magmath.kernels import lapack

        compute: Compute = getattr(lapack, name)
        options = {key: call.attributes[key] for key in keys}
        out, inputs = call.out, tuple(call.inputs)

        def run() -> None:
            if out.is_contiguous():
                compute(out, *inputs, **options)
                return
            made = out.new_empty(out.shape)
            compute(made, *inputs, **options)
            out.copy_(made)

        return run

    return bind


def count(node: Node) -> int:
    """The number of matrices in a node's first operand."""
    a = node.inputs[0]
    return a.size // max(a.shape[-1] * a.shape[-2], 1)


# Cholesky -----------------------------------------------------------------------------------------


def _square_infer(name: str) -> Callable[..., tuple[Shape, DType]]:
    def infer(a: Node) -> tuple[Shape, DType]:
        check_type(name, a)
        check_matrix(name, a, square=True)
        return a.shape, a.dtype

    return infer


def _cholesky_vjp(node: Node, g: Node) -> Gradients:
    """L⁻ᴴ·P·L⁻¹ with P the lower triangle of LᴴL̄, its diagonal halved; by the lower triangle, which
    alone is read."""
    g = triangle(conj(g), lower=True)
    product = matmul(adjoint(node), g)
    half = constant(0.5, node.dtype)
    p = subtract(triangle(product, lower=True), multiply(diagonal_part(product), half))
    left = solve_adjoint(node, p, lower=True)
    return (conj(by_lower(adjoint(solve_adjoint(node, adjoint(left), lower=True)))),)


def solve_adjoint(triangular: Node, b: Node, *, lower: bool) -> Node:
    """t⁻ᴴ·b."""
    return conj(solve_triangular(triangular, conj(b), lower=lower, transpose=True))


def _cholesky_layouts(node: Node, mesh: Mesh) -> tuple[tuple[Layout, ...], Layout] | None:
    """Rows are dealt."""
    if node.ndim != 2 or not node.size:
        return None
    layout = dealt(node.shape, mesh, 0)
    return (layout,), layout


CHOLESKY = Operation(  # a = L·Lᴴ, of the lower triangle of a
    name="cholesky",
    infer=_square_infer("cholesky"),
    axes=stacked_axes,
    reduction=None,
    vjp=_cholesky_vjp,
    kernel=lapack("cholesky"),
    native=None,
    reference=np.linalg.cholesky,
    flops=lambda node: count(node) * node.shape[-1] ** 3 / 3,
    lapack=True,
    collective=Collective(
        layouts=_cholesky_layouts,
        kernel=collective_kernel("together", "cholesky"),
        workspace=lambda node, workers: Workspace(panel_bytes(node.shape, node, workers)),
        traffic=lambda node, workers: panel_traffic(node.shape, node, workers, 0.5),
    ),
)


def cholesky(a: Node) -> Node:
    """L, lower triangular, with a = L·Lᴴ."""
    return apply(CHOLESKY, a)


# triangular systems -------------------------------------------------------------------------------


def _solve_triangular_infer(
    a: Node, b: Node, *, lower: bool, transpose: bool, unit: bool
) -> tuple[Shape, DType]:
    check_type("solve_triangular", a, b)
    check_system("solve_triangular", a, b)
    return b.shape, b.dtype


def check_system(name: str, a: Node, b: Node) -> None:
    """ShapeError unless a is square, and b has as many rows and as many matrices."""
    check_matrix(name, a, square=True)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(
            f"{name}: needs (…, n, n) and (…, n, k), was given {a.shape} and {b.shape}"
        )


def _solve_triangular_vjp(node: Node, g: Node) -> Gradients:
    """B̄ = op(A)⁻ᵀ·G, Ā = -B̄·Xᵀ (transposed for a transposed A), on the triangle that is read."""
    a = node.inputs[0]
    lower, flip, unit = (node.attributes[key] for key in ("lower", "transpose", "unit"))
    by_b = solve_triangular(a, g, lower=lower, transpose=not flip, unit=unit)
    outer = matmul(node, transpose(by_b)) if flip else matmul(by_b, transpose(node))
    return negative(triangle(outer, lower=lower, strict=unit)), by_b


def _solve_triangular_reference(a: Any, b: Any, *, lower: bool, transpose: bool, unit: bool) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    if unit:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transpose else a, b)


def _columns_layouts(
    before: int,
) -> Callable[[Node, Mesh], tuple[tuple[Layout, ...], Layout] | None]:
    """The rows of the matrix are dealt, the columns of the right-hand side and the solution
    divided."""

    def layouts(node: Node, mesh: Mesh) -> tuple[tuple[Layout, ...], Layout] | None:
        if node.ndim != 2 or not node.size:
            return None
        divided = Layout.even(node.shape, mesh, 1)
        return (dealt(node.inputs[0].shape, mesh, 0, before=before), divided), divided

    return layouts


def _triangle_traffic(node: Node, workers: int) -> tuple[int, int]:
    return panel_traffic(node.inputs[0].shape, node, workers, 0.5)


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
    lapack=True,
    collective=Collective(
        layouts=_columns_layouts(0),
        kernel=collective_kernel("sweeps", "solve_triangular", "lower", "transpose", "unit"),
        workspace=lambda node, w: Workspace(panel_bytes(node.inputs[0].shape, node, w)),
        traffic=_triangle_traffic,
    ),
)


def solve_triangular(
    a: Node, b: Node, *, lower: bool, transpose: bool = False, unit: bool = False
) -> Node:
    """op(a)⁻¹·b, with one triangle of a and, if `unit`, ones on its diagonal."""
    return apply(SOLVE_TRIANGULAR, a, b, lower=lower, transpose=transpose, unit=unit)


# LU -----------------------------------------------------------------------------------------------


def _lu_infer(a: Node) -> tuple[Shape, DType]:
    check_type("lu", a)
    check_matrix("lu", a)
    return (*a.shape[:-2], a.shape[-2] + 1, a.shape[-1]), a.dtype


def lu_parts(packed: Node) -> tuple[Node, Node, Node]:
    """The permutation P as a matrix, L and U, with a·P = L·U."""
    m, n = packed.shape[-2] - 1, packed.shape[-1]
    k = min(m, n)
    order = rows(packed, 0, 1)
    factors = rows(packed, 1, m + 1)
    low = triangle(columns(factors, 0, k), lower=True)
    high = add(triangle(rows(factors, 0, k), lower=False, strict=True), identity(k, n, factors))
    return permutation_matrix(order), low, high


def permutation_matrix(order: Node) -> Node:
    """P of the type of `order`, (…, 1, n), with (a·P)[:, j] = a[:, order[j]]."""
    n = order.shape[-1]
    counted = astype(iota((n, 1), 0, int64), order.dtype)
    return astype(call("equal", counted, order), order.dtype)


def _lu_vjp(node: Node, g: Node) -> Gradients:
    """A·P = L·U, with U's diagonal of ones. Where A is square: Ā·P = L⁻ᵀ·M·U⁻ᵀ with M the lower
    triangle of LᵀL̄ and the strictly upper one of Ū·Uᵀ; what is beyond the square depends on it by a
    triangular system."""
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
        by_low = subtract(by_low, matmul(beyond, transpose(u2)))
    if m > k:  # L₂ = A₂·U⁻¹
        l2, g2 = rows(low, k, m), rows(cotangent, k, m)
        beyond = transpose(solve_triangular(square, transpose(g2), lower=False, unit=True))
        by_high = subtract(by_high, matmul(transpose(l2), beyond))
    middle = add(
        triangle(matmul(transpose(low1), by_low), lower=True),
        triangle(matmul(by_high, transpose(high1)), lower=False, strict=True),
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


def _lu_layouts(node: Node, mesh: Mesh) -> tuple[tuple[Layout, ...], Layout] | None:
    """Rows are dealt; the order of the columns goes with the first of them."""
    (a,) = node.inputs
    if a.ndim != 2 or not a.size:
        return None
    return (dealt(a.shape, mesh, 0),), dealt(node.shape, mesh, 0, before=1)


def _lu_workspace(node: Node, workers: int) -> Workspace:
    """A panel with its pivots."""
    shape = node.inputs[0].shape
    pivots = rounded(4 * panel_rows(shape[0], workers))
    return Workspace(pivots + panel_bytes(shape, node, workers))


LU = Operation(  # a·P = L·U; partial pivoting by columns, so that nothing is transposed
    name="lu",
    infer=_lu_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_lu_vjp,
    kernel=lapack("lu"),
    native=None,
    reference=_lu_reference,
    flops=lambda node: count(node) * _lu_flops(*node.inputs[0].shape[-2:]),
    lapack=True,
    collective=Collective(
        layouts=_lu_layouts,
        kernel=collective_kernel("together", "lu"),
        workspace=_lu_workspace,
        traffic=lambda node, w: panel_traffic(node.inputs[0].shape, node, w, 0.5),
    ),
)


def _lu_flops(m: int, n: int) -> float:
    k = min(m, n)
    return k * k * (max(m, n) - k / 3)


def lu(a: Node) -> Node:
    """The order of the columns over L\\U, (…, m + 1, n): a[:, order] = L·U."""
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


def no_vjp(node: Node, g: Node) -> Gradients:
    """The gradient of what only the passes make, after gradients."""
    raise AssertionError(f"{node.name} is made by the passes, after gradients")


def _lu_solve_workspace(node: Node, workers: int) -> Workspace:
    """A panel, or the order of the columns; some columns of the solution while they are put in
    order."""
    n = node.shape[0]
    panel = max(panel_bytes((n, n), node, workers), n * node.dtype.itemsize)
    return Workspace(panel, n * SORTED_COLUMNS * node.dtype.itemsize)


LU_SOLVE = Operation(
    name="lu_solve",
    infer=_lu_solve_infer,
    axes=columns_axes,
    reduction=None,
    vjp=no_vjp,
    kernel=lapack("lu_solve", "transpose"),
    native=None,
    reference=_lu_solve_reference,
    flops=lambda node: 2.0 * node.size * node.shape[-2],
    lapack=True,
    collective=Collective(
        layouts=_columns_layouts(1),
        kernel=collective_kernel("sweeps", "lu_solve", "transpose", before=1),
        workspace=_lu_solve_workspace,
        traffic=lambda node, w: panel_traffic((node.shape[0],) * 2, node, w, 1.0),
    ),
)


def lu_solve(factors: Node, b: Node, *, transpose: bool = False) -> Node:
    """a⁻¹·b or a⁻ᵀ·b, from what `lu` made of a."""
    return apply(LU_SOLVE, factors, b, transpose=transpose)


# QR -----------------------------------------------------------------------------------------------


def _qr_infer(a: Node, *, full: bool) -> tuple[Shape, DType]:
    check_type("qr", a)
    check_matrix("qr", a)
    m, n = a.shape[-2:]
    j = m if full else min(m, n)
    return (*a.shape[:-2], m + j, max(j, n)), a.dtype


def qr_parts(packed: Node, m: int, n: int) -> tuple[Node, Node]:
    """Q (…, m, j) and R (…, j, n)."""
    j = packed.shape[-2] - m
    return columns(rows(packed, 0, m), 0, j), columns(rows(packed, m, m + j), 0, n)


def _qr_vjp(node: Node, g: Node) -> Gradients:
    """Ā = (Q̄ + Q·H(R·R̄ᴴ - Q̄ᴴ·Q)) · R⁻ᴴ, H making the lower triangle Hermitian; of a wide matrix
    the part beyond the square is QᴴA₂."""
    a = node.inputs[0]
    m, n = a.shape[-2:]
    k = min(m, n)
    if node.attributes["full"] and m > n:
        raise MagmathError(
            'qr: with mode="complete", the gradient of a matrix of more rows than columns is not '
            'defined: the last columns of Q are arbitrary; use mode="reduced"'
        )
    (q, r), (by_q, by_r) = qr_parts(node, m, n), qr_parts(conj(g), m, n)
    by_r = triangle(by_r, lower=False)
    parts = []
    if n > m:
        beyond, by_beyond = columns(a, k, n), columns(by_r, k, n)
        by_q = add(by_q, matmul(beyond, adjoint(by_beyond)))
        parts = [matmul(q, by_beyond)]
        r, by_r = columns(r, 0, k), columns(by_r, 0, k)
    inner = subtract(matmul(r, adjoint(by_r)), matmul(adjoint(by_q), q))
    total = add(by_q, matmul(q, hermitian_from_lower(inner)))
    # total·R⁻ᴴ = (R⁻¹·totalᴴ)ᴴ
    square = adjoint(solve_triangular(r, adjoint(total), lower=False))
    return (conj(apply(CONCAT, square, *parts, axis=a.ndim - 1) if parts else square),)


def _qr_reference(a: Any, *, full: bool) -> Any:
    a = np.asarray(a)
    q, r = np.linalg.qr(a, mode="complete" if full else "reduced")
    sign = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    sign = np.where(sign == 0, 1, sign)
    k = sign.shape[-1]
    q, r = q.copy(), r.copy()
    q[..., :k] *= sign[..., None, :]
    r[..., :k, :] *= sign.conj()[..., :, None]
    (m, n), j = a.shape[-2:], q.shape[-1]
    packed = np.zeros((*a.shape[:-2], m + j, max(j, n)), a.dtype)
    packed[..., :m, :j], packed[..., m:, :n] = q, r
    return packed


QR = Operation(  # Q over R
    name="qr",
    infer=_qr_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_qr_vjp,
    kernel=lapack("qr"),
    native=None,
    reference=_qr_reference,
    flops=lambda node: 4 * count(node) * _lu_flops(*node.inputs[0].shape[-2:]),
    lapack=True,
    collective=COLLECTIVE_QR,
)


def qr(a: Node, *, full: bool = False) -> Node:
    """Q over R, (…, m + j, max(j, n)): see `qr_parts`."""
    return apply(QR, a, full=full)


OPERATIONS = {
    operation.name: operation for operation in (CHOLESKY, SOLVE_TRIANGULAR, LU, LU_SOLVE, QR)
}
