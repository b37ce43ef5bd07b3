"""Fourier transforms of a long axis in four steps, each of which is split over the workers.

The axis is viewed as a matrix of r rows and c columns: the steps are transforms of its columns,
twiddle factors, transforms of its rows, and a transposition (Bailey, "FFTs in external or
hierarchical memory", J. Supercomputing 4, 1990). No worker needs the whole axis. With
j = c·j₁ + j₂ and k = k₁ + r·k₂,

    X[k₁ + r·k₂] = Σ_j₂ w_c^(j₂·k₂) · w_n^(j₂·k₁) · Σ_j₁ w_r^(j₁·k₁) · x[c·j₁ + j₂].

For a real signal X[n - k] is the conjugate of X[k]. The transforms of the columns therefore need
only the rows k₁ ≤ r/2, which is half the work; the other rows are these, conjugated and reversed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, complex64, complex128
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import conj
from magmath.ops.index_letters import pointwise_axes
from magmath.ops.manipulation import permute, reshape
from magmath.ops.shared_fields import flops_per_element
from magmath.ops.slicing import SLICE, padded, slice_along

SHORTEST = 64
"""Minimum length of a short transform of which a long one consists."""
UNIT = 64
"""Number of adjacent columns whose factors are computed from the same coarse factor."""
BLOCK = 1 << 18
"""Number of factors computed per step: they stay in the L2 cache."""

Transform = Callable[[Node, int], Node]
"""(array, axis) → transform along this axis."""


def rows_of(n: int) -> int:
    """Return the rows of the squarest matrix of n elements; 0 if they are fewer than SHORTEST."""
    rows = next(m for m in range(math.isqrt(n), 0, -1) if n % m == 0)
    return rows if rows >= SHORTEST else 0


def four_steps(x: Node, axis: int, fft: Transform, inverse: bool) -> list[Node]:
    """Return the transform of a complex array along an axis; empty for unsuitable lengths."""
    n = x.shape[axis]
    rows = rows_of(n)
    if not rows:
        return []
    columns = fft(_matrix(x, axis, rows, n // rows), axis)
    result = fft(twiddle(columns, axis, n, inverse), axis + 1)
    return [_line(_transposed(result, axis), axis)]


def four_steps_of_real(
    x: Node, axis: int, rfft: Transform, fft: Transform, inverse: bool
) -> list[Node]:
    """Return the n // 2 + 1 coefficients of a real array; empty for unsuitable lengths."""
    n = x.shape[axis]
    rows = rows_of(n)
    if not rows:
        return []
    columns = n // rows
    half = rfft(_matrix(x, axis, rows, columns), axis)
    result = _transposed(fft(twiddle(half, axis, n, inverse), axis + 1), axis)
    here = slice_along(result, axis, 0, columns // 2 + 1)
    reflected = _reversed_conjugates(
        result, axis, (columns - 1, columns - 2 - columns // 2), ((rows - 1) // 2, 0)
    )
    lines = apply(CONCAT, here, reflected, axis=axis + 1)
    return [slice_along(_line(lines, axis), axis, 0, n // 2 + 1)]


def four_steps_to_real(
    x: Node, axis: int, n: int, fft: Transform, to_real: Transform, inverse: bool
) -> list[Node]:
    """Return the real array of n elements with these coefficients; empty for unsuitable lengths.

    `to_real` returns a real array of `rows_of(n)` elements along its axis.
    """
    rows = rows_of(n)
    if not rows:
        return []
    columns = n // rows
    full = (*x.shape[:axis], (columns // 2 + 1) * rows, *x.shape[axis + 1 :])
    known = _matrix(padded(x, full, (0,) * x.ndim), axis, columns // 2 + 1, rows)
    direct = slice_along(
        slice_along(known, axis, 0, (columns + 1) // 2), axis + 1, 0, rows // 2 + 1
    )
    first = _reversed_conjugates(known, axis, (columns // 2, 0), (0, -1))
    reflected = _reversed_conjugates(
        known, axis, (columns // 2 - 1, -1), (rows - 1, rows - 1 - rows // 2)
    )
    mirrored = apply(CONCAT, first, reflected, axis=axis + 1)
    half = _transposed(apply(CONCAT, direct, mirrored, axis=axis), axis)
    twiddled = twiddle(fft(half, axis + 1), axis, n, inverse)
    return [_line(to_real(twiddled, axis), axis)]


def _matrix(x: Node, axis: int, rows: int, columns: int) -> Node:
    return reshape(x, (*x.shape[:axis], rows, columns, *x.shape[axis + 1 :]))


def _line(x: Node, axis: int) -> Node:
    extent = x.shape[axis] * x.shape[axis + 1]
    return reshape(x, (*x.shape[:axis], extent, *x.shape[axis + 2 :]))


def _transposed(x: Node, axis: int) -> Node:
    order = list(range(x.ndim))
    order[axis : axis + 2] = axis + 1, axis
    return permute(x, tuple(order))


def _reversed_conjugates(
    x: Node, axis: int, rows: tuple[int, int], columns: tuple[int, int]
) -> Node:
    """Return the conjugates of rows and columns in reversed order.

    Each range starts at its first index and descends to before its second one.
    """
    bounds = [(0, extent, 1) for extent in x.shape]
    bounds[axis : axis + 2] = (*rows, -1), (*columns, -1)
    return conj(apply(SLICE, x, bounds=tuple(bounds)))


# the twiddle factors between the transforms of columns and rows -----------------------------------


def _infer(x: Node, *, axis: int, n: int, inverse: bool) -> tuple[Shape, DType]:
    if x.dtype not in (complex64, complex128):
        raise DTypeError(f"fft_twiddle: takes complex64 and complex128, was given {x.dtype}")
    return x.shape, x.dtype


def _kernel(call: KernelCall) -> BoundCall:
    """Bind the multiplication by the twiddle factors.

    The factors of a row are products of coarse factors, for every `UNIT`-th column, and fine
    factors, for the columns between them, so that few factors need a sine and a cosine.
    """
    import torch

    (x,), out, axis = call.inputs, call.out, call.attributes["axis"]
    n, sign = call.attributes["n"], 1.0 if call.attributes["inverse"] else -1.0
    rows, columns = (
        torch.as_tensor(call.tile[d].indices(), device=out.device) for d in (axis, axis + 1)
    )
    count = len(columns)
    unit = UNIT if count and int(columns[-1] - columns[0]) == count - 1 else 1
    coarse, fine = columns[::unit], torch.arange(unit, device=out.device)
    behind = (1,) * (out.ndim - axis - 2)
    block = max(1, min(len(rows), BLOCK // max(1, count)))
    memory = out.new_empty((block, len(coarse), unit))

    def powers(exponents: torch.Tensor) -> torch.Tensor:
        angles = (exponents % n).to(torch.float64) * (sign * 2.0 * math.pi / n)
        return torch.complex(angles.cos(), angles.sin()).to(out.dtype)

    def run() -> None:
        for start in range(0, len(rows), block):
            block_rows = rows[start : start + block, None]
            factors = memory[: len(block_rows)]
            torch.mul(
                powers(block_rows * coarse)[:, :, None],
                powers(block_rows * fine)[:, None],
                out=factors,
            )
            lines = factors.flatten(1)[:, :count]
            part = (slice(None),) * axis + (slice(start, start + len(block_rows)),)
            torch.mul(x[part], lines.reshape((*lines.shape, *behind)), out=out[part])

    return run


def _reference(x: Any, *, axis: int, n: int, inverse: bool) -> Any:
    rows, columns = x.shape[axis : axis + 2]
    power = np.outer(np.arange(rows), np.arange(columns)) % n
    factors = np.exp((2j if inverse else -2j) * np.pi * power / n)
    return (x * factors.reshape((rows, columns, *(1,) * (x.ndim - axis - 2)))).astype(x.dtype)


TWIDDLE: Operation = Operation(
    name="fft_twiddle",
    infer=_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=lambda node, g: (apply(TWIDDLE, g, **node.attributes),),
    kernel=_kernel,
    native=None,
    reference=_reference,
    flops=flops_per_element(10),
    can_overwrite_operand=True,
)


def twiddle(x: Node, axis: int, n: int, inverse: bool) -> Node:
    """Multiply element (j, k) along an axis and the next one by exp(∓2πi·j·k / n)."""
    return apply(TWIDDLE, x, axis=axis, n=n, inverse=inverse)


OPERATIONS = {"fft_twiddle": TWIDDLE}
