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

CONVOLUTIONS: Final = ("correlation", "correlation_input", "correlation_kernel")
"""The passes of convolutions, whose rates are those of float32."""
COUNTED_IN_FLOPS: Final = frozenset(
    (
        "sort", "argsort", "searchsorted", "fft_c2c", "fft_r2c", "fft_c2r",
        "lu", "cholesky", "eigh", "qr", "svd", "svdvals", *CONVOLUTIONS,
    )
)  # fmt: skip
"""Operations whose unit of work is a floating point operation; for all others it is a byte."""
SHORT_ROW: Final = 32
"""Elements of the rows below which a reduction of rows takes a time for each row."""
OF_SHORT_ROWS: Final = " of short rows"
OF_GROUPS: Final = " of groups"
OF_3X3: Final = " of 3×3 elements"


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
        work = flops if is_counted_in_flops(self.name) else nbytes
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


def is_counted_in_flops(rate: str) -> bool:
    """Return True if the unit of work of a rate is a floating point operation."""
    return rate.partition(" of ")[0] in COUNTED_IN_FLOPS


def rate_name(node: Node) -> str:
    """Return the name of the rate of a node: that of its operation, and what its speed depends on.

    Reductions of the last dimension are slower per byte if it is short. Convolutions of 3×3
    elements are faster per operation than others, by Winograd's algorithms, and those in groups are
    slower.
    """
    if node.name in CONVOLUTIONS:
        return node.name + _kind_of_convolution(node)
    axis = node.attributes.get("axis")
    if axis is None or node.operation.is_elementwise or not node.inputs:
        return node.name
    operand = node.inputs[0]
    axes = axis if isinstance(axis, tuple) else (axis,)
    reduces = node.size < operand.size and operand.size < SHORT_ROW * node.size
    return node.name + OF_SHORT_ROWS if reduces and operand.ndim - 1 in axes else node.name


def _kind_of_convolution(node: Node) -> str:
    attributes = node.attributes
    if attributes["groups"] > 1:
        return OF_GROUPS
    kernel = node if node.name == "correlation_kernel" else node.inputs[1]
    is_dense = {*attributes["stride"], *attributes["dilation"]} == {1}
    return OF_3X3 if kernel.shape[2:] == (3, 3) and is_dense else ""
