"""Splits: a split says how one dimension is divided into pieces, and which coordinate of a mesh
axis owns each piece.

`CutPieces` lists its cuts: even, uneven, any owner. `Cyclic` assigns equal blocks in turn and needs
three integers for any extent. `HaloRanges` may overlap: the elements that a stencil reads. A
`Split` assigns one of them to an axis of a mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import index
from typing import Any, TypeAlias, final

from magmath.core.index_set import IndexSet
from magmath.errors import LayoutError

MAX_LISTED = 1024  # pieces


def even_cuts(extent: int, count: int) -> tuple[int, ...]:
    """Return the boundaries of `count` contiguous pieces; the first extent % count are one
    longer."""
    short, longer = divmod(extent, count)
    return tuple([piece * short + min(piece, longer) for piece in range(count + 1)])


@final
@dataclass(frozen=True)
class CutPieces:
    """Contiguous pieces [cuts[i], cuts[i + 1]), piece i owned by coordinate owners[i].

    `cuts` ascend from 0 to the extent; equal neighbours make an empty piece. A coordinate may own
    any number of pieces, including none. Raises LayoutError if cuts or owners are malformed.
    """

    cuts: tuple[int, ...]
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        cuts = self.cuts
        descends = any(a > b for a, b in pairwise(cuts))
        if not cuts or cuts[0] != 0 or descends:
            raise LayoutError(
                f"cuts must ascend from 0 to the length of the dimension, not {_short(cuts)}"
                "; sort them, and begin with 0"
            )
        if len(self.owners) != len(cuts) - 1 or min(self.owners, default=0) < 0:
            raise LayoutError(
                f"{len(cuts) - 1} pieces need as many owners, each a coordinate from 0 up, "
                f"not {_short(self.owners)}"
                "; name one coordinate for each piece"
            )

    @property
    def extent(self) -> int:
        """The length of the dimension."""
        return self.cuts[-1]

    @property
    def span(self) -> int:
        """One more than the highest owner: the minimum length of a mesh axis for this split."""
        return max(self.owners, default=-1) + 1

    def indices_at(self, coordinate: int) -> IndexSet:
        """Return the indices that the coordinate owns, possibly none."""
        return self._by_owner.get(coordinate, _NOTHING)

    @cached_property
    def _by_owner(self) -> dict[int, IndexSet]:
        pieces: dict[int, list[int]] = {}
        for piece, owner in enumerate(self.owners):
            pieces.setdefault(owner, []).append(piece)
        cuts = self.cuts
        return {
            owner: IndexSet.range(cuts[owned[0]], cuts[owned[0] + 1])
            if len(owned) == 1
            else IndexSet.from_segments([cuts[i] for i in owned], [cuts[i + 1] for i in owned])
            for owner, owned in pieces.items()
        }

    def describe(self, length: int) -> str:
        """Return the difference from an even split on an axis of `length`, for short prints."""
        count = len(self.owners)
        in_order = self.owners == tuple(range(count))
        if in_order and count == length and self.cuts == even_cuts(self.extent, count):
            return ""
        if not in_order or count > 8:
            return f": {count} pieces"
        return f": {'+'.join([str(b - a) for a, b in pairwise(self.cuts)])}"


@final
@dataclass(frozen=True)
class Cyclic:
    """Blocks of `block` indices, assigned in turn to the coordinates 0 … count - 1.

    Raises LayoutError if the extent is negative, or block or count is below 1.
    """

    extent: int
    block: int
    count: int

    def __post_init__(self) -> None:
        if self.extent < 0 or self.block < 1 or self.count < 1:
            raise LayoutError(
                f"a cyclic split needs extent >= 0, block >= 1 and count >= 1, not "
                f"extent {self.extent}, block {self.block}, count {self.count}"
            )

    @property
    def span(self) -> int:
        """The minimum length of a mesh axis for this split."""
        return self.count

    def indices_at(self, coordinate: int) -> IndexSet:
        """Return the indices that the coordinate owns, possibly none."""
        if not 0 <= coordinate < self.count:
            return _NOTHING
        return IndexSet.regular(
            coordinate * self.block, self.extent, self.block, self.block * self.count
        )

    def as_cut_pieces(self) -> CutPieces | None:
        """Return the same pieces as `CutPieces`; None if there are more than `MAX_LISTED`."""
        count = -(-self.extent // self.block)
        if count > MAX_LISTED:
            return None
        cuts = (*range(0, self.extent, self.block), self.extent)
        return CutPieces(cuts, tuple([piece % self.count for piece in range(count)]))

    def describe(self, length: int) -> str:
        """Return the difference from an even split on an axis of `length`, for short prints."""
        return f" by {self.block}"


@final
@dataclass(frozen=True)
class HaloRanges:
    """Any range [start, stop) for each coordinate: with overlaps, with gaps, or empty.

    The layout of a temporary copy with halos: a worker's own elements and neighbouring elements of
    other workers, whose owners are defined by the layout that the copy comes from. Raises
    LayoutError for a range outside the dimension.
    """

    extent: int
    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if any(not 0 <= start <= stop <= self.extent for start, stop in self.ranges):
            raise LayoutError(
                f"halo ranges must be within a dimension of length {self.extent}, not {self.ranges}"
            )

    @property
    def span(self) -> int:
        """The minimum length of a mesh axis for this split."""
        return len(self.ranges)

    def indices_at(self, coordinate: int) -> IndexSet:
        """Return the indices that the coordinate stores."""
        if not 0 <= coordinate < len(self.ranges):
            return _NOTHING
        return IndexSet.range(*self.ranges[coordinate])

    def describe(self, length: int) -> str:
        """Return the difference from an even split on an axis of `length`, for short prints."""
        stored = sum([stop - start for start, stop in self.ranges])
        return f": halos {stored - self.extent:+}"


Pieces: TypeAlias = "CutPieces | Cyclic | HaloRanges"


@final
@dataclass(frozen=True)
class Split:
    """The split of an array dimension along `mesh_axis` into `pieces`."""

    mesh_axis: int
    pieces: Pieces

    @staticmethod
    def even(mesh_axis: int, extent: int, count: int) -> Split:
        """Return a split into contiguous, nearly equal pieces, one for each of `count`
        coordinates."""
        return Split(mesh_axis, _even(extent, count))

    @property
    def extent(self) -> int:
        """The length of the dimension."""
        return self.pieces.extent

    def indices_at(self, coordinate: int) -> IndexSet:
        """Return the indices at this coordinate of the mesh axis."""
        return self.pieces.indices_at(coordinate)

    def as_cut_pieces(self) -> CutPieces | None:
        """Return the pieces as `CutPieces`; None if there are too many, and for halo ranges."""
        if isinstance(self.pieces, Cyclic):
            return self.pieces.as_cut_pieces()
        return self.pieces if isinstance(self.pieces, CutPieces) else None

    def map_positions(self, position: Callable[[int], int]) -> Split | None:
        """Return the split of a dimension whose first position(i) elements come from the first i of
        this.

        `position` ascends; it descends for a reversed dimension, whose first position(i) elements
        come from the rest. None if the pieces cannot be listed.
        """
        pieces = self.as_cut_pieces()
        if pieces is None:
            return None
        cuts, owners = tuple([position(cut) for cut in pieces.cuts]), pieces.owners
        if cuts[0] > cuts[-1]:
            cuts, owners = cuts[::-1], owners[::-1]
        return Split(self.mesh_axis, CutPieces(cuts, owners))

    def with_halo(self, needed: Callable[[int, int], tuple[int, int]], extent: int) -> Split | None:
        """Return the split with halos: elements i to j of this dimension read the range needed(i,
        j) of a dimension of `extent`, clipped to its ends.

        None if the elements of a coordinate are not a contiguous range.
        """
        ranges = []
        for coordinate in range(self.pieces.span):
            own_indices = self.indices_at(coordinate)
            if not own_indices.is_range:
                return None
            start, stop = (
                needed(own_indices.start, own_indices.stop) if own_indices.size else (0, 0)
            )
            start = min(max(start, 0), extent)
            ranges.append((start, min(max(stop, start), extent)))
        return Split(self.mesh_axis, HaloRanges(extent, tuple(ranges)))

    def encode(self) -> tuple[Any, ...]:
        """Return nested tuples of plain integers and strings."""
        if isinstance(self.pieces, HaloRanges):
            return self.mesh_axis, "halos", (self.pieces.extent,), self.pieces.ranges
        if isinstance(self.pieces, Cyclic):
            cyclic = self.pieces
            return self.mesh_axis, "cyclic", (cyclic.extent, cyclic.block, cyclic.count)
        return self.mesh_axis, "cuts", self.pieces.cuts, self.pieces.owners

    @staticmethod
    def decode(encoded: Any) -> Split:
        """Rebuild the split from the result of `encode`. Raises LayoutError if it is malformed."""
        try:
            mesh_axis, kind, *numbers = encoded
            if kind == "cyclic":
                extent, block, count = _integers(numbers[0])
                return Split(index(mesh_axis), Cyclic(extent, block, count))
            if kind == "halos":
                ranges = tuple([(index(start), index(stop)) for start, stop in numbers[1]])
                return Split(index(mesh_axis), HaloRanges(index(numbers[0][0]), ranges))
            cuts, owners = numbers
            if kind == "cuts":
                return Split(index(mesh_axis), CutPieces(_integers(cuts), _integers(owners)))
        except (TypeError, ValueError, IndexError) as error:
            raise LayoutError(f"a malformed split cannot be decoded: {error}") from error
        raise LayoutError(f"a malformed split cannot be decoded: unknown kind {kind!r}")


_NOTHING = IndexSet.range(0, 0)


@lru_cache(maxsize=4096)
def _even(extent: int, count: int) -> CutPieces:
    return CutPieces(even_cuts(extent, count), tuple(range(count)))


def _integers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple([index(value) for value in values])


def _short(values: tuple[int, ...]) -> str:
    return str(values) if len(values) <= 8 else f"({', '.join(map(str, values[:8]))}, …)"
