"""Basic matrix algebra on nodes: transposes, triangles, diagonals, the identity.

All functions except `diagonal` are compositions. Matrices are the last two dimensions; the
dimensions before them are a stack of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import CheckedOperands, Gradients, Line
from magmath.layout import Layout
from magmath.ops.creation import iota
from magmath.ops.elementwise import astype, call, conj, real, where
from magmath.ops.index_letters import LETTERS
from magmath.ops.indexing.along_axis import TAKE_ALONG
from magmath.ops.kernel_binding import as_signed, by_reference
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape, transpose
from magmath.ops.shared_fields import no_flops
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to


def adjoint(x: Node) -> Node:
    """Return xᴴ, the conjugate transpose."""
    return conj(transpose(x))


def matrix_transpose(x: Node) -> Node:
    """Exchange the last two axes. Raises ShapeError for fewer than 2 dimensions."""
    if x.ndim < 2:
        raise ShapeError(
            f"matrix_transpose: needs 2 or more dimensions, was given {x.shape}"
            "; add one with mm.expand_dims(x, 0)"
        )
    return transpose(x)


def rows(x: Node, start: int, stop: int) -> Node:
    """Return rows start … stop - 1."""
    return slice_along(x, x.ndim - 2, start, stop)


def columns(x: Node, start: int, stop: int) -> Node:
    """Return columns start … stop - 1."""
    return slice_along(x, x.ndim - 1, start, stop)


def _compare_indices(comparison: str, m: int, n: int) -> Node:
    """Compare row numbers with column numbers; return (m, n) booleans."""
    return call(comparison, iota((m, 1), 0, int64), iota((1, n), 1, int64))


def triangle(x: Node, *, lower: bool, strict: bool = False) -> Node:
    """Return one triangle of x, with its diagonal unless `strict`, and zeros elsewhere."""
    comparison = ("greater" if lower else "less") + ("" if strict else "_equal")
    return where(_compare_indices(comparison, *x.shape[-2:]), x, constant(0, x.dtype))


def diagonal_part(x: Node) -> Node:
    """Return the diagonal of x, and zeros elsewhere."""
    return where(_compare_indices("equal", *x.shape[-2:]), x, constant(0, x.dtype))


def identity_matrix(m: int, n: int, like: Node) -> Node:
    """Return ones on the diagonal, (m, n), of the type of `like`."""
    return astype(_compare_indices("equal", m, n), like.dtype)


def _identity_of(node: Node, position: int) -> Node:
    matrix = node.inputs[position]
    return identity_matrix(matrix.shape[-2], matrix.shape[-1], matrix)


CHECKED_MATRIX = CheckedOperands(positions=lambda node: (0,), harmless=_identity_of)
"""The matrix of an operation that a singular or infinite one makes fail (LinAlgError)."""


def real_diagonal(x: Node) -> Node:
    """Return the real part of the diagonal, and zeros elsewhere."""
    return diagonal_part(astype(real(x), x.dtype))


def hermitian_from_lower(x: Node) -> Node:
    """Return the Hermitian matrix of the lower triangle of x and the real part of its diagonal."""
    strict = triangle(x, lower=True, strict=True)
    return strict + adjoint(strict) + real_diagonal(x)


def hermitian_part(x: Node) -> Node:
    """Return (x + xᴴ) / 2: if x is the gradient with respect to any matrix, that with respect to a
    Hermitian one.

    As in PyTorch and JAX, it is Hermitian too, so that steps of gradient descent keep a matrix
    Hermitian, although the function reads one triangle only.
    """
    return (x + adjoint(x)) * constant(0.5, x.dtype)


# the diagonal -------------------------------------------------------------------------------------


def _diagonal_infer(x: Node) -> tuple[Shape, DType]:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"diagonal: needs square matrices (…, n, n), was given {x.shape}"
            "; slice it to square matrices"
        )
    return x.shape[:-1], x.dtype


def _diagonal_kernel(call: KernelCall) -> BoundCall:
    import torch

    x, out, rows_here = as_signed(call.inputs[0]), as_signed(call.out), call.tile[-1]
    if rows_here.stop - rows_here.start == len(rows_here):
        view = torch.diagonal(x, offset=rows_here.start, dim1=-2, dim2=-1)
        return lambda: out.copy_(view)
    positions = torch.from_numpy(rows_here.indices()).to(x.device)[:, None].expand(*x.shape[:-1], 1)
    target = out[..., None]
    return lambda: torch.gather(x, -1, positions, out=target)


def _diagonal_decompositions(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the diagonal as one indexed element per row, for a matrix split by columns.

    The worker that stores an element contributes it.
    """
    (x,) = node.inputs
    position = iota((*x.shape[:-1], 1), x.ndim - 2)
    return (reshape(apply(TAKE_ALONG, x, position, axis=x.ndim - 1), node.shape),)


def _diagonal_vjp(node: Node, g: Node) -> Gradients:
    return (diagonal_part(broadcast_to(reshape(g, (*g.shape, 1)), node.inputs[0].shape)),)


DIAGONAL = Operation(
    name="diagonal",
    infer=_diagonal_infer,
    axes=lambda node: f"{LETTERS[: node.ndim]}.->{LETTERS[: node.ndim]}",
    reduction=None,
    vjp=_diagonal_vjp,
    kernel=_diagonal_kernel,
    native=None,
    reference=lambda x: np.diagonal(x, axis1=-2, axis2=-1),
    numpy_function=by_reference,
    flops=no_flops,
    decompositions=_diagonal_decompositions,
    reads_subset=True,
)


def diagonal(x: Node, offset: int = 0, line: Line = None) -> Node:
    """Return the elements (i, i + offset) of matrices as vectors, (…, n)."""
    m, n = x.shape[-2:]
    first_row, first_column = max(-offset, 0), max(offset, 0)
    length = max(min(m - first_row, n - first_column), 0)
    if length == 0:
        first_row = first_column = 0
    square = rows(x, first_row, first_row + length)
    square = columns(square, first_column, first_column + length)
    return apply(DIAGONAL, square, line=line)


def with_diagonal(x: Node, values: Node) -> Node:
    """Return square matrices with the elements (i, i) replaced by vectors (…, n)."""
    columns_ = broadcast_to(reshape(values, (*values.shape, 1)), x.shape)
    return where(_compare_indices("equal", *x.shape[-2:]), columns_, x)


OPERATIONS = {"diagonal": DIAGONAL}
