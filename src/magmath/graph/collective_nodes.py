"""Determines whether all workers compute a node collectively, by the collective kernel of its
operation.

An operation whose index notation allows no division (`.`) can still be computed by all workers at
once, if they exchange data during the computation, for example a factorization of one matrix, panel
by panel. The operation's record defines the layouts and the workspace; the kernel receives the
communicator. The place pass treats this as one more candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

from magmath.graph.operation import Node
from magmath.layout import Layout


def is_collective(node: Node, inputs: Sequence[Layout], output: Layout) -> bool:
    """Return True if all workers compute a node in these layouts collectively.

    This is so if the layouts divide dimensions that the index notation keeps whole, or several
    letters along one axis.
    """
    if node.operation.collective is None:
        return False
    notation = node.index_notation
    divided: dict[int, set[str]] = {}
    for letters, layout in zip((*notation.inputs, notation.output), (*inputs, output), strict=True):
        for letter, split in zip(letters, layout.splits, strict=True):
            if split is not None and layout.mesh.shape[split.mesh_axis] > 1:
                divided.setdefault(split.mesh_axis, set()).add(letter.lower())
    return any("." in letters or len(letters) > 1 for letters in divided.values())
