"""Memory aliasing of redistributions and slices: which of them are views, which publish tiles in a
shared copy, and which move data between workers.

The place, schedule and buffer passes and the lowering need this for pairs of layouts;
the answers are cached.
"""

from __future__ import annotations

from functools import lru_cache

from magmath.core.index_set import Tile, shift_tile
from magmath.graph import Node
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout, plan_redistribution


@lru_cache(maxsize=16384)
def is_view(have: Layout, want: Layout) -> bool:
    """Return True if every worker's tile in `want` is a strided part of its own tile in `have`."""
    if want.shared or have.is_partial or want.is_partial or have.boxes or want.boxes:
        return False
    if plan_redistribution(have, want).kind not in ("nothing", "local"):
        return False
    for worker in want.mesh.workers:
        outer, inner = have.tiles(worker), want.tiles(worker)
        if not outer or not inner or slices_of(outer[0], inner[0]) is None:
            return False
    return True


@lru_cache(maxsize=16384)
def is_part(have: Layout, want: Layout, start: tuple[int, ...]) -> bool:
    """Return True if every worker's tile of a slice that begins at `start` is a strided part of its
    own tile of the whole array."""
    if have.boxes or want.boxes or have.partial != want.partial:
        return False
    for worker in want.mesh.workers:
        outer, inner = have.tiles(worker), want.tiles(worker)
        if not outer or slices_of(outer[0], shift_tile(inner[0], start)) is None:
            return False
    return True


def is_slice_view(node: Node) -> bool:
    """Return True if every worker's tile of a slice is a part of its own tile of the operand."""
    bounds = node.attributes["bounds"]
    if any(step != 1 for _, _, step in bounds):
        return False
    start = tuple([first for first, _, _ in bounds])
    return is_part(layout_of(node.inputs[0]), layout_of(node), start)


def is_materialized(node: Node) -> bool:
    """Return True if a placed node is not computed, but is a leaf or stored in the memory of
    another node.

    To gather such a node into a copy that all workers of a host share, each worker must copy its
    tile there.
    """
    if node.name == "slice":
        return is_slice_view(node)
    return node.is_leaf or node.operation.is_move


def slices_of(outer: Tile, inner: Tile) -> tuple[slice, ...] | None:
    """Return the slices that select `inner` from a tensor that holds `outer`; None if slices
    cannot."""
    selectors = []
    for whole, part in zip(outer, inner, strict=True):
        if whole.intersect(part).size != part.size:
            return None  # an empty tile outside `outer`
        selector = whole.locate(part).selector()
        if not isinstance(selector, slice):
            return None
        selectors.append(selector)
    return tuple(selectors)


@lru_cache(maxsize=16384)
def can_publish(have: Layout, want: Layout) -> bool:
    """Return True if workers can compute their tiles of `have` directly inside the shared copy
    `want`.

    Each part must have one writer: two writers that update it in place would update it twice.
    """
    if not want.shared or have.is_partial or have.boxes or have.mesh != want.mesh:
        return False
    if any(n > 1 and have.axis_of(axis) is None for axis, n in enumerate(have.mesh.shape)):
        return False
    everything = want.tiles(want.mesh.workers[0])[0]
    tiles = [have.tiles(worker)[0] for worker in have.mesh.workers]
    return all(slices_of(everything, t) is not None for t in tiles)


@lru_cache(maxsize=16384)
def is_cross_worker(have: Layout, want: Layout) -> bool:
    """Return True if a redistribution makes workers read the tiles of other workers."""
    return plan_redistribution(have, want).reads_peers
