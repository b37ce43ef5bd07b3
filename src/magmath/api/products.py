"""Products of matrices, vectors and arrays of any dimensions, all computed as contractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magmath.arrays.array import Array, Operand, as_array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.integers import is_integer
from magmath.core.shapes import broadcast, normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.index_letters import LETTERS
from magmath.ops.manipulation import reshape
from magmath.ops.product import contraction


@dispatch_cached
def matmul(x1: Operand, x2: Operand, /, out: Any = None) -> Array:
    """Return the matrix product of (…, m, k) and (…, k, n), the leading dimensions broadcast. A 1-D
    operand is a row on the left and a column on the right. float16 and bfloat16 accumulate in
    float32; the product of truth values is true where a summand is. Raises ShapeError if the shapes
    do not fit.
    """
    product = Array(contraction.matmul(*promoted_nodes("matmul", x1, x2), line=user_line()))
    return product if out is None else stored("matmul", product, out)


def matrix_transpose(x: Array, /) -> Array:
    """Return x with its last two axes exchanged."""
    return as_array("matrix_transpose", x).mT


@dispatch_cached
def vecdot(x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1) -> Array:
    """Return the sum over `axis` of conj(x1) · x2, the other dimensions broadcast.

    `axis` counts from the end, from -1 to -min(x1.ndim, x2.ndim), or from the front if the operands
    have the same number of dimensions. Raises ShapeError for another axis, or if the shapes do not
    fit.
    """
    a, b = promoted_nodes("vecdot", x1, x2)
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"vecdot: needs arrays of 1 or more dimensions, got {a.shape}, {b.shape}"
            "; multiply numbers with a * b"
        )
    if not hasattr(axis, "__index__"):
        raise TypeError(
            f"vecdot: the axis is an integer, was given {axis!r}"
            "; pass one of the last axes, such as -1"
        )
    if not -min(a.ndim, b.ndim) <= axis < 0 and not (a.ndim == b.ndim and 0 <= axis < a.ndim):
        raise ShapeError(
            f"vecdot: needs an axis from -{min(a.ndim, b.ndim)} to -1, was given {axis} for shapes "
            f"{a.shape} and {b.shape}"
        )
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"vecdot: needs equal lengths along axis {axis}, was given {a.shape} and {b.shape}"
            "; transpose or slice one of them"
        )
    shape = broadcast("vecdot", a.shape, b.shape)
    letters = LETTERS[: len(shape)]
    summed = letters[axis]
    in_a, in_b = letters[len(shape) - a.ndim :], letters[len(shape) - b.ndim :]
    product = contraction.contraction(
        e.conj(a), in_a, b, in_b, letters.replace(summed, ""), user_line()
    )
    return stored("vecdot", Array(product), out)


def _with_array(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Return the operands, the first one as an array if both are numbers."""
    return as_array(name, a) if is_number(a) and is_number(b) else a, b


@dispatch_cached
def outer(a: Any, b: Any, out: Any = None) -> Array:
    """Return all products of an element of `a` and one of b, which are flattened: (m, n)."""
    x, y = promoted_nodes("outer", *_with_array("outer", a, b))
    x, y = reshape(x, (x.size,)), reshape(y, (y.size,))
    product = Array(contraction.contraction(x, "a", y, "b", "ab", user_line()))
    return stored("outer", product, out)


@dispatch_cached
def tensordot(a: Any, b: Any, axes: int | Sequence[int | Sequence[int]] = 2) -> Array:
    """Return the product summed over some dimensions of both operands; the result has the others of
    `a`, then those of b.

    `axes`: the dimensions to sum over, as two sequences that are paired in order, or their number:
    the last dimensions of `a`, in order, with the first ones of b. Raises ShapeError if they do not
    fit.
    """
    x, y = promoted_nodes("tensordot", *_with_array("tensordot", a, b))
    of_a, of_b = _paired_axes(axes, x, y)
    letters = iter(LETTERS)
    in_a = [next(letters) for _ in range(x.ndim)]
    in_b = [next(letters) for _ in range(y.ndim)]
    for i, j in zip(of_a, of_b, strict=True):
        if x.shape[i] != y.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {x.shape} and axis {j} of {y.shape} differ in length"
                "; name axes of equal lengths by axes=(…, …)"
            )
        in_b[j] = in_a[i]
    free = [c for d, c in enumerate(in_a) if d not in of_a]
    free += [c for d, c in enumerate(in_b) if d not in of_b]
    return Array(
        contraction.contraction(x, "".join(in_a), y, "".join(in_b), "".join(free), user_line())
    )


def _paired_axes(
    axes: int | Sequence[int | Sequence[int]], a: Node, b: Node
) -> tuple[list[int], list[int]]:
    if is_integer(axes):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot: axes must be from 0 to {min(a.ndim, b.ndim)} for shapes {a.shape} and "
                f"{b.shape}, was given {axes}"
                "; pass a number of last axes of the first array, or two lists of axes"
            )
        return list(range(a.ndim - axes, a.ndim)), list(range(axes))
    first, second = ((pair,) if is_integer(pair) else pair for pair in axes)
    of_a = [normalize_axis("tensordot", axis, a.ndim) for axis in first]
    of_b = [normalize_axis("tensordot", axis, b.ndim) for axis in second]
    if len(of_a) != len(of_b) or len({*of_a}) != len(of_a) or len({*of_b}) != len(of_b):
        raise ShapeError(
            f"tensordot: needs as many different axes of both, was given {axes}"
            "; write axes=([i, …], [j, …]) with lists of equal length"
        )
    return of_a, of_b
