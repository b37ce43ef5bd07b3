"""Products of several matrices, in the order of multiplication that needs the fewest operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magmath.api.products import matmul
from magmath.arrays.array import Array, as_arrays
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.errors import ShapeError


@dispatch_cached
def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Array:
    """Return the product of several matrices, in the order of multiplication that needs the fewest
    operations; the first and the last may be vectors."""
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(
            f"multi_dot: needs a list of arrays, was given {type(arrays).__name__}; pass [a, b, …]"
        )
    factors = as_arrays("multi_dot", *arrays)
    if len(factors) < 2:
        raise ShapeError(
            f"multi_dot: needs 2 or more arrays, was given {len(factors)}"
            "; pass two or more in the list"
        )
    for i, x in enumerate(factors):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(factors) - 1)):
            raise ShapeError(
                f"multi_dot: needs matrices, and vectors first or last, was given shape {x.shape}; "
                f"multiply stacks of matrices with x @ y"
            )
    product = _product(factors, _splits([x.shape for x in factors]))
    return stored("multi_dot", product, out)


def _product(arrays: Sequence[Array], split: dict[tuple[int, int], int]) -> Array:
    """Return the product of a chain, divided by `split`."""

    def part(first: int, last: int) -> Array:
        if first == last:
            return arrays[first]
        at = split[first, last]
        return matmul(part(first, at), part(at + 1, last))

    return part(0, len(arrays) - 1)


def _splits(shapes: Sequence[tuple[int, ...]]) -> dict[tuple[int, int], int]:
    """Return the split of each part of a chain of products, found by dynamic programming."""
    sizes = [1 if len(shapes[0]) == 1 else shapes[0][0]]
    sizes += [shape[0] if i and len(shape) == 1 else shape[-1] for i, shape in enumerate(shapes)]
    if len(shapes[-1]) == 1:
        sizes[-1] = 1
    n = len(shapes)
    cost = {(i, i): 0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs = [
                cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            ]
            cost[i, j] = min(costs)
            split[i, j] = i + costs.index(cost[i, j])
    return split
