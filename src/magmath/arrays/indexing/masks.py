"""Masks, which are counted when the number of elements that they select is needed.

The shape of x[mask] depends on the values of the mask. The mask is therefore computed and counted
first, in segments that fit its layout and that of the array. The rest is an expression of known
shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np

from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.leaf_values import fetch, small_local_array
from magmath.engine import session
from magmath.engine.called_function import called_function
from magmath.engine.traces import tracing
from magmath.engine.user_line import user_line
from magmath.errors import TracingError
from magmath.graph import Node, apply
from magmath.layout import Layout, even_cuts
from magmath.ops.axis_segments import cuts_of
from magmath.ops.masking import COMPRESS, EXPAND, POSITIONS, SEGMENT_COUNTS


@final
class UnknownCount(TracingError):
    """The number of elements that a mask selects was requested while a function was traced."""


@final
@dataclass(frozen=True)
class Counted:
    """A computed mask, and the number of elements that it selects in each segment of its first
    dimension."""

    node: Node
    cuts: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of elements that the mask selects."""
        return sum(self.counts)

    def compress(self, x: Node, axis: int = 0) -> Node:
        """Return the selected elements of x, in C order; the mask covers the dimensions from `axis`
        on."""
        return apply(COMPRESS, x, self.node, **self._attributes(axis), line=user_line())

    def expand(self, x: Node, axis: int = 0) -> Node:
        """Return zeros with the elements of x at the selected positions."""
        return apply(EXPAND, x, self.node, **self._attributes(axis), line=user_line())

    def positions(self) -> Iterator[Node]:
        """Return the indices of the true elements for each dimension, in C order."""
        return (
            apply(POSITIONS, self.node, dim=d, **self._attributes(0), line=user_line())
            for d in range(self.node.ndim)
        )

    def _attributes(self, axis: int) -> dict[str, object]:
        return {"axis": axis, "cuts": self.cuts, "counts": self.counts}


@final
@dataclass
class MaskIndex:
    """A mask that is counted on first use.

    Its first dimension is `axis` of the indexed array, which has `indexed_layout`.
    """

    node: Node
    indexed_layout: Layout | None
    axis: int

    @cached_property
    def counted(self) -> Counted:
        """The computed and counted mask; raises as `count`."""
        return count_mask(self.node, self.indexed_layout, self.axis)


def count_mask(mask: Node, indexed_layout: Layout | None = None, axis: int = 0) -> Counted:
    """Compute and count a mask whose first dimension is `axis` of an array in `indexed_layout`.

    Raises UnknownCount while a function is traced, because values are unknown then.
    """
    try:
        leaf = LazyArray(mask).evaluated_leaf()
        engine = session.engine()
        cuts = {*even_cuts(mask.shape[0], engine.environment.workers)}
        cuts |= cuts_of(leaf.layout, 0) | cuts_of(indexed_layout, axis)
        counts = _counts(leaf, tuple(sorted(cuts)))
    except TracingError:
        function, line = called_function(2) or "indexing", ":".join(map(str, user_line() or ()))
        raise UnknownCount(
            f"{function}: the number of elements that a mask selects is unknown while mm.compile "
            f"traces a function ({line}); keep the shape with mm.where(mask, x, y), or index "
            f"outside of the function"
        ) from None
    return Counted(leaf, tuple(sorted(cuts)), counts)


def _counts(mask: Node, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of true elements in the segments of a computed mask."""
    values = small_local_array(mask)
    if values is not None and tracing.current() is None:
        return tuple([int(np.count_nonzero(values[a:b])) for a, b in pairwise(cuts)])
    counted = LazyArray(apply(SEGMENT_COUNTS, mask, cuts=cuts)).evaluated_leaf()
    return tuple(fetch(counted).tolist())
