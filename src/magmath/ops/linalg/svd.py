"""The singular value decomposition, as LAPACK computes it, packed like the other factorizations.

The result is U over the singular values over Vᴴ transposed; `svd_parts` separates them. Equal
singular values do not determine their vectors: the gradient is then that of fixed ones, correct for
results of the values, or of the space of these vectors; docs/numpy.md has an exception. Gradients
follow Giles (2008), and Wan and Zhang (2019) for complex matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, real_dtype
from magmath.errors import GradientError
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import astype, call, conj, where
from magmath.ops.leaves import constant
from magmath.ops.linalg.distributed_svd import bind_svd, bind_svdvals, collective_spectrum
from magmath.ops.linalg.eigen import reciprocal_differences
from magmath.ops.linalg.lapack import (
    check_matrix,
    check_type,
    lapack,
    matrix_count,
    small_matrices,
    stacked_axes,
)
from magmath.ops.linalg.matrix_algebra import (
    CHECKED_MATRIX,
    adjoint,
    columns,
    diagonal_part,
    identity_matrix,
    rows,
)
from magmath.ops.linalg.qr import qr, qr_parts
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.product.contraction import matmul


def _svd_infer(a: Node, *, full: bool) -> tuple[Shape, DType]:
    check_type("svd", a)
    check_matrix("svd", a)
    m, n = a.shape[-2:]
    width = max(m, n) if full else min(m, n)
    return (*a.shape[:-2], m + 1 + n, width), a.dtype


def svd_parts(packed: Node, m: int, n: int, *, full: bool) -> tuple[Node, Node, Node]:
    """Return U (…, m, j), s as a row (…, 1, k) of U's type, and Vᴴ (…, i, n)."""
    k = min(m, n)
    u = columns(rows(packed, 0, m), 0, m if full else k)
    s = columns(rows(packed, m, m + 1), 0, k)
    v = columns(rows(packed, m + 1, m + 1 + n), 0, n if full else k)
    return u, s, transpose(v)


def _inverse(s: Node) -> Node:
    """Return 1 / s, and 0 where s is 0."""
    zero, one = constant(0, s.dtype), constant(1, s.dtype)
    none = call("equal", s, zero)
    return where(none, zero, one / where(none, one, s))


def _skew(x: Node) -> Node:
    return x - adjoint(x)


def _svd_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā = U·(F∘skew(UᴴŪ)·S + S·F∘skew(VᴴV̄) + diag(s̄))·Vᴴ with Fᵢⱼ = 1/(sⱼ² - sᵢ²).

    Further terms are the components outside the column spaces of U and V and, for complex matrices,
    the phases of the vectors.
    """
    (a,), full = node.inputs, node.attributes["full"]
    m, n = a.shape[-2:]
    k = min(m, n)
    if full and m != n:
        raise GradientError(
            "svd: with full_matrices=True, the gradient of a matrix that is not square is not "
            "defined: the vectors beyond the singular values are arbitrary; use "
            "full_matrices=False"
        )
    u, s, vh = svd_parts(node, m, n, full=full)
    by_u, by_s, by_vh = svd_parts(conj(g), m, n, full=full)
    f = reciprocal_differences(s * s)
    skew_u = _skew(matmul(adjoint(u), by_u))
    skew_v = _skew(matmul(vh, adjoint(by_vh)))
    middle = f * skew_u * s + transpose(s) * (f * skew_v)
    middle = middle + identity_matrix(k, k, node) * by_s
    if node.dtype.kind == "complex":
        half = _inverse(s) * 0.5
        middle = middle + diagonal_part(skew_u) * half
    total = matmul(matmul(u, middle), vh)
    if m > k:
        beyond = (by_u - matmul(u, matmul(adjoint(u), by_u))) * _inverse(s)
        total = total + matmul(beyond, vh)
    if n > k:
        beyond = by_vh - matmul(matmul(by_vh, adjoint(vh)), vh)
        total = total + matmul(u * _inverse(s), beyond)
    return (conj(total),)


def _svd_reference(a: Any, *, full: bool) -> Any:
    a = np.asarray(a)
    m, n = a.shape[-2:]
    u, s, vh = np.linalg.svd(a, full_matrices=full)
    packed = np.zeros((*a.shape[:-2], m + 1 + n, max(m, n) if full else min(m, n)), a.dtype)
    packed[..., :m, : u.shape[-1]] = u
    packed[..., m, : s.shape[-1]] = s
    packed[..., m + 1 :, : vh.shape[-2]] = np.swapaxes(vh, -1, -2)
    return packed


def _slender(node: Node) -> Node | None:
    """Return the operand or its adjoint, whichever is tall, if QR first may be faster.

    Workers keep their rows for QR. Returns None for stacks, empty matrices, and matrices less than
    twice as long as wide.
    """
    (a,) = node.inputs
    if a.ndim != 2 or max(a.shape) < 2 * min(a.shape) or not a.size:
        return None
    return a if a.shape[0] > a.shape[1] else adjoint(a)


def _svd_by_qr(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the SVD by way of the SVD of R, with Q·U in place of U (Chan, 1982)."""
    tall = _slender(node)
    if tall is None or node.attributes["full"]:
        return ()
    m, n = tall.shape
    q, r = qr_parts(qr(tall), m, n)
    packed = svd(r)
    upper, values, lower = (
        rows(packed, 0, n),
        rows(packed, n, n + 1),
        rows(packed, n + 1, 2 * n + 1),
    )
    upper = matmul(q, upper)
    if node.inputs[0].shape != tall.shape:  # Aᴴ = U·S·Vᴴ, so A = V·S·Uᴴ
        upper, lower = conj(lower), conj(upper)
    return (apply(CONCAT, upper, values, lower, axis=0),)


def _svdvals_by_qr(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the singular values of R."""
    tall = _slender(node)
    return () if tall is None else (apply(SVDVALS, qr_parts(qr(tall), *tall.shape)[1]),)


SVD = Operation(  # U over the row of singular values over Vᴴ transposed
    name="svd",
    infer=_svd_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_svd_vjp,
    kernel=lapack("svd"),
    numpy_function=small_matrices("svd"),
    native=None,
    reference=_svd_reference,
    flops=lambda node: matrix_count(node) * _svd_flops(*node.inputs[0].shape[-2:]),
    decompositions=_svd_by_qr,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=collective_spectrum(bind_svd, sums=2, passes=2),
)


def _svd_flops(m: int, n: int) -> float:
    """Return the flops of U₁, Σ and V by R-SVD (Golub and Van Loan 2013, figure 8.6.1)."""
    k = min(m, n)
    return 6.0 * max(m, n) * k * k + 20.0 * k**3


def svd(a: Node, *, full: bool = False) -> Node:
    """Return U, the singular values and Vᴴ, packed; `svd_parts` separates them."""
    return apply(SVD, a, full=full)


def _svdvals_infer(a: Node) -> tuple[Shape, DType]:
    check_type("svdvals", a)
    check_matrix("svdvals", a)
    return (*a.shape[:-2], min(a.shape[-2:])), real_dtype(a.dtype)


def _svdvals_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā = U·diag(s̄)·Vᴴ."""
    (a,) = node.inputs
    u, _, vh = svd_parts(svd(a), *a.shape[-2:], full=False)
    by_s = astype(reshape(g, (*g.shape[:-1], 1, g.shape[-1])), a.dtype)
    return (conj(matmul(u * by_s, vh)),)


SVDVALS = Operation(
    name="svdvals",
    infer=_svdvals_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_svdvals_vjp,
    kernel=lapack("svdvals"),
    numpy_function=small_matrices("svdvals"),
    native=None,
    reference=lambda a: np.linalg.svd(a, compute_uv=False),
    flops=lambda node: (
        matrix_count(node) * 4.0 * max(node.inputs[0].shape[-2:]) * node.shape[-1] ** 2
    ),
    decompositions=_svdvals_by_qr,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=collective_spectrum(bind_svdvals, sums=2, passes=2),
)

OPERATIONS = {operation.name: operation for operation in (SVD, SVDVALS)}
