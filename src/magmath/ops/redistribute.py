"""Redistribution as an operation: the same array in another layout.

The place pass inserts it, and `a.redistribute(layout)` creates it. The layout is the node's
`layout` field. The operation has no kernel: lowering turns it into views, copies from peers, or
messages.
"""

from __future__ import annotations

import numpy as np

from magmath.core.dtypes import DType
from magmath.graph import Node, Operation, Shape, make_node
from magmath.graph.operation import NO_ATTRIBUTES, Line
from magmath.layout import Layout
from magmath.ops.index_letters import LETTERS
from magmath.ops.shared_fields import no_flops, unreachable


def _axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters}->{letters}"


def redistribute(x: Node, layout: Layout, line: Line = None) -> Node:
    """Redistribute x to `layout`; return x itself if it has this layout.

    `line` is the user's line to report, by default the line of x.
    """
    if x.layout == layout:
        return x
    line = x.line if line is None else line
    return make_node(REDISTRIBUTE, (x,), NO_ATTRIBUTES, x.shape, x.dtype, layout=layout, line=line)


def _infer(x: Node) -> tuple[Shape, DType]:
    return x.shape, x.dtype


REDISTRIBUTE = Operation(
    name="redistribute",
    infer=_infer,
    axes=_axes,
    reduction=None,
    vjp=lambda node, g: (g,),
    kernel=unreachable,  # lowering turns it into instructions of its own
    native=None,
    reference=np.asarray,
    flops=no_flops,
    is_view=True,
    is_move=True,
)

OPERATIONS = {"redistribute": REDISTRIBUTE}
