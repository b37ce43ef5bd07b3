"""Linear systems and inverses, which are computed by factorizations.

The expand pass replaces a solution by a factorization after differentiation; an inverse has a
kernel, and may be replaced by a solution that several workers compute. They are records because of
their gradients: the gradient of a solution is another solution and does not need the gradient of
the factors. A factorization that several of them need, for instance a solution and its gradient, is
computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout
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
from magmath.ops.linalg.matrix_algebra import CHECKED_MATRIX, identity_matrix
from magmath.ops.manipulation import transpose
from magmath.ops.product.contraction import matmul
from magmath.ops.shared_fields import no_flops, unreachable

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
        from magmath.kernels.linalg.lapack import singular_error

        raise singular_error(operation) from None


SOLVE = Operation(
    name="solve",
    infer=_solve_infer,
    axes=columns_axes,
    reduction=None,
    vjp=_solve_vjp,
    kernel=unreachable,
    native=None,
    reference=_solve_reference,
    flops=no_flops,
    numpy_function=_numpy_solve,
    checked=CHECKED_MATRIX,
    expansion=lambda node: lu_solve(
        lu(node.inputs[0]), node.inputs[1], transpose=node.attributes["transpose"]
    ),
)


def solve(a: Node, b: Node, *, transpose: bool = False) -> Node:
    """Return a⁻¹·b, or a⁻ᵀ·b, for (…, n, n) and (…, n, k)."""
    return apply(SOLVE, a, b, transpose=transpose)


def _inv_vjp(node: Node, g: Node) -> Gradients:
    transposed = transpose(node)
    return (-matmul(matmul(transposed, g), transposed),)


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
    checked=CHECKED_MATRIX,
)


def inv(a: Node) -> Node:
    """Return a⁻¹, (…, n, n)."""
    return apply(INV, a)


OPERATIONS = {operation.name: operation for operation in (SOLVE, INV)}
