"""The moves of one stage of a redistribution: each requested part matched with a source worker.

The tiles of a product layout are products over dimensions, so they are intersected dimension by
dimension and the results combined; boxes are matched by vectorized comparison of corners. Among
replicas, a worker copies from itself if it can, otherwise from the replica that sends the fewest
elements so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
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
    """A part that a worker needs: the global indices, and the tile in which it stores them."""

    worker: int
    tile: int
    part: Tile
    stored: Tile
    pending_offset: int
    """Offset in the source mesh of the contributor whose partial values these are."""


@final
class _Match(NamedTuple):
    """The intersection of a source tile and a requested part; `position`: the source's mesh
    position."""

    position: int
    source_tile: int
    source_select: Select
    target_select: Select
    shape: tuple[int, ...]


def moves_between(source: Layout, target: Layout) -> tuple[tuple[Move, ...], tuple[int, ...]]:
    """Return the moves of one stage, by target worker, and the workers that start with the
    identity."""
    kept = still_pending_axes(source, target)
    wanted, identity = _requests(source, target, kept)
    match = _matcher(source)
    holders = _SourceChooser(source, reduced_axes(source, target))
    moves: list[Move] = []
    found: dict[tuple[Tile, Tile], list[_Match]] = {}
    for want in wanted:
        key = want.part, want.stored
        if key not in found:
            found[key] = match(want.part, want.stored)
        for part in found[key]:
            for combine, worker in enumerate(holders.choose(part, want)):
                moves.append(
                    Move(
                        worker, part.source_tile, want.worker, want.tile,
                        part.source_select, part.target_select, part.shape, combine > 0,
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
    kept = still_pending_axes(source, target)
    pending = enumerate(source.partial)
    return tuple([axis for axis, name in pending if name is not None and axis not in kept])


def longest_dimension(shape: tuple[int, ...]) -> int:
    """Return the first of the longest dimensions of a non-empty shape."""
    return max(range(len(shape)), key=lambda axis: shape[axis])


# Requests ---------------------------------------------------------------------------------


def _requests(
    source: Layout, target: Layout, kept: Sequence[int]
) -> tuple[list[_Request], tuple[int, ...]]:
    if target.shared:
        return list(_shared_parts(source, target)), ()
    if target.boxes is not None:
        return [
            _Request(worker, number, tile, tile, 0)
            for worker in target.mesh.workers
            for number, tile in enumerate(target.tiles(worker))
        ], ()
    wanted: list[_Request] = []
    identity: list[int] = []
    mesh = target.mesh
    fresh = [a for a, name in enumerate(target.partial) if name is not None and a not in kept]
    for position, worker in enumerate(mesh.workers):
        if any(position // mesh.strides[axis] % mesh.shape[axis] for axis in fresh):
            identity.append(worker)
            continue
        share = sum(position // mesh.strides[a] % mesh.shape[a] * mesh.strides[a] for a in kept)
        tile = target.tiles(worker)[0]
        wanted.append(_Request(worker, 0, tile, tile, share))
    return wanted, tuple(identity)


def _shared_parts(source: Layout, target: Layout) -> Iterator[_Request]:
    """Yield the parts of a shared copy with their writers: each writes what it stores, if
    possible."""
    mesh = target.mesh
    whole = target.tiles(mesh.workers[0])[0]
    if source.is_replicated:
        holding = [worker for worker in mesh.workers if source.mesh.position(worker) is not None]
        writers = holding or mesh.workers
        if not target.shape:
            yield _Request(writers[0], 0, whole, whole, 0)
            return
        line = Mesh((len(writers),), None, writers)
        share = Layout.even(target.shape, line, longest_dimension(target.shape))
        for worker in writers:
            yield _Request(worker, 0, share.tiles(worker)[0], whole, 0)
        return
    homeless = 0
    for tile, holders in _pieces(source):
        writer = next((w for w in holders if mesh.position(w) is not None), None)
        if writer is None:
            writer = mesh.workers[homeless % mesh.size]
            homeless += 1
        yield _Request(writer, 0, tile, whole, 0)


def _pieces(layout: Layout) -> Iterator[tuple[Tile, list[int]]]:
    """Yield each distinct tile of a layout without pending reductions, and the workers that store
    it."""
    workers = layout.mesh.workers
    if layout.boxes is not None:
        yield from ((tile, [w]) for w in workers for tile in layout.tiles(w))
        return
    alike = [axis for axis in range(layout.mesh.ndim) if layout.axis_of(axis) is None]
    divided = [axis for axis in range(layout.mesh.ndim) if layout.axis_of(axis) is not None]
    replicas = _mesh_offsets(layout.mesh, alike)
    for position in _mesh_offsets(layout.mesh, divided):
        yield layout.tiles(workers[position])[0], [workers[position + step] for step in replicas]


# Sources -----------------------------------------------------------------------------------


@final
class _SourceChooser:
    """Chooses the workers that send each part, and balances the elements that each of them
    sends."""

    def __init__(self, source: Layout, reduced: Sequence[int]) -> None:
        self.mesh = source.mesh
        mesh = source.mesh
        alike: Iterable[int] = ()
        if source.boxes is None:
            alike = [a for a in range(mesh.ndim) if _is_replication(source, a)]
        self.replicas = _mesh_offsets(mesh, alike)
        self.contributions = _mesh_offsets(mesh, reduced)
        self.sent = [0] * mesh.size

    def choose(self, part: _Match, want: _Request) -> list[int]:
        """Return, for each contribution to the part, the worker that sends it."""
        workers = self.mesh.workers
        first = part.position + want.pending_offset
        if len(self.replicas) == 1:
            return [workers[first + contribution] for contribution in self.contributions]
        own = self.mesh.position(want.worker)
        chosen = []
        for contribution in self.contributions:
            positions = [first + contribution + replica for replica in self.replicas]
            if own in positions:
                chosen.append(want.worker)
                continue
            position = min(positions, key=self.sent.__getitem__)
            self.sent[position] += _volume(part.shape)
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


def _volume(shape: Sequence[int]) -> int:
    volume = 1
    for extent in shape:
        volume *= extent
    return volume


# Intersections -------------------------------------------------------------------------

_Matcher: TypeAlias = Callable[[Tile, Tile], list[_Match]]
_Overlap: TypeAlias = "tuple[int, slice | NDArray[np.int64], slice | NDArray[np.int64], int]"


def _matcher(source: Layout) -> _Matcher:
    """Return a function that intersects a requested part with the tiles of the source."""
    return _product_matcher(source) if source.boxes is None else _box_matcher(source)


def _product_matcher(source: Layout) -> _Matcher:
    held: list[list[tuple[int, IndexSet]]] = []
    for extent, split in zip(source.shape, source.splits, strict=True):
        if split is None:
            held.append([(0, IndexSet.range(0, extent))])
        else:
            stride = source.mesh.strides[split.mesh_axis]
            positions = range(source.mesh.shape[split.mesh_axis])
            held.append([(position * stride, split.indices_at(position)) for position in positions])
    overlaps: dict[tuple[int, IndexSet, IndexSet], list[_Overlap]] = {}

    def match(part: Tile, stored: Tile) -> list[_Match]:
        sides = []
        for axis, (wanted, store) in enumerate(zip(part, stored, strict=True)):
            key = axis, wanted, store
            if key not in overlaps:
                overlaps[key] = list(_overlaps(held[axis], wanted, store))
            sides.append(overlaps[key])
        matches = []
        for combination in product(*sides):
            positions, selects, targets, shape = zip(*combination, strict=True) if sides else _POINT
            matches.append(_Match(sum(positions), 0, selects, targets, shape))
        return matches

    return match


_POINT: tuple[tuple[int, ...], Select, Select, tuple[int, ...]] = ((), (), (), ())


def _overlaps(
    held: list[tuple[int, IndexSet]], wanted: IndexSet, stored: IndexSet
) -> Iterator[_Overlap]:
    """Yield, along one dimension: source offset, selector in the source tile, selector in the
    target tile, length."""
    for position, indices in held:
        common = indices.intersect(wanted)
        if common.size:
            select, target = indices.locate(common), stored.locate(common)
            yield position, select.selector(), target.selector(), common.size


def _box_matcher(source: Layout) -> _Matcher:
    assert source.boxes is not None
    numbers: dict[int, int] = {}
    pieces: list[tuple[int, int]] = []
    for _, worker in source.boxes:
        number = numbers[worker] = numbers.get(worker, -1) + 1
        position = source.mesh.position(worker)
        assert position is not None
        pieces.append((position, number))
    corners = np.array([box for box, _ in source.boxes], np.int64)
    corners = corners.reshape(len(pieces), len(source.shape), 2)

    def match(part: Tile, stored: Tile) -> list[_Match]:
        low = np.array([indices.start for indices in part], np.int64)
        high = np.array([indices.stop for indices in part], np.int64)
        near = ((corners[:, :, 0] < high) & (low < corners[:, :, 1])).all(axis=1)
        matches = []
        for piece in np.flatnonzero(near).tolist():
            sides: list[_Overlap] = []
            for (start, stop), wanted, store in zip(corners[piece], part, stored, strict=True):
                tile = [(0, IndexSet.range(int(start), int(stop)))]
                sides.extend(_overlaps(tile, wanted, store))
            if len(sides) == len(part):
                _, selects, targets, shape = zip(*sides, strict=True) if sides else _POINT
                matches.append(_Match(*pieces[piece], selects, targets, shape))
        return matches

    return match
