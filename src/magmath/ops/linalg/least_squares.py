"""Pseudoinverse and least squares: the passes expand both into a singular value decomposition.

Singular values up to `tolerance` times the largest one count as zero. Gradients follow Golub and
Pereyra (1973), "The differentiation of pseudo-inverses and nonlinear least squares problems whose
variables separate": they require a locally constant rank; singular values may be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.core.dtypes import DType, real_dtype
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.elementwise import call, conj, real, where
from magmath.ops.index_letters import LETTERS, whole_letters
from magmath.ops.leaves import constant
from magmath.ops.linalg.lapack import check_matrix, check_type
from magmath.ops.linalg.matrix_algebra import CHECKED_MATRIX, adjoint, columns
from magmath.ops.linalg.svd import svd, svd_parts
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.product.contraction import matmul
from magmath.ops.shared_fields import no_flops, unreachable


def _axes(node: Node) -> str:
    """Return index notation in which stacks may be split; `tolerance` has one number per matrix."""
    batch = LETTERS[: node.ndim - 2]
    operands = [batch + whole_letters(x.ndim - len(batch)) for x in node.inputs]
    return f"{','.join(operands)}->{batch}.."


def _check_tolerance(name: str, a: Node, tolerance: Node) -> None:
    if tolerance.shape != a.shape[:-2]:
        raise ShapeError(
            f"{name}: needs one tolerance for each matrix, {a.shape[:-2]}, was given "
            f"{tolerance.shape}"
            "; give one number, or an array of this shape"
        )
    if tolerance.dtype is not real_dtype(a.dtype):
        raise DTypeError(
            f"{name}: the tolerance must be {real_dtype(a.dtype)}, was given {tolerance.dtype}"
        )


def _decomposed(a: Node, tolerance: Node) -> tuple[Node, Node, Node]:
    """Return U, the reciprocals of the singular values (…, 1, k) and Vᴴ.

    The reciprocals of singular values that count as zero are 0.
    """
    m, n = a.shape[-2:]
    u, s, vh = svd_parts(svd(a), m, n, full=False)
    largest = columns(s, 0, min(1, s.shape[-1]))
    limit = real(largest) * reshape(tolerance, (*tolerance.shape, 1, 1))
    counts = call("greater", real(s), limit)
    zero, one = constant(0, s.dtype), constant(1, s.dtype)
    return u, where(counts, one / where(counts, s, one), zero), vh


# pinv ---------------------------------------------------------------------------------------------


def _pinv_infer(a: Node, tolerance: Node) -> tuple[Shape, DType]:
    check_type("pinv", a)
    check_matrix("pinv", a)
    _check_tolerance("pinv", a, tolerance)
    return (*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype


def _pinv_expansion(node: Node) -> Node:
    u, inverse, vh = _decomposed(*node.inputs)
    return matmul(adjoint(vh) * inverse, adjoint(u))


def _pinv_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā = -PᴴP̄Pᴴ + (I - AP)·P̄ᴴ·PPᴴ + PᴴP·P̄ᴴ·(I - PA)."""
    a, p, by_p = node.inputs[0], node, conj(g)
    ph, by_p_adjoint = adjoint(p), adjoint(by_p)
    first = matmul(matmul(ph, by_p), ph)
    above = matmul(by_p_adjoint, matmul(p, ph))
    below = matmul(matmul(ph, p), by_p_adjoint)
    left = above - matmul(a, matmul(p, above))
    right = below - matmul(matmul(below, p), a)
    return conj(left + right - first), None


def _pinv_reference(a: Any, tolerance: Any) -> Any:
    return np.linalg.pinv(a, rcond=np.asarray(tolerance))


PINV = Operation(
    name="pinv",
    infer=_pinv_infer,
    axes=_axes,
    reduction=None,
    vjp=_pinv_vjp,
    kernel=unreachable,
    native=None,
    reference=_pinv_reference,
    flops=no_flops,
    checked=CHECKED_MATRIX,
    expansion=_pinv_expansion,
)


def pinv(a: Node, tolerance: Node) -> Node:
    """Return the Moore-Penrose inverse, (…, n, m)."""
    return apply(PINV, a, tolerance)


# lstsq --------------------------------------------------------------------------------------------


def _lstsq_infer(a: Node, b: Node, tolerance: Node) -> tuple[Shape, DType]:
    check_type("lstsq", a, b)
    check_matrix("lstsq", a)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(
            f"lstsq: needs (…, m, n) and (…, m, k), was given {a.shape} and {b.shape}"
            "; reshape the right side"
        )
    _check_tolerance("lstsq", a, tolerance)
    return (*a.shape[:-2], a.shape[-1], b.shape[-1]), a.dtype


def _lstsq_expansion(node: Node) -> Node:
    a, b, tolerance = node.inputs
    u, inverse, vh = _decomposed(a, tolerance)
    return matmul(adjoint(vh), transpose(inverse) * matmul(adjoint(u), b))


def _lstsq_vjp(node: Node, g: Node) -> Gradients:
    """Return B̄ = Y and Ā = -Y·Xᴴ + R·(P·Y)ᴴ + Pᴴ·X·(X̄ - AᴴY)ᴴ.

    P is the pseudoinverse, Y = PᴴX̄ and R = B - AX.
    """
    (a, b, tolerance), x, by_x = node.inputs, node, conj(g)
    p = pinv(a, tolerance)
    y = matmul(adjoint(p), by_x)
    residual = b - matmul(a, x)
    out_of_columns = matmul(residual, adjoint(matmul(p, y)))
    missing = by_x - matmul(adjoint(a), y)
    out_of_rows = matmul(matmul(adjoint(p), x), adjoint(missing))
    by_a = out_of_columns + out_of_rows - matmul(y, adjoint(x))
    return conj(by_a), conj(y), None


def _lstsq_reference(a: Any, b: Any, tolerance: Any) -> Any:
    return _pinv_reference(a, tolerance) @ b


LSTSQ = Operation(
    name="lstsq",
    infer=_lstsq_infer,
    axes=_axes,
    reduction=None,
    vjp=_lstsq_vjp,
    kernel=unreachable,
    native=None,
    reference=_lstsq_reference,
    flops=no_flops,
    checked=CHECKED_MATRIX,
    expansion=_lstsq_expansion,
)


def lstsq(a: Node, b: Node, tolerance: Node) -> Node:
    """Return the x of least norm that minimizes the norm of a·x - b, (…, n, k)."""
    return apply(LSTSQ, a, b, tolerance)


OPERATIONS = {operation.name: operation for operation in (PINV, LSTSQ)}
