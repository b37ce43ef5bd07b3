"""The layout: the distribution of an array of a given shape over a mesh of workers.

A product layout says for each array dimension along which mesh axis it is split, if any, and for
each mesh axis whether it holds a pending reduction; a mesh axis that does neither replicates. A
boxes layout places arbitrary rectangles on arbitrary workers. Layouts are immutable, hashable and
small; every process computes from them, without communication, which indices each worker stores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import index
from typing import Any, final

from magmath.core.bounded_memo import store_bounded
from magmath.core.index_set import IndexSet, Tile, tile_shape
from magmath.errors import LayoutError
from magmath.layout.boxes import Box
from magmath.layout.checks import check_boxes, check_extents, check_partial, check_splits
from magmath.layout.mesh import Mesh
from magmath.layout.rule import (
    BoxesRule,
    BoxLike,
    CyclicRule,
    GridRule,
    ReplicatedRule,
    RuleKind,
    SplitRule,
    WorkerRule,
    require_workers,
)
from magmath.layout.split import HaloRanges, Split


@final
@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """The distribution of an array of `shape` over `mesh`.

    `splits[d]`: the split of dimension d, or None if it is whole. A mesh axis splits at most one
    dimension. `partial[a]`: the reduction that is pending along mesh axis a, or None; `()` means
    that no reduction is pending. All pending reductions of an array have one name. `boxes`: ((box,
    worker), …) that tile the array exactly, instead of splits and partial; a worker stores its
    boxes one after another, in this order, each in C order, in one flat buffer. `shared`: an array
    replicated on the whole mesh that is stored once per host, in the shared window of the host's
    first worker.

    Raises LayoutError if the parts contradict each other.
    """

    shape: tuple[int, ...]
    mesh: Mesh
    splits: tuple[Split | None, ...]
    partial: tuple[str | None, ...] = ()
    boxes: tuple[tuple[Box, int], ...] | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.partial:
            object.__setattr__(self, "partial", (None,) * self.mesh.ndim)
        check_extents(self)
        check_splits(self)
        check_partial(self)
        if self.shared and not self._is_plain:
            raise LayoutError(f"a shared array must be replicated, this layout is {self.text()}")
        if self.boxes is not None:
            check_boxes(self)

    # Rules: layouts as users write them, bound to a shape and a mesh later.

    @staticmethod
    def replicated() -> Rule:
        """Return the rule by which every worker stores the whole array."""
        return Rule(ReplicatedRule())

    @staticmethod
    def split(
        axis: int, cuts: Sequence[int] | None = None, *, mesh_axis: int | str | None = None
    ) -> Rule:
        """Return the rule that splits dimension `axis` into contiguous pieces, one for each worker.

        `cuts`: boundaries of the pieces from 0 to the extent of the dimension, at most one piece
        for each worker; by default the pieces are as equal as possible. `mesh_axis`: split along
        this axis of the mesh only and replicate along the others; by default along the whole mesh.
        """
        return Rule(SplitRule.of(axis, cuts, mesh_axis))

    @staticmethod
    def cyclic(axis: int, block: int = 1, *, mesh_axis: int | str | None = None) -> Rule:
        """Return the rule that assigns blocks of dimension `axis` to the workers in turn."""
        return Rule(CyclicRule.of(axis, block, mesh_axis))

    @staticmethod
    def grid(shape: Sequence[int]) -> Rule:
        """Return the rule that splits the first dimensions over a grid of workers."""
        return Rule(GridRule.of(shape))

    @staticmethod
    def block_cyclic(blocks: Sequence[int], grid: Sequence[int]) -> Rule:
        """Return ScaLAPACK's distribution: blocks (mb, nb) cyclic over a grid (p, q) of workers."""
        return Rule(GridRule.of(grid, blocks))

    @staticmethod
    def on(worker: int) -> Rule:
        """Return the rule that stores the whole array on one worker."""
        return Rule(WorkerRule.of(worker))

    @staticmethod
    def blocks(boxes: Sequence[tuple[BoxLike, int]]) -> Rule:
        """Return the rule that places boxes on workers: [(box, worker), …].

        A box is a slice or a (start, stop) pair for each dimension; the boxes must tile the array.
        """
        return Rule(BoxesRule.of(boxes))

    # Bound layouts, as planners create them.

    @staticmethod
    def replicated_on(shape: Sequence[int], mesh: Mesh, *, shared: bool = False) -> Layout:
        """Return the layout that replicates an array on every worker of the mesh."""
        return _replicated_on(tuple(shape), mesh, shared)

    @staticmethod
    def even(shape: Sequence[int], mesh: Mesh, axis: int, mesh_axis: int = 0) -> Layout:
        """Return the layout with dimension `axis` split evenly along `mesh_axis`, and
        replicated along the others."""
        return _even(tuple(shape), mesh, axis, mesh_axis)

    def replace_split(self, axis: int, split: Split | None) -> Layout:
        """Return this layout with dimension `axis` split by `split`, or unsplit if it is None."""
        splits = list(self.splits)
        splits[axis] = split
        return replace(self, splits=tuple(splits), shared=False)

    def interned(self) -> Layout:
        """Return an equal layout, the same one for all equal ones: the comparison of identical
        objects is fast, and they share their cached properties."""
        return _interned.get(self) or store_bounded(_interned, self, self, MAX_INTERNED)

    def without_partial(self) -> Layout:
        """Return this layout with every pending reduction completed: replicated along those
        axes."""
        return replace(self, partial=()) if self.is_partial else self

    # Properties.

    @property
    def ndim(self) -> int:
        """The number of dimensions of the array."""
        return len(self.shape)

    @cached_property
    def size(self) -> int:
        """The number of elements of the whole array."""
        return math.prod(self.shape)

    @cached_property
    def reduction(self) -> str | None:
        """The name of the pending reduction, or None."""
        return next((name for name in self.partial if name is not None), None)

    @property
    def is_partial(self) -> bool:
        """True if a reduction is pending."""
        return self.reduction is not None

    @cached_property
    def is_replicated(self) -> bool:
        """True if each worker of the mesh stores the whole array, with no pending reduction."""
        return (
            self.boxes is None
            and not self.is_partial
            and all(s is None or self.mesh.shape[s.mesh_axis] == 1 for s in self.splits)
        )

    @cached_property
    def has_even_splits(self) -> bool:
        """True if all split dimensions are divided into contiguous, nearly equal pieces in
        order."""
        shape = self.mesh.shape
        return all(
            split is None
            or split == Split.even(split.mesh_axis, split.extent, shape[split.mesh_axis])
            for split in self.splits
        )

    @cached_property
    def has_replicas(self) -> bool:
        """True if several workers store the same elements."""
        axes = enumerate(self.mesh.shape)
        unreduced = [a for a, n in axes if n > 1 and self.partial[a] is None]
        return self.boxes is None and any(self.axis_of(a) is None for a in unreduced)

    @cached_property
    def is_whole_on_first_worker(self) -> bool:
        """True if worker 0 alone stores the array, undivided, in a pool of any size."""
        return self == Layout.replicated_on(self.shape, Mesh.line(1))

    @property
    def has_overlaps(self) -> bool:
        """True if workers store halo ranges of a dimension, which may overlap."""
        return any(
            split is not None and isinstance(split.pieces, HaloRanges) for split in self.splits
        )

    def mesh_axis_of(self, axis: int) -> int | None:
        """Return the mesh axis that splits dimension `axis`, or None."""
        split = self.splits[axis]
        return None if split is None else split.mesh_axis

    def axis_of(self, mesh_axis: int) -> int | None:
        """Return the dimension that `mesh_axis` splits, or None."""
        return self._axes[mesh_axis]

    @cached_property
    def _axes(self) -> tuple[int | None, ...]:
        axes: list[int | None] = [None] * self.mesh.ndim
        for axis, split in enumerate(self.splits):
            if split is not None:
                axes[split.mesh_axis] = axis
        return tuple(axes)

    def placement(self, mesh_axis: int) -> str:
        """Return the placement along one mesh axis: "S(0)", "R" or "P(sum)"."""
        axis = self._axes[mesh_axis]
        if axis is not None:
            split = self.splits[axis]
            assert split is not None
            return f"S({axis}{split.pieces.describe(self.mesh.shape[mesh_axis])})"
        name = self.partial[mesh_axis]
        return "R" if name is None else f"P({name})"

    # Tiles of workers.

    def tiles(self, worker: int) -> tuple[Tile, ...]:
        """Return the tiles that a worker stores.

        A product layout has one tile (possibly of size 0) on each worker of the mesh; a boxes
        layout one for each of the worker's boxes. A worker outside the mesh has none.
        """
        tiles = self._tiles.get(worker)
        if tiles is None:
            tiles = self._tiles[worker] = self._tiles_of(worker)
        return tiles

    @cached_property
    def _tiles(self) -> dict[int, tuple[Tile, ...]]:
        return {}

    def _tiles_of(self, worker: int) -> tuple[Tile, ...]:
        if self.boxes is not None:
            return tuple([_tile(box) for box, owner in self.boxes if owner == worker])
        coordinate = self.mesh.coordinate(worker)
        if coordinate is None:
            return ()
        return (
            tuple(
                [
                    IndexSet.range(0, extent)
                    if split is None
                    else split.indices_at(coordinate[split.mesh_axis])
                    for extent, split in zip(self.shape, self.splits, strict=True)
                ]
            ),
        )

    def local_shape(self, worker: int) -> tuple[int, ...]:
        """Return the shape of the tensor in which a worker stores its part.

        For a boxes layout it is flat, `(n,)`. A worker outside the mesh stores an empty tensor:
        `(0,) * ndim`, and `(0,)` for an array without dimensions. So a shape is always returned,
        and its size is `local_size(worker)`.
        """
        shape = self._local_shapes.get(worker)
        if shape is None:
            shape = self._local_shapes[worker] = self._local_shape_of(worker)
        return shape

    @cached_property
    def _local_shapes(self) -> dict[int, tuple[int, ...]]:
        return {}

    def _local_shape_of(self, worker: int) -> tuple[int, ...]:
        if self._is_plain and self.mesh.position(worker) is not None:
            return self.shape
        tiles = self.tiles(worker)
        if self.boxes is not None:
            return (sum(math.prod(tile_shape(tile)) for tile in tiles),)
        return tile_shape(tiles[0]) if tiles else (0,) * max(self.ndim, 1)

    def local_size(self, worker: int) -> int:
        """Return the number of elements that a worker stores."""
        return math.prod(self.local_shape(worker))

    def tile_spans(self, worker: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Return the offset in the flat local buffer and the shape of each tile of a worker."""
        spans, offset = [], 0
        for tile in self.tiles(worker):
            shape = tile_shape(tile)
            spans.append((offset, shape))
            offset += math.prod(shape)
        return tuple(spans)

    @cached_property
    def max_local_shape(self) -> tuple[int, ...]:
        """The largest extent of each dimension of the tensors in which workers store their
        parts."""
        if self.boxes is not None:
            return max([self.local_shape(worker) for worker in self.mesh.workers])
        return tuple(
            [
                extent
                if split is None
                else max(
                    [split.indices_at(c).size for c in range(self.mesh.shape[split.mesh_axis])]
                )
                for extent, split in zip(self.shape, self.splits, strict=True)
            ]
        )

    @cached_property
    def max_local_size(self) -> int:
        """The largest number of elements that any worker stores."""
        return math.prod(self.max_local_shape)

    # Identity, printing, encoding.

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.mesh, self.splits, self.partial, self.boxes, self.shared))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Layout)
            and self._hash == other._hash
            and self.shape == other.shape
            and self.mesh == other.mesh
            and self.splits == other.splits
            and self.partial == other.partial
            and self.boxes == other.boxes
            and self.shared == other.shared
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt on unpickling, since the hash of a string differs between processes.
        return Layout.decode, (self.encode(),)

    def text(self) -> str:
        """Return the placements without the workers: "S(0)", "[S(0)@data, R@model]"."""
        if self.boxes is not None:
            return f"boxes({len(self.boxes)})"
        if self.mesh.ndim == 1:
            text = self.placement(0)
        elif self._is_plain:
            text = "R"
        else:
            axes = range(self.mesh.ndim)
            parts = [f"{self.placement(axis)}@{self.mesh.names[axis]}" for axis in axes]
            text = f"[{', '.join(parts)}]"
        return text + (", shared" if self.shared else "")

    def __str__(self) -> str:
        return self.text() + self.mesh.suffix

    def __repr__(self) -> str:
        return f"<Layout of {self.shape}: {self}>"

    def _repr_html_(self) -> str:
        """Return a picture for notebooks: the shape, and the workers that store each region."""
        from magmath.layout.svg import draw_layout

        return draw_layout(self)

    @cached_property
    def _is_plain(self) -> bool:
        return self.boxes is None and not any(self.splits) and not self.is_partial

    def encode(self) -> tuple[Any, ...]:
        """Return nested tuples of integers and strings (suitable for msgpack) that `decode`
        reads."""
        boxes = () if self.boxes is None else (self.boxes,)
        return (
            self.shape,
            self.mesh.encode(),
            tuple([() if split is None else split.encode() for split in self.splits]),
            tuple([name or "" for name in self.partial]),
            boxes,
            int(self.shared),
        )

    @staticmethod
    def decode(encoded: Any) -> Layout:
        """Rebuild the layout from the result of `encode`, in which lists may replace tuples.

        Raises LayoutError if `encoded` is malformed.
        """
        try:
            shape, mesh, splits, partial, boxes, shared = encoded
            return Layout(
                tuple([index(extent) for extent in shape]),
                Mesh.decode(mesh),
                tuple([Split.decode(split) if split else None for split in splits]),
                tuple([name or None for name in partial]),
                _decode_boxes(boxes[0]) if boxes else None,
                bool(index(shared)),
            )
        except (TypeError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(f"a malformed layout cannot be decoded: {error}") from error


@final
@dataclass(frozen=True, repr=False)
class Rule:
    """A layout as users write it, by the constructors of `Layout`, before the array shape and the
    workers are known. `mesh`: the workers, by default the whole pool."""

    kind: RuleKind
    mesh: Mesh | None = None

    def over(self, mesh: Mesh) -> Rule:
        """Return this rule on the workers of `mesh` instead of the whole pool."""
        if not isinstance(mesh, Mesh):
            raise LayoutError(
                f"{self}.over needs a mesh, was given {mesh!r}; write mm.Mesh(2), or "
                f"mm.Mesh(2, workers=[1, 3]) for certain workers"
            )
        return replace(self, mesh=mesh)

    def bind(self, shape: Sequence[int], mesh: Mesh) -> Layout:
        """Return the layout of an array of `shape` over `mesh`, the workers of the pool.

        A grid of p * q uses the first p * q workers. Raises LayoutError if the rule does not fit
        the shape or the workers.
        """
        extents = tuple([index(extent) for extent in shape])
        if self.mesh is None:
            return _bound(self.kind, extents, mesh)
        require_workers(self, self.mesh.workers, mesh)
        try:
            return _bound(self.kind, extents, self.mesh)
        except LayoutError as error:  # the kind does not know the mesh
            raise LayoutError(str(error).replace(str(self.kind), str(self))) from None

    def __str__(self) -> str:
        return str(self.kind) + ("" if self.mesh is None else f".over({self.mesh})")

    __repr__ = __str__


def _bound(kind: RuleKind, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    """Return the layout of an array of `shape` over workers of `mesh`."""
    own = kind.mesh_of(mesh)
    return Layout(shape, own, kind.splits(shape, own), boxes=kind.boxes(shape))


MAX_INTERNED = 16_384
_interned: dict[Layout, Layout] = {}


@lru_cache(maxsize=4096)
def _even(shape: tuple[int, ...], mesh: Mesh, axis: int, mesh_axis: int) -> Layout:
    """Return `Layout.even`, interned."""
    split = Split.even(mesh_axis, shape[axis], mesh.shape[mesh_axis])
    return Layout.replicated_on(shape, mesh).replace_split(axis, split).interned()


@lru_cache(maxsize=4096)
def _replicated_on(shape: tuple[int, ...], mesh: Mesh, shared: bool) -> Layout:
    """Return `Layout.replicated_on`, interned."""
    return Layout(shape, mesh, (None,) * len(shape), shared=shared).interned()


def _tile(box: Box) -> Tile:
    return tuple([IndexSet.range(start, stop) for start, stop in box])


def _decode_boxes(encoded: Any) -> tuple[tuple[Box, int], ...]:
    return tuple(
        [
            (tuple([(index(start), index(stop)) for start, stop in box]), index(worker))
            for box, worker in encoded
        ]
    )
