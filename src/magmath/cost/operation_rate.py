"""The measured speeds of single operations.

An operation takes a fixed time, and a time for each unit of its work. The latter depends on whether
the bytes that it reads and writes fit into a cache. The unit of work is a byte, or for operations
whose arithmetic grows faster than their arrays a floating point operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final, final

from magmath.graph import Node

COUNTED_IN_FLOPS: Final = frozenset(
    (
        "sort", "argsort", "searchsorted", "fft_c2c", "fft_r2c", "fft_c2r",
        "lu", "cholesky", "eigh", "qr", "svd", "svdvals",
    )
)  # fmt: skip
"""Operations whose unit of work is a floating point operation; for all others it is a byte."""
SHORT_ROW: Final = 32
"""Elements of the rows below which a reduction of rows takes a time for each row."""
OF_SHORT_ROWS: Final = " of short rows"


@final
@dataclass(frozen=True)
class OperationRate:
    """The speed of an operation on a number of threads.

    fixed   seconds of a call on few elements, in addition to those of any call
    speeds  pairs of touched bytes and seconds per unit of work, by increasing bytes
    """

    name: str
    threads: int
    fixed: float
    speeds: tuple[tuple[float, float], ...]

    def seconds(self, flops: float, nbytes: float) -> float:
        """Return the seconds of a call, beyond those of any call. Between two measured sizes the
        speed is interpolated by the logarithm of the bytes."""
        work = flops if self.name in COUNTED_IN_FLOPS else nbytes
        return self.fixed + work * _interpolated(self.speeds, nbytes)


def _interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """Return the value at x on the lines through points (x, y), over the logarithm of x."""
    if not points:
        return 0.0
    for (low, first), (high, last) in pairwise(points):
        if x < high:
            share = log(max(x, low) / low) / log(high / low)
            return first + share * (last - first)
    return points[-1][1]


def rate_name(node: Node) -> str:
    """Return the name of the rate of a node: that of its operation, or for reductions of the last
    dimension, if that is short, the operation's name and "of short rows"."""
    axis = node.attributes.get("axis")
    if axis is None or node.operation.elementwise or not node.inputs:
        return node.name
    operand = node.inputs[0]
    axes = axis if isinstance(axis, tuple) else (axis,)
    reduces = node.size < operand.size and operand.size < SHORT_ROW * node.size
    return node.name + OF_SHORT_ROWS if reduces and operand.ndim - 1 in axes else node.name
