"""What redistributions and slices amount to in memory: a view, a publication, a move."""

from __future__ import annotations

from functools import lru_cache

from magmath.core.index_set import Tile, shift_tile
from magmath.graph import Node
from magmath.layout import Layout, plan


@lru_cache(maxsize=16384)
def is_view(have: Layout, want: Layout) -> bool:
    """True if every worker's tile in `want` is a strided part of its own tile in `have`."""
    if want.shared or have.is_partial or want.is_partial or have.boxes or want.boxes:
        return False
    if plan(have, want).kind not in ("nothing", "local"):
        return False
    for worker in want.mesh.workers:
        outer, inner = have.tiles(worker), want.tiles(worker)
        if not outer or not inner or slices_of(outer[0], inner[0]) is None:
            return False
    return True


@lru_cache(maxsize=16384)
def is_part(have: Layout, want: Layout, start: tuple[int, ...]) -> bool:
    """True if every worker's tile of a slice that begins at `start` is a strided part of its own
    tile of the whole."""
    if have.boxes or want.boxes or have.is_partial:
        return False
    for worker in want.mesh.workers:
        outer, inner = have.tiles(worker), want.tiles(worker)
        if not outer or slices_of(outer[0], shift_tile(inner[0], start)) is None:
            return False
    return True


def is_slice_view(node: Node) -> bool:
    """True for a slice that every worker finds in its own tile of the operand."""
    bounds = node.attributes["bounds"]
    if any(step != 1 for _, _, step in bounds):
        return False
    have, want = node.inputs[0].layout, node.layout
    assert have is not None
    assert want is not None
    return is_part(have, want, tuple([first for first, _, _ in bounds]))


def is_materialised(node: Node) -> bool:
    """True if a placed node is not computed anew, but is an array, or in the memory of another: to
    be gathered into a copy that all workers of a host share, it must be copied there."""
    if node.name == "slice":
        return is_slice_view(node)
    return node.is_leaf or node.name in ("redistribute", "recompute")


def slices_of(outer: Tile, inner: Tile) -> tuple[slice, ...] | None:
    """The slices that cut `inner` out of a tensor holding `outer`; None if slices cannot."""
    selectors = []
    for whole, part in zip(outer, inner, strict=True):
        if whole.intersect(part).size != part.size:
            return None  # an empty tile elsewhere
        selector = whole.locate(part).selector()
        if not isinstance(selector, slice):
            return None
        selectors.append(selector)
    return tuple(selectors)


@lru_cache(maxsize=16384)
def can_publish(have: Layout, want: Layout) -> bool:
    """True if workers can compute their tiles of `have` directly inside the shared copy `want`.

    Each part must have one writer: two that update it in place would do so twice.
    """
    if not want.shared or have.is_partial or have.boxes or have.mesh != want.mesh:
        return False
    if any(n > 1 and have.dim_of(axis) is None for axis, n in enumerate(have.mesh.shape)):
        return False
    everything = want.tiles(want.mesh.workers[0])[0]
    tiles = [have.tiles(worker)[0] for worker in have.mesh.workers]
    return all(slices_of(everything, t) is not None for t in tiles)


@lru_cache(maxsize=16384)
def crosses_workers(have: Layout, want: Layout) -> bool:
    """True if workers must read what others hold."""
    return plan(have, want).reads_peers
