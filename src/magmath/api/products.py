"""Products of matrices, vectors and arrays of any dimensions, all computed as contractions."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.array.array import Array, Operand, as_array
from magmath.array.operands import operands
from magmath.core.shapes import broadcast, normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Node
from magmath.ops import contraction, matrix_algebra
from magmath.ops import elementwise as e
from magmath.ops.infer_rules import LETTERS


def matmul(x1: Operand, x2: Operand, /) -> Array:
    """Return the matrix product of (…, m, k) and (…, k, n), with broadcast leading dimensions.

    A 1-D operand is a row on the left and a column on the right. float16 and bfloat16 accumulate in
    float32. Raises ShapeError if the shapes do not fit, DTypeError for bool.
    """
    return Array(contraction.matmul(*operands("matmul", x1, x2), line=user_line()))


def matrix_transpose(x: Array, /) -> Array:
    """Return x with its last two axes exchanged."""
    return Array(matrix_algebra.matrix_transpose(as_array("matrix_transpose", x).node))


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return the sum over `axis` of conj(x1) · x2, with the other dimensions broadcast.

    `axis` counts from the end, from -1 to -min(x1.ndim, x2.ndim), or from the front if the operands
    have the same number of dimensions. Raises ShapeError for another axis, or if the shapes do not
    fit.
    """
    a, b = operands("vecdot", x1, x2)
    if not a.ndim or not b.ndim:
        raise ShapeError(f"vecdot: needs arrays of 1 or more dimensions, got {a.shape}, {b.shape}")
    if not hasattr(axis, "__index__"):
        raise TypeError(f"vecdot: the axis is an integer, was given {axis!r}")
    if not -min(a.ndim, b.ndim) <= axis < 0 and not (a.ndim == b.ndim and 0 <= axis < a.ndim):
        raise ShapeError(
            f"vecdot: needs an axis from -{min(a.ndim, b.ndim)} to -1, was given {axis} for shapes "
            f"{a.shape} and {b.shape}"
        )
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"vecdot: needs equal lengths along axis {axis}, was given {a.shape} and {b.shape}"
        )
    shape = broadcast("vecdot", a.shape, b.shape)
    letters = LETTERS[: len(shape)]
    summed = letters[axis]
    in_a, in_b = letters[len(shape) - a.ndim :], letters[len(shape) - b.ndim :]
    return Array(
        contraction.contraction(e.conj(a), in_a, b, in_b, letters.replace(summed, ""), user_line())
    )


def outer(x1: Array, x2: Array, /) -> Array:
    """Return the products of all elements of x1 (m,) with all of x2 (n,), of shape (m, n)."""
    a, b = operands("outer", x1, x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: needs two 1-D arrays, was given {a.shape} and {b.shape}")
    return Array(contraction.contraction(a, "a", b, "b", "ab", user_line()))


def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """Return the product summed over some dimensions of both operands.

    The result has the other dimensions of x1, then those of x2. `axes`: the dimensions to sum over,
    as two sequences that are paired in order, or as a number n: the last n of x1, in order, with
    the first n of x2. Raises ShapeError if they do not fit.
    """
    a, b = operands("tensordot", x1, x2)
    of_a, of_b = _paired_axes(axes, a, b)
    letters = iter(LETTERS)
    in_a = [next(letters) for _ in range(a.ndim)]
    in_b = [next(letters) for _ in range(b.ndim)]
    for i, j in zip(of_a, of_b, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {a.shape} and axis {j} of {b.shape} differ in length"
            )
        in_b[j] = in_a[i]
    free = [c for d, c in enumerate(in_a) if d not in of_a]
    free += [c for d, c in enumerate(in_b) if d not in of_b]
    return Array(
        contraction.contraction(a, "".join(in_a), b, "".join(in_b), "".join(free), user_line())
    )


def _paired_axes(
    axes: int | tuple[Sequence[int], Sequence[int]], a: Node, b: Node
) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot: axes must be from 0 to {min(a.ndim, b.ndim)} for shapes {a.shape} and "
                f"{b.shape}, was given {axes}"
            )
        return list(range(a.ndim - axes, a.ndim)), list(range(axes))
    of_a = [normalize_axis("tensordot", axis, a.ndim) for axis in axes[0]]
    of_b = [normalize_axis("tensordot", axis, b.ndim) for axis in axes[1]]
    if len(of_a) != len(of_b) or len({*of_a}) != len(of_a) or len({*of_b}) != len(of_b):
        raise ShapeError(f"tensordot: needs as many different axes of both, was given {axes}")
    return of_a, of_b
