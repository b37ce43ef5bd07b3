"""Block-cyclic layouts and panel sizes for collective kernels of one matrix.

They depend only on shapes and the number of workers, so the planner and every worker compute them
without communication.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from magmath.core.block_cyclic import BlockCyclicRows, panel_rows
from magmath.core.type_aliases import BoundCall
from magmath.graph import CollectiveCall, Node, Shape
from magmath.layout import CutPieces, Cyclic, Layout, Mesh, Split

if TYPE_CHECKING:
    from magmath.comm import Communicator


def block_cyclic_layout(
    shape: Shape, mesh: Mesh, dim: int, *, before: int = 0, rows: int | None = None
) -> Layout:
    """Return a layout that assigns panels of dimension `dim` to all workers in turn.

    A panel has `rows` indices, by default `panel_rows`. The first `before` indices belong to the
    first panel in addition.
    """
    extent = shape[dim] - before
    rows = rows or panel_rows(extent, mesh.size)
    if not before:
        split = Split(0, Cyclic(extent, rows, mesh.size))
    else:
        cuts = (0, *[before + min(i + rows, extent) for i in range(0, extent, rows)])
        split = Split(0, CutPieces(cuts, tuple([i % mesh.size for i in range(len(cuts) - 1)])))
    return Layout.replicated_on(shape, mesh).replace_split(dim, split)


def block_cyclic_rows(extent: int, comm: Communicator) -> BlockCyclicRows:
    """Return the block-cyclic distribution of rows or columns, seen from this worker."""
    return BlockCyclicRows(extent, panel_rows(extent, comm.size), comm.rank, comm.size)


def panel_bytes(shape: Shape, node: Node, workers: int) -> int:
    """Return the bytes of a panel of rows of a matrix of this shape, of a node's type."""
    return panel_rows(shape[0], workers) * shape[1] * node.dtype.itemsize


def panel_traffic(shape: Shape, node: Node, workers: int, times: float) -> tuple[int, int]:
    """Return bytes and messages for sending a matrix `times` times to all other workers."""
    panels = -(-shape[0] // panel_rows(shape[0], workers))
    nbytes = math.prod(shape) * node.dtype.itemsize * times
    return int(nbytes) * (workers - 1), max(1, math.ceil(times)) * panels * (workers - 1)


def collective_kernel(
    load: Callable[[], Callable[..., None]], *keys: str, before: int = 0
) -> Callable[[CollectiveCall], BoundCall]:
    """Return a function that binds a kernel with these attributes; `load` imports it.

    The kernel's arguments are (block-cyclic rows, ring, scratch, out, *inputs). The rows are those
    of the first operand without the first `before` ones.
    """

    def bind(call: CollectiveCall) -> BoundCall:
        compute = load()
        options = {key: call.attributes[key] for key in keys}
        extent, comm = call.layouts[0].shape[0] - before, call.comm
        shares = block_cyclic_rows(extent, comm)
        return lambda: compute(shares, call.ring, call.scratch, call.out, *call.inputs, **options)

    return bind
