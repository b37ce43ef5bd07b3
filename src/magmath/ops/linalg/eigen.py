"""Eigenvalues, as LAPACK computes them, packed like the other factorizations.

The results are eigenvalues over eigenvectors; `eigen_parts` separates them. Equal eigenvalues do
not determine their vectors: the gradient is then that of fixed ones, correct for results of the
values, or of the space of these vectors; docs/numpy.md has an exception. Gradients follow Giles
(2008), and Boeddeker et al. (2017) for eig.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.core.dtypes import complex_dtype, real_dtype
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.elementwise import astype, call, conj, real, where
from magmath.ops.leaves import constant
from magmath.ops.linalg.distributed_svd import bind_eigh, bind_eigvalsh, collective_spectrum
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
    hermitian_part,
    identity_matrix,
    real_diagonal,
    rows,
)
from magmath.ops.linalg.solvers import solve
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.product.contraction import matmul


def _packed_shape(shape: Shape) -> Shape:
    """Return the shape of the eigenvalues over the eigenvectors."""
    return (*shape[:-2], shape[-1] + 1, shape[-1])


def _values_shape(shape: Shape) -> Shape:
    return shape[:-1]


def eigen_parts(packed: Node) -> tuple[Node, Node]:
    """Return the eigenvalues, (…, 1, n), and the eigenvectors as columns, (…, n, n)."""
    n = packed.shape[-1]
    return rows(packed, 0, 1), rows(packed, 1, n + 1)


def reciprocal_differences(values: Node) -> Node:
    """Return 1 / (λⱼ - λᵢ) at (i, j), and 0 where they are equal, for a row (…, 1, n)."""
    differences = values - transpose(values)
    zero, one = constant(0, values.dtype), constant(1, values.dtype)
    equal = call("equal", differences, zero)
    return where(equal, zero, one / where(equal, one, differences))


def _eigh_vjp(node: Node, g: Node) -> Gradients:
    """Return the Hermitian part of Ā = V·(diag(λ̄) + F∘(VᴴV̄))·Vᴴ, with Fᵢⱼ = 1/(λⱼ - λᵢ)."""
    (values, vectors), (by_values, by_vectors) = eigen_parts(node), eigen_parts(conj(g))
    n = node.shape[-1]
    inner = reciprocal_differences(values) * matmul(adjoint(vectors), by_vectors)
    middle = inner + identity_matrix(n, n, node) * by_values
    return (conj(hermitian_part(matmul(matmul(vectors, middle), adjoint(vectors)))),)


def _eigh_reference(a: Any) -> Any:
    values, vectors = np.linalg.eigh(a)
    return np.concatenate([values[..., None, :], vectors], -2)


EIGH = Operation(  # the row of eigenvalues over the eigenvectors; reads the lower triangle
    name="eigh",
    infer=square_infer("eigh", _packed_shape),
    axes=stacked_axes,
    reduction=None,
    vjp=_eigh_vjp,
    kernel=lapack("eigh"),
    numpy_function=small_matrices("eigh"),
    native=None,
    reference=_eigh_reference,
    flops=lambda node: 9.0 * matrix_count(node) * node.shape[-1] ** 3,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=collective_spectrum(bind_eigh, sums=1, passes=1),
)


def _eigvalsh_vjp(node: Node, g: Node) -> Gradients:
    (a,) = node.inputs
    _, vectors = eigen_parts(apply(EIGH, a))
    by_values = astype(reshape(g, (*g.shape[:-1], 1, g.shape[-1])), a.dtype)
    return (conj(hermitian_part(matmul(vectors * by_values, adjoint(vectors)))),)


EIGVALSH = Operation(
    name="eigvalsh",
    infer=square_infer("eigvalsh", _values_shape, real_dtype),
    axes=stacked_axes,
    reduction=None,
    vjp=_eigvalsh_vjp,
    kernel=lapack("eigvalsh"),
    numpy_function=small_matrices("eigvalsh"),
    native=None,
    reference=np.linalg.eigvalsh,
    flops=lambda node: 4 / 3 * matrix_count(node) * node.shape[-1] ** 3,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
    collective=collective_spectrum(bind_eigvalsh, sums=1, passes=1),
)


def _eig_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā = V⁻ᴴ·(diag(λ̄) + (VᴴV̄ - VᴴV·Re diag(VᴴV̄)) / (λⱼ - λᵢ)*)·Vᴴ.

    The columns of V have norm 1.
    """
    (a,) = node.inputs
    (values, vectors), (by_values, by_vectors) = eigen_parts(node), eigen_parts(conj(g))
    n = node.shape[-1]
    mixed = matmul(adjoint(vectors), by_vectors)
    along = matmul(matmul(adjoint(vectors), vectors), real_diagonal(mixed))
    inner = conj(reciprocal_differences(values)) * (mixed - along)
    middle = inner + identity_matrix(n, n, node) * by_values
    solved = solve(adjoint(vectors), matmul(middle, adjoint(vectors)))
    by_a = conj(solved)
    return (by_a if a.dtype is by_a.dtype else real(by_a),)


def _eig_reference(a: Any) -> Any:
    values, vectors = np.linalg.eig(a)
    return np.concatenate([values[..., None, :], vectors], -2).astype(_complex_name(a))


def _complex_name(a: Any) -> str:
    return "complex64" if np.asarray(a).dtype.name in ("float32", "complex64") else "complex128"


EIG = Operation(  # the row of eigenvalues over the eigenvectors, complex, in any order
    name="eig",
    infer=square_infer("eig", _packed_shape, complex_dtype),
    axes=stacked_axes,
    reduction=None,
    vjp=_eig_vjp,
    kernel=lapack("eig", tuned=False),
    numpy_function=small_matrices("eig", tuned=False),
    native=None,
    reference=_eig_reference,
    flops=lambda node: 25.0 * matrix_count(node) * node.shape[-1] ** 3,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
)


def _eigvals_vjp(node: Node, g: Node) -> Gradients:
    """Return Ā = V⁻ᴴ·diag(λ̄)·Vᴴ."""
    (a,) = node.inputs
    _, vectors = eigen_parts(apply(EIG, a))
    by_values = conj(reshape(g, (*g.shape, 1)))
    by_a = conj(solve(adjoint(vectors), by_values * adjoint(vectors)))
    return (by_a if a.dtype is by_a.dtype else real(by_a),)


EIGVALS = Operation(
    name="eigvals",
    infer=square_infer("eigvals", _values_shape, complex_dtype),
    axes=stacked_axes,
    reduction=None,
    vjp=_eigvals_vjp,
    kernel=lapack("eigvals", tuned=False),
    numpy_function=small_matrices("eigvals", tuned=False),
    native=None,
    reference=lambda a: np.linalg.eigvals(a).astype(_complex_name(a)),
    flops=lambda node: 10.0 * matrix_count(node) * node.shape[-1] ** 3,
    uses_lapack=True,
    checked=CHECKED_MATRIX,
)

OPERATIONS = {operation.name: operation for operation in (EIGH, EIGVALSH, EIG, EIGVALS)}
