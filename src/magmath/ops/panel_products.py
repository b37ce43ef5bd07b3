"""A contraction in panels: a sum over parts of a dimension that is summed over.

A worker that needs all of A's columns, or of B's rows, then has one panel of them at a time: this
is what lets SUMMA (van de Geijn and Watts, 1997) multiply matrices of which no worker could hold
whole rows and columns. Every panel is a product of its own, added to those before: by BLAS itself
for two matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from magmath.graph import Node, apply
from magmath.graph.index_notation import index_notation_of
from magmath.layout import Layout, even_cuts
from magmath.ops.leaves import constant
from magmath.ops.slicing import slice_along

PANEL_BYTES = 64 << 20  # of both operands together
NARROWEST = 128  # a panel of fewer rows and columns would be multiplied much more slowly
MOST = 256  # panels; each is an instruction of its own


def in_panels(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """The sum of the panels of a product whose operands are larger than one panel, along the
    longest letter that is summed over."""
    structure = index_notation_of(node)
    extents = structure.extents(node)
    summed = [c for c in extents if c not in structure.output]
    if len(node.inputs) > 2 or not summed:
        return []
    along = max(summed, key=extents.__getitem__)
    dims = [letters.find(along) for letters in structure.inputs]
    cut = [x for x, d in zip(node.inputs, dims, strict=True) if d >= 0]
    nbytes = sum([x.size * x.dtype.itemsize for x in cut])
    count = min(-(-nbytes // PANEL_BYTES), extents[along] // NARROWEST, MOST)
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
        total = panel if total is None else _added(total, panel)
    assert total is not None
    return [total]


def _added(total: Node, panel: Node) -> Node:
    """A product of two matrices is accumulated onto the total, any other is added to it."""
    if panel.name != "gemm":
        return total + panel
    attributes = {**panel.attributes, "accumulate": True}
    operands = (*panel.inputs, total, constant(1, panel.dtype))
    return apply(panel.operation, *operands, line=panel.line, **attributes)


def panels_of(node: Node, way: Node) -> int:
    """How many products `way` sums to compute what `node` does."""
    count, seen, stack = 0, set(node.inputs), [way]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            stack += current.inputs
            count += current.operation is node.operation
    return count
