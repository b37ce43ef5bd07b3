"""Random shapes and layouts for property tests: every kind of division that a layout can express.

Also the owner of each element, by brute force: an array distributed to NumPy tensors, one per worker.
"""

from __future__ import annotations

import math
from functools import cache, reduce
from itertools import product

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from cached_strategies import cached, lists
from magmath.core.index_set import Tile
from magmath.layout import CutPieces, Cyclic, Layout, Mesh, Split

COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
IDENTITY = {
    "sum": 0,
    "prod": 1,
    "max": np.iinfo(np.int64).min,
    "min": np.iinfo(np.int64).max,
}
MAX_WORKERS = 7

shapes = st.lists(st.integers(0, 7), max_size=4).map(tuple)


@cache
def _grids(max_workers: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of meshes: one to three axes."""
    grids: list[tuple[int, ...]] = [(n,) for n in range(1, max_workers + 1)]
    grids += [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]
    grids += [(2, 1, 2), (1, 3, 2), (2, 1, 1)]
    return tuple(grid for grid in grids if math.prod(grid) <= max_workers)


def draw_mesh(draw: st.DrawFn, max_workers: int = MAX_WORKERS) -> Mesh:
    """Any workers of 0 … max_workers - 1, in any order, in one to three axes."""
    order = draw(cached(st.permutations, range(max_workers)))
    grid = draw(cached(st.sampled_from, _grids(max_workers)))
    workers = order[: math.prod(grid)]
    return Mesh(grid, None, workers if draw(st.booleans()) else sorted(workers))


def draw_pieces(draw: st.DrawFn, extent: int, count: int) -> CutPieces | Cyclic:
    """Even, uneven with any owners, cyclic or block-cyclic pieces of one dimension."""
    kind = draw(cached(st.sampled_from, ("even", "uneven", "cyclic")))
    if kind == "even":
        return Split.even(0, extent, count).pieces
    if kind == "cyclic":
        return Cyclic(extent, draw(st.integers(1, 3)), draw(st.integers(1, count)))
    cuts = [0, *sorted(draw(cached(lists, 0, extent, 0, 5))), extent]
    owners = draw(cached(lists, 0, count - 1, len(cuts) - 1, len(cuts) - 1))
    return CutPieces(tuple(cuts), tuple(owners))


def draw_product(
    draw: st.DrawFn, shape: tuple[int, ...], mesh: Mesh | None = None, partial: bool = True
) -> Layout:
    """Each mesh axis splits a dimension, replicates, or holds a pending reduction."""
    mesh = draw_mesh(draw) if mesh is None else mesh
    name = draw(cached(st.sampled_from, tuple(sorted(COMBINE))))
    splits: list[Split | None] = [None] * len(shape)
    pending: list[str | None] = [None] * mesh.ndim
    for axis, count in enumerate(mesh.shape):
        free = tuple(dim for dim, split in enumerate(splits) if split is None)
        roles = ("replicate", *["split"] * 2 * bool(free), *["partial"] * partial)
        role = draw(cached(st.sampled_from, roles))
        if role == "split":
            dim = draw(cached(st.sampled_from, free))
            splits[dim] = Split(axis, draw_pieces(draw, shape[dim], count))
        elif role == "partial":
            pending[axis] = name
    return Layout(shape, mesh, tuple(splits), tuple(pending))


def draw_boxes(draw: st.DrawFn, shape: tuple[int, ...], mesh: Mesh | None = None) -> Layout:
    """The array cut in two again and again, the parts in any order on any workers."""
    mesh = draw_mesh(draw) if mesh is None else mesh
    boxes = [tuple((0, extent) for extent in shape)]
    for _ in range(draw(st.integers(0, 6))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(shape) - 1)) if shape else 0
        if not shape:
            boxes.append(box)
            continue
        cut = draw(st.integers(*box[dim]))
        for side in ((box[dim][0], cut), (cut, box[dim][1])):
            boxes.append((*box[:dim], side, *box[dim + 1 :]))
    order = draw(cached(st.permutations, range(len(boxes))))
    owners = cached(st.sampled_from, mesh.workers)
    placed = [(boxes[i], draw(owners)) for i in order]
    return Layout(shape, mesh, (None,) * len(shape), boxes=tuple(placed))


def draw_layout(draw: st.DrawFn, shape: tuple[int, ...], mesh: Mesh | None = None) -> Layout:
    """Any layout of an array of this shape."""
    kind = draw(cached(st.sampled_from, ("product", "product", "product", "boxes", "whole")))
    if kind == "product":
        return draw_product(draw, shape, mesh)
    if kind == "boxes":
        return draw_boxes(draw, shape, mesh)
    mesh = draw_mesh(draw) if mesh is None else mesh
    return Layout.replicated_on(shape, mesh, shared=draw(st.booleans()))


meshes = st.composite(draw_mesh)
pieces = st.composite(draw_pieces)
product_layouts = st.composite(draw_product)
box_layouts = st.composite(draw_boxes)
layouts = st.composite(draw_layout)


Local = dict[int, NDArray[np.int64]]


def take(array: NDArray[np.int64], tile: Tile) -> NDArray[np.int64]:
    """The part of a global array that a tile holds, by listing its indices."""
    return array[np.ix_(*[indices.indices() for indices in tile])]


def empty_tensors(layout: Layout, fill: int) -> Local:
    """Each worker's tensor for the layout; of a shared array all have the same one."""
    if layout.shared:
        return dict.fromkeys(layout.mesh.workers, np.full(layout.shape, fill, np.int64))
    return {w: np.full(layout.local_shape(w), fill, np.int64) for w in layout.mesh.workers}


def tile_views(layout: Layout, local: Local, worker: int) -> list[NDArray[np.int64]]:
    """The tensors of a worker's tiles: views of its local tensor."""
    flat = local[worker].reshape(-1)
    spans = layout.tile_spans(worker)
    return [flat[at : at + math.prod(shape)].reshape(shape) for at, shape in spans]


def contributors(layout: Layout, worker: int) -> list[int]:
    """The workers whose values combine to the value to which `worker` contributes."""
    pending = [axis for axis, name in enumerate(layout.partial) if name is not None]
    own = layout.mesh.coordinate(worker)
    assert own is not None
    result = []
    for steps in product(*[range(layout.mesh.shape[axis]) for axis in pending]):
        place = list(own)
        for axis, step in zip(pending, steps, strict=True):
            place[axis] = step
        result.append(layout.mesh.workers[np.ravel_multi_index(place, layout.mesh.shape)])
    return result


def distribute(layout: Layout, random: np.random.Generator) -> tuple[Local, NDArray[np.int64]]:
    """Random contributions on every worker, and the global array that they amount to."""
    local = empty_tensors(layout, -99)
    pending = [axis for axis, name in enumerate(layout.partial) if name is not None]
    shares: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for worker in layout.mesh.workers:
        place = layout.mesh.coordinate(worker)
        assert place is not None
        key = tuple(place[axis] for axis in pending)
        if key not in shares:
            shares[key] = random.integers(-3, 4, layout.shape)
        for tile, view in zip(layout.tiles(worker), tile_views(layout, local, worker), strict=True):
            view[...] = take(shares[key], tile)
    combine = COMBINE[layout.reduction or "sum"]
    return local, np.asarray(reduce(combine, shares.values()))


def check_holds(layout: Layout, local: Local, truth: NDArray[np.int64]) -> None:
    """Assert that the workers' tensors are the array `truth` in this layout."""
    for worker in layout.mesh.workers:
        peers = [tile_views(layout, local, peer) for peer in contributors(layout, worker)]
        combine = COMBINE[layout.reduction or "sum"]
        for tile, *parts in zip(layout.tiles(worker), *peers, strict=True):
            np.testing.assert_array_equal(reduce(combine, parts), take(truth, tile))
