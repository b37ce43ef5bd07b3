"""The layouts in which an operation is computed on several workers."""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.layout import Layout


@final
class NodeLayouts(NamedTuple):
    """The layouts of the operands of a node, and that of its result."""

    inputs: tuple[Layout, ...]
    output: Layout
