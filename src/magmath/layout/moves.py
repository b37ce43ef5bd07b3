"""The moves of one stage of a redistribution: each requested part matched with a source worker.

The tiles of a product layout are products over dimensions, so they are intersected dimension by
dimension and the results combined; boxes are matched by vectorized comparison of corners. Among
replicas, a worker copies from itself if it can, otherwise from the replica that sends the fewest
elements so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, product
from typing import NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from magmath.core.index_set import IndexSet, Tile
from magmath.layout.layout import Layout
from magmath.layout.mesh import Mesh

Select: TypeAlias = tuple["slice | NDArray[np.int64]", ...]


@final
class Move(NamedTuple):
    """A copy of a part of a tile of worker `source` into a tile of worker `target`.

    `source_tile` and `target_tile` count the tiles of `Layout.tiles(worker)`. The selects take the
    part out of either tile, one slice or index array per dimension (their outer product). `shape`
    is that of the part. `combine`: reduce the part into the target instead of copying it there.
    """

    source: int
    source_tile: int
    target: int
    target_tile: int
    source_select: Select
    target_select: Select
    shape: tuple[int, ...]
    combine: bool = False


@final
class _Request(NamedTuple):
    """A part that a worker needs: its global indices, and the tile in which the worker stores
    them, with the number of this tile in `Layout.tiles(worker)`."""

    worker: int
    tile_number: int
    part: Tile
    tile: Tile
    pending_offset: int
    """Offset in the source mesh of the contributor whose partial values these are."""


@final
class _Match(NamedTuple):
    """The intersection of a requested part and a source tile, which is given by the mesh position
    of its worker and by its number in `Layout.tiles`."""

    position: int
    tile_number: int
    source_select: Select
    target_select: Select
    shape: tuple[int, ...]


def moves_between(source: Layout, target: Layout) -> tuple[tuple[Move, ...], tuple[int, ...]]:
    """Return the moves of one stage, by target worker, and the workers that start with the
    identity."""
    requests, identity = _requests(source, target)
    intersect = _matcher(source)
    sources = _SourceChooser(source, reduced_axes(source, target))
    moves: list[Move] = []
    matches: dict[tuple[Tile, Tile], list[_Match]] = {}  # replicas request equal parts
    for request in requests:
        key = request.part, request.tile
        if key not in matches:
            matches[key] = intersect(request.part, request.tile)
        for match in matches[key]:
            for contribution, worker in enumerate(sources.choose(match, request)):
                moves.append(
                    Move(
                        worker, match.tile_number, request.worker, request.tile_number,
                        match.source_select, match.target_select, match.shape, contribution > 0,
                    )
                )  # fmt: skip
    return tuple(moves), identity


def still_pending_axes(source: Layout, target: Layout) -> tuple[int, ...]:
    """Return the mesh axes along which a pending reduction stays pending."""
    if (
        source.reduction is None
        or source.reduction != target.reduction
        or source.mesh.shape != target.mesh.shape
        or source.mesh.workers != target.mesh.workers
    ):
        return ()
    both = zip(source.partial, target.partial, strict=True)
    return tuple([axis for axis, (a, b) in enumerate(both) if a is not None and b is not None])


def reduced_axes(source: Layout, target: Layout) -> tuple[int, ...]:
    """Return the mesh axes along which the pending reduction of the source is completed."""
    if source.reduction is None:
        return ()
    still_pending = still_pending_axes(source, target)
    axes = enumerate(source.partial)
    return tuple([axis for axis, name in axes if name is not None and axis not in still_pending])


def longest_dimension(shape: tuple[int, ...]) -> int:
    """Return the first of the longest dimensions of a non-empty shape."""
    return max(range(len(shape)), key=lambda axis: shape[axis])


# Requests ---------------------------------------------------------------------------------


def _requests(source: Layout, target: Layout) -> tuple[list[_Request], tuple[int, ...]]:
    """Return the requests of all workers, and the workers that start with the identity instead."""
    if target.shared:
        return list(_shared_parts(source, target)), ()
    if target.boxes is not None:
        return [
            _Request(worker, number, tile, tile, 0)
            for worker in target.mesh.workers
            for number, tile in enumerate(target.tiles(worker))
        ], ()
    requests: list[_Request] = []
    identity: list[int] = []
    mesh, old = target.mesh, still_pending_axes(source, target)
    new = [a for a, name in enumerate(target.partial) if name is not None and a not in old]
    for worker in mesh.workers:
        coordinate = mesh.coordinate(worker)
        assert coordinate is not None
        if any(coordinate[axis] for axis in new):
            identity.append(worker)
            continue
        pending_offset = sum(coordinate[axis] * mesh.strides[axis] for axis in old)
        tile = target.tiles(worker)[0]
        requests.append(_Request(worker, 0, tile, tile, pending_offset))
    return requests, tuple(identity)


def _shared_parts(source: Layout, target: Layout) -> Iterator[_Request]:
    """Yield the requests of the workers that write a shared copy."""
    whole = target.tiles(target.mesh.workers[0])[0]
    written = _equal_parts if source.is_replicated else _stored_parts
    for writer, part in written(source, target.mesh):
        yield _Request(writer, 0, part, whole, 0)


def _equal_parts(source: Layout, mesh: Mesh) -> Iterator[tuple[int, Tile]]:
    """Yield equal parts of a replicated array and the workers of `mesh` that write them: those that
    store the array, or all if none does."""
    shape = source.shape
    writers = [worker for worker in mesh.workers if source.mesh.position(worker) is not None]
    writers = writers or list(mesh.workers)
    if not shape:
        yield writers[0], ()
        return
    parts = Layout.even(shape, Mesh((len(writers),), None, writers), longest_dimension(shape))
    for worker in writers:
        yield worker, parts.tiles(worker)[0]


def _stored_parts(source: Layout, mesh: Mesh) -> Iterator[tuple[int, Tile]]:
    """Yield the tiles of an array and the workers of `mesh` that write them: one that stores the
    tile, or else each worker in turn."""
    writers = cycle(mesh.workers)
    for tile, owners in _distinct_tiles(source):
        writer = next((worker for worker in owners if mesh.position(worker) is not None), None)
        yield next(writers) if writer is None else writer, tile


def _distinct_tiles(layout: Layout) -> Iterator[tuple[Tile, list[int]]]:
    """Yield each distinct tile of a layout without pending reductions, and the workers that store
    it."""
    workers = layout.mesh.workers
    if layout.boxes is not None:
        yield from ((tile, [w]) for w in workers for tile in layout.tiles(w))
        return
    splits = [layout.axis_of(mesh_axis) is not None for mesh_axis in range(layout.mesh.ndim)]
    split_axes = [axis for axis, is_split in enumerate(splits) if is_split]
    replica_axes = [axis for axis, is_split in enumerate(splits) if not is_split]
    replicas = _mesh_offsets(layout.mesh, replica_axes)
    for position in _mesh_offsets(layout.mesh, split_axes):
        yield layout.tiles(workers[position])[0], [workers[position + step] for step in replicas]


# Sources -----------------------------------------------------------------------------------


@final
class _SourceChooser:
    """Chooses the workers that send each part, and balances the elements that each of them
    sends."""

    def __init__(self, source: Layout, reduced: Sequence[int]) -> None:
        self.mesh = mesh = source.mesh
        replica_axes: Iterable[int] = ()
        if source.boxes is None:
            replica_axes = [axis for axis in range(mesh.ndim) if _is_replication(source, axis)]
        self.replicas = _mesh_offsets(mesh, replica_axes)
        self.contributions = _mesh_offsets(mesh, reduced)
        self.sent = [0] * mesh.size

    def choose(self, match: _Match, request: _Request) -> list[int]:
        """Return, for each contribution to the elements of a match, the worker that sends it."""
        workers = self.mesh.workers
        first = match.position + request.pending_offset
        if len(self.replicas) == 1:
            return [workers[first + contribution] for contribution in self.contributions]
        own_position = self.mesh.position(request.worker)
        chosen = []
        for contribution in self.contributions:
            positions = [first + contribution + replica for replica in self.replicas]
            if own_position in positions:
                chosen.append(request.worker)
                continue
            position = min(positions, key=self.sent.__getitem__)
            self.sent[position] += math.prod(match.shape)
            chosen.append(workers[position])
        return chosen


def _is_replication(layout: Layout, mesh_axis: int) -> bool:
    return layout.axis_of(mesh_axis) is None and layout.partial[mesh_axis] is None


def _mesh_offsets(mesh: Mesh, axes: Iterable[int]) -> list[int]:
    """Return the row-major mesh offsets of all coordinates along these axes."""
    positions = [0]
    for axis in axes:
        steps = [step * mesh.strides[axis] for step in range(mesh.shape[axis])]
        positions = [position + step for position in positions for step in steps]
    return positions


# Intersections -------------------------------------------------------------------------

_Matcher: TypeAlias = Callable[[Tile, Tile], list[_Match]]
"""Returns the intersections of the tiles of the source with a part, the first argument, that a
worker stores in a tile, the second one."""


@final
class _Overlap(NamedTuple):
    """The intersection of a source tile and a requested part along one dimension.

    `position`: the contribution of the tile's coordinate to its mesh position. The selects are
    those of the common indices in the source tile and in the target tile.
    """

    position: int
    source_select: slice | NDArray[np.int64]
    target_select: slice | NDArray[np.int64]
    length: int


def _overlaps(
    source_indices: Iterable[tuple[int, IndexSet]], part: IndexSet, tile: IndexSet
) -> Iterator[_Overlap]:
    """Yield the overlaps of a part, stored in a tile, with the indices of each position."""
    for position, indices in source_indices:
        common = indices.intersect(part)
        if common.size:
            source_select, target_select = indices.locate(common), tile.locate(common)
            yield _Overlap(
                position, source_select.selector(), target_select.selector(), common.size
            )


def _match(position: int, tile_number: int, overlaps: Sequence[_Overlap]) -> _Match:
    """Return the intersection of a source tile whose dimensions overlap like this."""
    return _Match(
        position,
        tile_number,
        tuple([overlap.source_select for overlap in overlaps]),
        tuple([overlap.target_select for overlap in overlaps]),
        tuple([overlap.length for overlap in overlaps]),
    )


def _matcher(source: Layout) -> _Matcher:
    """Return a function that intersects a requested part with the tiles of the source."""
    return _product_matcher(source) if source.boxes is None else _box_matcher(source)


def _product_matcher(source: Layout) -> _Matcher:
    dimensions: list[list[tuple[int, IndexSet]]] = []
    for extent, split in zip(source.shape, source.splits, strict=True):
        if split is None:
            dimensions.append([(0, IndexSet.range(0, extent))])
        else:
            stride = source.mesh.strides[split.mesh_axis]
            coordinates = range(source.mesh.shape[split.mesh_axis])
            dimensions.append([(c * stride, split.indices_at(c)) for c in coordinates])
    known: dict[tuple[int, IndexSet, IndexSet], list[_Overlap]] = {}

    def overlaps_along(axis: int, part: IndexSet, tile: IndexSet) -> list[_Overlap]:
        key = axis, part, tile
        if key not in known:
            known[key] = list(_overlaps(dimensions[axis], part, tile))
        return known[key]

    def intersect(part: Tile, tile: Tile) -> list[_Match]:
        pairs = enumerate(zip(part, tile, strict=True))
        sides = [overlaps_along(axis, indices, stored) for axis, (indices, stored) in pairs]
        return [
            _match(sum([overlap.position for overlap in overlaps]), 0, overlaps)
            for overlaps in product(*sides)
        ]

    return intersect


def _box_matcher(source: Layout) -> _Matcher:
    assert source.boxes is not None
    tile_numbers: dict[int, int] = {}
    tiles: list[tuple[int, int]] = []  # mesh position and tile number of each box
    for _, worker in source.boxes:
        number = tile_numbers[worker] = tile_numbers.get(worker, -1) + 1
        position = source.mesh.position(worker)
        assert position is not None
        tiles.append((position, number))
    corners = np.array([box for box, _ in source.boxes], np.int64)
    corners = corners.reshape(len(tiles), len(source.shape), 2)

    def intersect(part: Tile, tile: Tile) -> list[_Match]:
        low = np.array([indices.start for indices in part], np.int64)
        high = np.array([indices.stop for indices in part], np.int64)
        near = ((corners[:, :, 0] < high) & (low < corners[:, :, 1])).all(axis=1)
        matches = []
        for box in np.flatnonzero(near).tolist():
            overlaps: list[_Overlap] = []
            for (start, stop), indices, stored in zip(corners[box], part, tile, strict=True):
                box_indices = [(0, IndexSet.range(int(start), int(stop)))]
                overlaps.extend(_overlaps(box_indices, indices, stored))
            if len(overlaps) == len(part):
                matches.append(_match(*tiles[box], overlaps))
        return matches

    return intersect
