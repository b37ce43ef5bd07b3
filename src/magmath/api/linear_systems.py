"""Linear systems and what they define: solutions, inverses, determinants, least squares, ranks.

`api/linalg.py` describes the matrices and their types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from magmath.arrays.array import Array, as_array, as_arrays, floating
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import int64, real_dtype
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import broadcast, normalize_axis, size_of
from magmath.engine.user_line import user_line
from magmath.errors import MatrixShapeError, OptionError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, scalar
from magmath.ops.linalg import determinants, least_squares, solvers
from magmath.ops.linalg.lapack import check_matrix, check_type
from magmath.ops.linalg.matrix_algebra import identity_matrix
from magmath.ops.linalg.svd import SVDVALS
from magmath.ops.linalg.triangular import SOLVE_TRIANGULAR
from magmath.ops.manipulation import permute, reshape
from magmath.ops.product.contraction import matmul as product
from magmath.ops.reductions import reduce
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to, sum_


@final
class SlogdetResult(NamedTuple):
    """det(x) = sign · exp(logabsdet)."""

    sign: Array
    logabsdet: Array


@final
class LstsqResult(NamedTuple):
    """The solution, sums of squared residuals (…, k), ranks, and singular values of the matrix."""

    solution: Array
    residuals: Array
    rank: Array
    singular_values: Array


@final
class _System(NamedTuple):
    """Matrices (…, m, n) and columns (…, m, k) of one type, whose stacks fit each other."""

    matrix: Node
    right: Node
    is_vector: bool

    def in_form_of_right(self, x: Node) -> Array:
        """Return a solution (…, n, k), without its last dimension if there was one vector."""
        return Array(reshape(x, x.shape[:-1]) if self.is_vector else x)


def _system(name: str, x1: Array, x2: Array, *, square: bool = False) -> _System:
    a, b = (e.astype(x, floating_dtype(x.dtype)) for x in promoted_nodes(name, x1, x2))
    check_matrix(name, a, square=square)
    if b.ndim == 0 or a.shape[-2] != b.shape[-2 if b.ndim > 1 else 0]:
        raise MatrixShapeError(
            f"{name}: needs (…, m, n) and (m,) or (…, m, k), was given {a.shape} and {b.shape}"
            f"; give a right side of {a.shape[-2]} rows"
        )
    is_vector = b.ndim == 1
    b = reshape(b, (*b.shape, 1)) if is_vector else b
    broadcast(name, a.shape[:-2], b.shape[:-2])
    return _System(a, b, is_vector)


def _with_one_stack(name: str, a: Node, b: Node) -> tuple[Node, Node]:
    """Return matrices and right-hand sides, repeated to stacks of the same shape."""
    stack = broadcast(name, a.shape[:-2], b.shape[:-2])
    return broadcast_to(a, (*stack, *a.shape[-2:])), broadcast_to(b, (*stack, *b.shape[-2:]))


def _solved(name: str, x1: Array, x2: Array, solve: Callable[[Node, Node], Node]) -> Array:
    """Return the solution by a function of square matrices and columns with stacks of one shape.

    The dimensions of right-hand sides that have one matrix become columns: it is factorized once.
    """
    system = _system(name, x1, x2, square=True)
    ndim = max(system.matrix.ndim, system.right.ndim)
    a, b = (reshape(x, (1,) * (ndim - x.ndim) + x.shape) for x in system[:2])
    joined = [d for d in range(ndim - 2) if a.shape[d] == 1 < b.shape[d]]
    kept = [d for d in range(ndim - 2) if d not in joined]
    order = (*kept, ndim - 2, *joined, ndim - 1)
    b = permute(b, order)
    columns = b.shape[len(kept) + 1 :]
    a = reshape(a, (*[a.shape[d] for d in kept], *a.shape[-2:]))
    b = reshape(b, (*b.shape[: len(kept) + 1], size_of(columns)))
    x = solve(*_with_one_stack(name, a, b))
    x = permute(reshape(x, (*x.shape[:-1], *columns)), tuple([order.index(d) for d in range(ndim)]))
    return system.in_form_of_right(x)


@dispatch_cached
def solve(a: Array, b: Array) -> Array:
    """Return x with a·x = b, for a vector (n,) or columns (…, n, k), by LU with partial pivoting.

    A matrix for which b has a stack of columns is factorized once. Raises LinAlgError if `a` is
    singular.
    """
    line = user_line()
    return _solved(
        "solve", a, b, lambda a, b: apply(solvers.SOLVE, a, b, transpose=False, line=line)
    )


@dispatch_cached
def solve_triangular(
    x1: Array,
    x2: Array,
    /,
    *,
    lower: bool = False,
    transpose: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Return x with x1·x = x2, or with `transpose` x1ᵀ·x = x2; reads one triangle of x1.

    Raises LinAlgError if its diagonal has a zero; with `unit_diagonal` the diagonal is not read.
    """
    options = {"lower": lower, "transpose": transpose, "unit": unit_diagonal}
    line = user_line()
    return _solved(
        "solve_triangular", x1, x2, lambda a, b: apply(SOLVE_TRIANGULAR, a, b, **options, line=line)
    )


@dispatch_cached
def inv(a: Array) -> Array:
    """Return the inverse. Raises LinAlgError if `a` is singular."""
    return Array(apply(solvers.INV, floating("inv", a).node, line=user_line()))


@dispatch_cached
def det(a: Array) -> Array:
    """Return the determinant. Its first and second gradients exist for singular matrices too."""
    return Array(apply(determinants.DET, floating("det", a).node, line=user_line()))


@dispatch_cached
def slogdet(a: Array) -> SlogdetResult:
    """Return the sign of the determinant (of length 1 or 0) and the log of its absolute value.

    The gradient raises LinAlgError if `a` is singular.
    """
    x = floating("slogdet", a).node
    sign, log = determinants.slogdet_parts(apply(determinants.SLOGDET, x, line=user_line()))
    return SlogdetResult(Array(sign), Array(log))


@dispatch_cached
def pinv(
    a: Array, rcond: Any = None, hermitian: bool = False, *, rtol: float | Array | None = None
) -> Array:
    """Return the Moore-Penrose inverse; singular values up to rtol times the largest count as zero.

    rtol: a number, or one for each matrix; max(m, n) · eps by default, eps for a negative number,
    such as NumPy's -1. NumPy also names it rcond.
    `hermitian` is not needed.
    """
    x = floating("pinv", a).node
    if rcond is not None and rtol is not None:
        raise OptionError("pinv: rtol and rcond are two names of one number; pass one of them")
    tolerance = _tolerance("pinv", x, rcond if rtol is None else rtol)
    return Array(apply(least_squares.PINV, x, tolerance, line=user_line()))


@dispatch_cached
def lstsq(
    a: Array, b: Array, rcond: Any = None, *, rtol: float | Array | None = None
) -> LstsqResult:
    """Return the least-squares solution x of a·x = b, the one of smallest norm; `rtol` as for
    `pinv`.

    The sums of squared residuals are one number for each right-hand side; none if a matrix has at
    most as many rows as columns.
    """
    system = _system("lstsq", a, b)
    matrix, right = _with_one_stack("lstsq", *system[:2])
    tolerance = _tolerance("lstsq", matrix, rcond if rtol is None else rtol)
    x = apply(least_squares.LSTSQ, matrix, right, tolerance, line=user_line())
    squares = e.squared_sizes(e.subtract(product(matrix, x), right))
    residuals = sum_(squares, (matrix.ndim - 2,))
    s = apply(SVDVALS, matrix, line=user_line())
    if matrix.ndim == 2 and matrix.shape[0] <= matrix.shape[1]:
        residuals = slice_along(residuals, 0, 0, 0)  # as in NumPy, also for one right-hand side
    elif system.is_vector and matrix.ndim > 2:
        residuals = reshape(residuals, residuals.shape[:-1])
    return LstsqResult(
        system.in_form_of_right(x), Array(residuals), Array(_rank(s, tolerance)), Array(s)
    )


def _tolerance(name: str, a: Node, rtol: float | Array | None) -> Node:
    """Return the relative tolerance, one number for each matrix."""
    check_type(name, a)
    check_matrix(name, a)
    eps = float(np.finfo(real_dtype(a.dtype).name).eps)
    if rtol is None:
        rtol = max(*a.shape[-2:], 1) * eps
    elif isinstance(rtol, (int, float, np.number)) and not rtol >= 0:
        rtol = eps
    return _for_each(name, a, rtol)


def _for_each(name: str, a: Node, tolerance: Any) -> Node:
    """Return a tolerance as one number for each matrix."""
    dtype = real_dtype(a.dtype)
    if isinstance(tolerance, (int, float, np.number)):
        node = scalar(float(tolerance), dtype)
    else:
        node = as_array(name, tolerance, dtype).node
    return broadcast_to(node, a.shape[:-2])


def _rank(s: Node, tolerance: Node) -> Node:
    largest = slice_along(s, s.ndim - 1, 0, min(s.shape[-1], 1))
    limit = e.multiply(largest, reshape(tolerance, (*tolerance.shape, 1)))
    return _above(s, limit)


def _above(s: Node, limit: Node) -> Node:
    """Return the number of singular values above a limit, one for each matrix."""
    if limit.ndim < s.ndim:
        limit = reshape(limit, (*limit.shape, 1))
    return sum_(e.astype(e.call("greater", s, limit), int64), (s.ndim - 1,))


@dispatch_cached
def matrix_rank(
    A: Array, tol: Any = None, *, rtol: float | Array | None = None, hermitian: bool = False
) -> Array:
    """Return the number of singular values above rtol times the largest; `rtol` as for `pinv`.

    `tol`, of NumPy, is an absolute limit instead. `hermitian` is not needed. As in NumPy, an array
    of fewer than two dimensions has rank 1 if any element is not zero, otherwise 0.
    """
    a = floating("matrix_rank", A).node
    if a.ndim < 2:
        is_nonzero = e.call("not_equal", a, constant(0, a.dtype))
        return Array(e.astype(reduce("any", is_nonzero, tuple(range(a.ndim))), int64))
    if tol is not None and rtol is not None:
        raise OptionError(
            "matrix_rank: tol and rtol are both given; give the absolute or the relative one"
        )
    tolerance = _tolerance("matrix_rank", a, rtol)
    s = apply(SVDVALS, a, line=user_line())
    if tol is None:
        return Array(_rank(s, tolerance))
    return Array(_above(s, _for_each("matrix_rank", a, tol)))


@dispatch_cached
def matrix_power(a: Array, n: int) -> Array:
    """Return `a` to the power n; for negative n a power of the inverse."""
    x = as_array("matrix_power", a).node
    if not hasattr(n, "__index__"):
        raise TypeError(
            f"matrix_power: the power is an integer, was given {n!r}"
            "; for a square root use mm.linalg.eigh"
        )
    check_matrix("matrix_power", x, square=True)
    if n < 0:
        x, n = apply(solvers.INV, e.astype(x, floating_dtype(x.dtype)), line=user_line()), -n
    result: Node | None = None
    while n:
        if n & 1:
            result = x if result is None else product(result, x)
        n >>= 1
        if n:
            x = product(x, x)
    n_rows = x.shape[-1]
    one = identity_matrix(n_rows, n_rows, x)
    return Array(broadcast_to(one, x.shape) if result is None else result)


def tensorsolve(a: Array, b: Array, axes: Sequence[int] | None = None) -> Array:
    """Return the x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to the end first."""
    x, right = as_arrays("tensorsolve", a, b)
    if axes is not None:
        last = [normalize_axis("tensorsolve", axis, x.ndim) for axis in axes]
        x = Array(permute(x.node, (*(d for d in range(x.ndim) if d not in last), *last)))
    shape = x.shape[right.ndim :]
    if x.size != right.size**2:
        raise MatrixShapeError(
            f"tensorsolve: the extents that are solved for, {shape}, must have the product "
            f"{right.size}"
            "; move the axes of the solution to the end, or name them with axes=…"
        )
    matrix = Array(reshape(x.node, (right.size, right.size)))
    solution = solve(matrix, Array(reshape(right.node, (right.size,))))
    return Array(reshape(solution.node, shape))


def tensorinv(a: Array, ind: int = 2) -> Array:
    """Return the inverse of a tensor as a linear map of its last axes to its first `ind` ones."""
    x = as_array("tensorinv", a)
    if ind < 1:
        raise OptionError(
            f"tensorinv: ind is the number of first axes, at least 1, was given {ind}"
        )
    first, last = x.shape[:ind], x.shape[ind:]
    n = size_of(first)
    if n != size_of(last):
        raise MatrixShapeError(
            f"tensorinv: the first {ind} and the other extents of {x.shape} must have equal "
            f"products"
            "; choose `ind` so that they do"
        )
    inverse = inv(Array(reshape(x.node, (n, n))))
    return Array(reshape(inverse.node, (*last, *first)))
