"""Linear systems, inverses and determinants: records that the passes expand into factorizations.

They are records because of their gradients: the gradient of a solution is another solution and does
not need the gradient of the factors. A factorization that several of them need, for instance a
solution and its gradient, is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, real_dtype
from magmath.core.type_aliases import ReadyCall
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import astype, call, real, where
from magmath.ops.infer_rules import LETTERS, no_gradient
from magmath.ops.leaves import constant
from magmath.ops.linalg.lapack import (
    check_system,
    check_type,
    columns_axes,
    lapack,
    matrix_count,
    square_infer,
    stacked_axes,
)
from magmath.ops.linalg.lu import lu, lu_solve
from magmath.ops.linalg.matrix_algebra import diagonal, identity_matrix, rows
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.product.contraction import matmul
from magmath.ops.reductions import BY_NAME
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to, sum_


def no_kernel(call: KernelCall) -> ReadyCall:
    """Raise AssertionError: the kernel of operations that the passes expand."""
    raise AssertionError("the passes expand this operation")


# solve and inv ------------------------------------------------------------------------------------


def _solve_infer(a: Node, b: Node, *, transpose: bool) -> tuple[Shape, DType]:
    check_type("solve", a, b)
    check_system("solve", a, b)
    return b.shape, b.dtype


def _solve_vjp(node: Node, g: Node) -> Gradients:
    """Return B̄ = op(A)⁻ᵀ·G and Ā = -B̄·Xᵀ (transposed for a transposed A)."""
    a, flip = node.inputs[0], node.attributes["transpose"]
    by_b = solve(a, g, transpose=not flip)
    outer = matmul(node, transpose(by_b)) if flip else matmul(by_b, transpose(node))
    return -outer, by_b


def _solve_reference(a: Any, b: Any, *, transpose: bool) -> Any:
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transpose else a, b)


def _numpy_solve(node: Node) -> Callable[..., object]:
    """Return LAPACK's solution of small systems, by NumPy."""
    transposed = node.attributes["transpose"]

    def solve_into(a: Any, b: Any, out: Any) -> None:
        with _naming("solve"):
            out[...] = np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b)

    return solve_into


@contextmanager
def _naming(operation: str) -> Iterator[None]:
    """Raise NumPy's error for a singular matrix in the name of an operation."""
    try:
        yield
    except np.linalg.LinAlgError:
        from magmath.kernels.linalg.lapack import singular_matrix

        raise singular_matrix(operation) from None


SOLVE = Operation(
    name="solve",
    infer=_solve_infer,
    axes=columns_axes,
    reduction=None,
    vjp=_solve_vjp,
    kernel=no_kernel,
    native=None,
    reference=_solve_reference,
    flops=lambda node: 0.0,
    numpy_function=_numpy_solve,
    lower_to=lambda node: lu_solve(
        lu(node.inputs[0]), node.inputs[1], transpose=node.attributes["transpose"]
    ),
)


def solve(a: Node, b: Node, *, transpose: bool = False) -> Node:
    """Return a⁻¹·b, or a⁻ᵀ·b, for (…, n, n) and (…, n, k)."""
    return apply(SOLVE, a, b, transpose=transpose)


def _inv_vjp(node: Node, g: Node) -> Gradients:
    turned = transpose(node)
    return (-matmul(matmul(turned, g), turned),)


def _by_solution(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the solution with the identity, which workers can compute collectively."""
    (a,) = node.inputs
    if a.ndim != 2 or not a.size or all(layout.mesh.size == 1 for layout in layouts):
        return ()
    n = a.shape[-1]
    return (lu_solve(lu(a), identity_matrix(n, n, a)),)


def _numpy_inv(node: Node) -> Callable[..., object]:
    """Return LAPACK's inverse of small matrices, by NumPy."""

    def invert_into(a: Any, out: Any) -> None:
        with _naming("inv"):
            out[...] = np.linalg.inv(a)

    return invert_into


INV = Operation(
    name="inv",
    infer=square_infer("inv"),
    axes=stacked_axes,
    reduction=None,
    vjp=_inv_vjp,
    kernel=lapack("inv"),
    native=None,
    reference=np.linalg.inv,
    flops=lambda node: 2.0 * matrix_count(node) * node.shape[-1] ** 3,
    decompositions=_by_solution,
    numpy_function=_numpy_inv,
    uses_lapack=True,
)


def inv(a: Node) -> Node:
    """Return a⁻¹, (…, n, n)."""
    return apply(INV, a)


# determinants -------------------------------------------------------------------------------------


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
    along = apply(BY_NAME["prod"], numbers, axis=(numbers.ndim - 1,), keepdims=False)
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


def _cofactors_expanded(node: Node) -> Node:
    """Return det(A)·A⁻ᵀ, with zero pivots replaced by rounding errors.

    Both factors have the same pivots, so that a small one cancels. The cofactors are continuous:
    those of a singular matrix are those of a regular one close to it.
    """
    (a,) = node.inputs
    if not a.size:
        return a
    packed, n, dtype = lu(a), a.shape[-1], real_dtype(a.dtype)
    sign, pivots = _pivots(a)
    largest = apply(BY_NAME["max"], call("abs", a), axis=(a.ndim - 2, a.ndim - 1), keepdims=True)
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
    """Return det(A)·(⟨G, A⁻ᵀ⟩·A⁻ᵀ - A⁻ᵀ·Gᵀ·A⁻ᵀ), which needs a regular matrix."""
    (a,) = node.inputs
    inverse = transpose(inv(a))
    along = sum_(g * inverse, (a.ndim - 2, a.ndim - 1))
    determinant = apply(DET, a)
    first, second = (reshape(x, (*a.shape[:-2], 1, 1)) for x in (determinant * along, determinant))
    return (first * inverse - second * matmul(matmul(inverse, transpose(g)), inverse),)


def _cofactors_reference(a: Any) -> Any:
    return np.linalg.det(a)[..., None, None] * np.swapaxes(np.linalg.inv(a), -1, -2)


COFACTORS = Operation(  # the derivatives of det(A) by the elements of A
    name="cofactors",
    infer=square_infer("inv"),
    axes=stacked_axes,
    reduction=None,
    vjp=_cofactors_vjp,
    kernel=no_kernel,
    native=None,
    reference=_cofactors_reference,
    flops=lambda node: 0.0,
    lower_to=_cofactors_expanded,
)


def _det_vjp(node: Node, g: Node) -> Gradients:
    (a,) = node.inputs
    return (reshape(g, (*g.shape, 1, 1)) * apply(COFACTORS, a),)


DET = Operation(
    name="det",
    infer=square_infer("det", lambda shape: shape[:-2]),
    axes=stacked_axes,
    reduction=None,
    vjp=_det_vjp,
    kernel=no_kernel,
    native=None,
    reference=np.linalg.det,
    flops=lambda node: 0.0,
    lower_to=lambda node: _determinant(*_pivots(node.inputs[0])),
)


def _slogdet_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim - 1]
    return f"{letters}..->{letters}."


def _slogdet_expanded(node: Node) -> Node:
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
    kernel=no_kernel,
    native=None,
    reference=lambda a: np.stack(np.linalg.slogdet(a), -1),
    flops=lambda node: 0.0,
    lower_to=_slogdet_expanded,
)

OPERATIONS = {
    operation.name: operation for operation in (SOLVE, INV, PARITY, COFACTORS, DET, SLOGDET)
}
