"""Determinants: records that the passes expand into factorizations, as those of linear systems.

The gradients of the determinant are the cofactors, and their gradients have a record too, so that
both are exact for singular matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, real_dtype
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import astype, call, conj, real, where
from magmath.ops.index_letters import LETTERS
from magmath.ops.kernel_binding import by_reference
from magmath.ops.leaves import constant
from magmath.ops.linalg.lapack import (
    MAX_SMALL,
    check_system,
    check_type,
    lapack,
    square_infer,
    stacked_axes,
)
from magmath.ops.linalg.lu import lu, lu_solve
from magmath.ops.linalg.matrix_algebra import (
    CHECKED_MATRIX,
    diagonal,
    identity_matrix,
    rows,
    with_diagonal,
)
from magmath.ops.linalg.solvers import inv
from magmath.ops.linalg.svd import svd, svd_parts
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.product.contraction import matmul
from magmath.ops.reductions import REDUCTIONS
from magmath.ops.shared_fields import no_flops, no_gradient, unreachable
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to, sum_


def _pivots(a: Node) -> tuple[Node, Node]:
    """Return the sign of the permutation of a's columns, and the diagonal of L.

    The determinant is the product of both.
    """
    packed, n = lu(a), a.shape[-1]
    order = reshape(real(rows(packed, 0, 1)), (*a.shape[:-2], n))
    return astype(apply(PARITY, order), a.dtype), diagonal(rows(packed, 1, n + 1))


def _parity_reference(order: Any) -> Any:
    order = np.asarray(order)
    eye = np.eye(order.shape[-1])
    signs = [np.linalg.det(eye[order[i].astype(int)]) for i in np.ndindex(*order.shape[:-1])]
    return np.rint(signs).astype(order.dtype).reshape(order.shape[:-1])


PARITY = Operation(  # 1 for even, -1 for odd permutations; each row of a matrix is one
    name="parity",
    infer=lambda order: (order.shape[:-1], order.dtype),
    axes=lambda node: f"{LETTERS[: node.ndim]}.->{LETTERS[: node.ndim]}",
    reduction=None,
    vjp=no_gradient,
    kernel=lapack("parity", tuned=False),
    native=None,
    reference=_parity_reference,
    flops=lambda node: float(node.inputs[0].size),
)


def _product(sign: Node, numbers: Node) -> Node:
    along = apply(REDUCTIONS["prod"], numbers, axis=(numbers.ndim - 1,), keepdims=False)
    return sign * along


def _log_size(pivots: Node) -> Node:
    return sum_(call("log", call("abs", pivots)), (pivots.ndim - 1,))


def _determinant(sign: Node, pivots: Node) -> Node:
    """Return the product of the pivots.

    If it underflows or overflows, return the product of the signs times the exponential of the sum
    of logarithms.
    """
    product, dtype = _product(sign, pivots), real_dtype(pivots.dtype)
    smallest = constant(float(np.finfo(dtype.name).smallest_normal), dtype)
    within = call("greater_equal", call("abs", product), smallest)
    size = astype(call("exp", _log_size(pivots)), pivots.dtype)
    by_size = _product(sign, call("sign", pivots)) * size
    return where(call("logical_and", within, call("isfinite", product)), product, by_size)


def _by_matrix(scalars: Node, a: Node) -> Node:
    """Return one number for each matrix times a⁻ᵀ."""
    return reshape(scalars, (*scalars.shape, 1, 1)) * transpose(inv(a))


def _cofactors_expansion(node: Node) -> Node:
    """Return det(A)·A⁻ᵀ, with zero pivots replaced by rounding errors.

    Both factors have the same pivots, so that a small one cancels. The cofactors are continuous:
    those of a singular matrix are those of a regular one close to it.
    """
    (a,) = node.inputs
    if not a.size:
        return a
    packed, n, dtype = lu(a), a.shape[-1], real_dtype(a.dtype)
    sign, pivots = _pivots(a)
    largest = apply(REDUCTIONS["max"], call("abs", a), axis=(a.ndim - 2, a.ndim - 1), keepdims=True)
    largest = reshape(largest, (*a.shape[:-2], 1))
    scale = where(call("greater", largest, constant(0, dtype)), largest, constant(1, dtype))
    zero = call("equal", call("abs", pivots), constant(0, dtype))
    rounding = scale * constant(float(np.finfo(dtype.name).eps), dtype)
    added = astype(where(zero, rounding, constant(0, dtype)), a.dtype)
    eye = broadcast_to(identity_matrix(n, n, a), a.shape)
    factors = rows(packed, 1, n + 1) + reshape(added, (*added.shape, 1)) * eye
    packed = apply(CONCAT, rows(packed, 0, 1), factors, axis=a.ndim - 2)
    inverse = lu_solve(packed, eye, transpose=True)
    return reshape(_determinant(sign, pivots + added), (*a.shape[:-2], 1, 1)) * inverse


def _cofactors_vjp(node: Node, g: Node) -> Gradients:
    return (apply(COFACTORS_GRADIENT, *node.inputs, g),)


def _cofactors_reference(a: Any) -> Any:
    return np.linalg.det(a)[..., None, None] * np.swapaxes(np.linalg.inv(a), -1, -2)


COFACTORS = Operation(  # the derivatives of det(A) by the elements of A
    name="cofactors",
    infer=square_infer("det"),
    axes=stacked_axes,
    reduction=None,
    vjp=_cofactors_vjp,
    kernel=unreachable,
    native=None,
    reference=_cofactors_reference,
    flops=no_flops,
    checked=CHECKED_MATRIX,
    expansion=_cofactors_expansion,
)


def _gradient_infer(a: Node, g: Node) -> tuple[Shape, DType]:
    check_type("det", a, g)
    check_system("det", a, g)
    return a.shape, a.dtype


def _inner(x: Node, y: Node) -> Node:
    """Return ⟨X, Y⟩ of each pair of matrices, (…, 1, 1)."""
    return reshape(sum_(x * y, (x.ndim - 2, x.ndim - 1)), (*x.shape[:-2], 1, 1))


def _products_without_two(s: Node) -> Node:
    """Return the matrix of the products of all numbers except those of the row and the column; its
    diagonal is 0. The numbers are a row (…, 1, n) and not negative.

    The products are exponentials of sums of logarithms, which neither overflow nor divide by 0.
    """
    dtype, n = s.dtype, s.shape[-1]
    is_zero = call("equal", s, constant(0, dtype))
    logarithms = call("log", where(is_zero, constant(1, dtype), s))
    zeros = astype(is_zero, dtype)
    log_products, other_zeros = (
        reshape(sum_(x, (x.ndim - 1,)), (*x.shape[:-1], 1)) - x - transpose(x)
        for x in (logarithms, zeros)
    )
    products = where(
        call("greater", other_zeros, constant(0.5, dtype)),
        constant(0, dtype),
        call("exp", log_products),
    )
    return with_diagonal(products, broadcast_to(constant(0, dtype), (*s.shape[:-2], n)))


def _cofactors_gradient_expansion(node: Node) -> Node:
    """Return the derivatives of ⟨G, cofactors(A)⟩ by A from A = U·diag(s)·Vᴴ.

    With X = conj(U), Y = conj(Vᴴ), H = Xᵀ·G·Yᵀ and the products P of all singular values but two
    they are det(U)·det(Vᴴ)·X·(diag(P·diag(H)) - P∘Hᵀ)·Y, for a matrix of any rank.
    """
    a, g = node.inputs
    if not a.size:
        return a
    n = a.shape[-1]
    u, s, v = svd_parts(svd(a), n, n, full=False)
    x, y = conj(u), conj(v)
    rotated = matmul(matmul(transpose(x), g), transpose(y))
    products = astype(_products_without_two(real(s)), a.dtype)
    along = matmul(products, reshape(diagonal(rotated), (*a.shape[:-1], 1)))
    inner = with_diagonal(-(products * transpose(rotated)), reshape(along, a.shape[:-1]))
    sign = reshape(_determinant(*_pivots(u)) * _determinant(*_pivots(v)), (*a.shape[:-2], 1, 1))
    return sign * matmul(matmul(x, inner), y)


def _cofactors_gradient_vjp(node: Node, h: Node) -> Gradients:
    """Return the cotangents; that of A needs a regular matrix.

    With W = A⁻ᵀ, E = W·Gᵀ·W and F = W·Hᵀ·W it is
    det(A)·((⟨G, W⟩⟨H, W⟩ - ⟨H, E⟩)·W - ⟨H, W⟩·E - ⟨G, W⟩·F + E·Hᵀ·W + F·Gᵀ·W).
    """
    a, g = node.inputs
    w = transpose(inv(a))
    by_g, by_h = (matmul(matmul(w, transpose(x)), w) for x in (g, h))
    along_g, along_h = _inner(g, w), _inner(h, w)
    twice = matmul(matmul(by_g, transpose(h)), w) + matmul(matmul(by_h, transpose(g)), w)
    total = (along_g * along_h - _inner(h, by_g)) * w - along_h * by_g - along_g * by_h + twice
    determinant = reshape(apply(DET, a), (*a.shape[:-2], 1, 1))
    return determinant * total, apply(COFACTORS_GRADIENT, a, h)


def _cofactors_gradient_reference(a: Any, g: Any) -> Any:
    w = np.swapaxes(np.linalg.inv(a), -1, -2)
    along = (g * w).sum((-2, -1), keepdims=True)
    return np.linalg.det(a)[..., None, None] * (along * w - w @ np.swapaxes(g, -1, -2) @ w)


COFACTORS_GRADIENT = Operation(  # the derivatives of ⟨G, cofactors(A)⟩ by the elements of A
    name="cofactors_gradient",
    infer=_gradient_infer,
    axes=stacked_axes,
    reduction=None,
    vjp=_cofactors_gradient_vjp,
    kernel=unreachable,
    native=None,
    reference=_cofactors_gradient_reference,
    flops=no_flops,
    checked=CHECKED_MATRIX,
    expansion=_cofactors_gradient_expansion,
)


def _det_vjp(node: Node, g: Node) -> Gradients:
    (a,) = node.inputs
    return (reshape(g, (*g.shape, 1, 1)) * apply(COFACTORS, a),)


def _of_small(node: Node) -> Callable[..., object] | None:
    """Return NumPy's function for small matrices."""
    return by_reference(node) if node.inputs[0].size <= MAX_SMALL else None


DET = Operation(
    name="det",
    infer=square_infer("det", lambda shape: shape[:-2]),
    axes=stacked_axes,
    reduction=None,
    vjp=_det_vjp,
    kernel=unreachable,
    native=None,
    reference=np.linalg.det,
    numpy_function=_of_small,
    flops=no_flops,
    checked=CHECKED_MATRIX,
    expansion=lambda node: _determinant(*_pivots(node.inputs[0])),
)


def _slogdet_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim - 1]
    return f"{letters}..->{letters}."


def _slogdet_expansion(node: Node) -> Node:
    sign, pivots = _pivots(node.inputs[0])
    parts = _product(sign, call("sign", pivots)), astype(_log_size(pivots), node.dtype)
    return apply(CONCAT, *[reshape(x, (*x.shape, 1)) for x in parts], axis=node.ndim - 1)


def slogdet_parts(packed: Node) -> tuple[Node, Node]:
    """Return the sign of the determinant and the logarithm of its absolute value."""
    sign, log = (
        reshape(slice_along(packed, packed.ndim - 1, i, i + 1), packed.shape[:-1]) for i in (0, 1)
    )
    return sign, real(log)


def _slogdet_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangent. The logarithm changes by Re tr(A⁻¹·dA), a complex sign by Im tr(A⁻¹·dA)
    times i times the sign."""
    (a,) = node.inputs
    sign, _ = slogdet_parts(node)
    by_sign, by_log = slogdet_parts(g)
    scalars = astype(by_log, a.dtype)
    if node.dtype.kind == "complex":
        turn = real(by_sign * sign * 1j)
        scalars = scalars + astype(turn, node.dtype) * -1j
    return (_by_matrix(scalars, a),)


SLOGDET = Operation(  # det(A) / |det(A)|, 0 for a singular matrix, and log |det(A)|
    name="slogdet",
    infer=square_infer("slogdet", lambda shape: (*shape[:-2], 2)),
    axes=_slogdet_axes,
    reduction=None,
    vjp=_slogdet_vjp,
    kernel=unreachable,
    native=None,
    reference=lambda a: np.stack(np.linalg.slogdet(a), -1),
    numpy_function=_of_small,
    flops=no_flops,
    checked=CHECKED_MATRIX,
    expansion=_slogdet_expansion,
)

OPERATIONS = {
    operation.name: operation for operation in (PARITY, COFACTORS, COFACTORS_GRADIENT, DET, SLOGDET)
}
