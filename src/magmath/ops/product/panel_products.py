"""Contractions by panels: a sum of products over parts of a summed dimension.

A worker that needs all of A's columns, or all of B's rows, then stores one panel of them at a time.
SUMMA (van de Geijn and Watts, 1997) multiplies matrices in this way if no worker could store whole
rows and columns. Each panel is a separate product that is added to the previous sum; for two
matrices BLAS accumulates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from magmath.graph import Node, apply
from magmath.layout import Layout, even_cuts
from magmath.ops.leaves import constant
from magmath.ops.slicing import slice_along

PANEL_BYTES = 64 << 20  # of both operands
MIN_PANEL_EXTENT = 128  # products of panels with fewer rows and columns are much slower
MAX_PANELS = 256  # each is a separate instruction


def in_panels(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return a product as a sum of panels along its longest summed letter.

    Returns an empty list for operands that fit into one panel.
    """
    notation = node.index_notation
    extents = notation.extents([x.shape for x in node.inputs], node.shape)
    summed = [c for c in extents if c not in notation.output]
    if len(node.inputs) > 2 or not summed:
        return []
    along = max(summed, key=extents.__getitem__)
    dims = [letters.find(along) for letters in notation.inputs]
    divided = [x for x, d in zip(node.inputs, dims, strict=True) if d >= 0]
    nbytes = sum([x.size * x.dtype.itemsize for x in divided])
    count = min(-(-nbytes // PANEL_BYTES), extents[along] // MIN_PANEL_EXTENT, MAX_PANELS)
    if count < 2:
        return []
    total: Node | None = None
    for start, stop in pairwise(even_cuts(extents[along], count)):
        parts = zip(node.inputs, dims, strict=True)
        panel = apply(
            node.operation,
            *[x if d < 0 else slice_along(x, d, start, stop) for x, d in parts],
            line=node.line,
            **node.attributes,
        )
        total = panel if total is None else _accumulated(total, panel)
    assert total is not None
    return [total]


def _accumulated(total: Node, panel: Node) -> Node:
    """Return the sum of the total and a panel; a `gemm` accumulates onto the total."""
    if panel.name != "gemm":
        return total + panel
    attributes = {**panel.attributes, "accumulate": True}
    operands = (*panel.inputs, total, constant(1, panel.dtype))
    return apply(panel.operation, *operands, line=panel.line, **attributes)


def panels_of(node: Node, decomposition: Node) -> int:
    """Return the number of products that the decomposition of `node` sums."""
    count, seen, stack = 0, set(node.inputs), [decomposition]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            stack += current.inputs
            count += current.operation is node.operation
    return count
