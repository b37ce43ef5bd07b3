"""An axis in pieces: what lets workers that hold parts of it contribute a number for each part.

Cuts, boundaries that ascend from 0 to the extent, are attributes of an operation. A dimension of
one number for each piece follows the dimension that is cut: who holds pieces holds their numbers,
provided that the dimension is divided between pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from magmath.core.index_set import IndexSet
from magmath.graph import Node
from magmath.layout import Layout, Split, even_cuts

if TYPE_CHECKING:
    import torch

Cuts = tuple[int, ...]


def cuts_along(layout: Layout, axis: int) -> Cuts | None:
    """Cuts that fit how an array lies along an axis, and its even division over its workers.

    None where everybody has the axis whole, or the pieces would be hardly fewer than the elements:
    there is nothing to be gained from them.
    """
    extent, count = layout.shape[axis], layout.mesh.size
    split = layout.splits[axis] if layout.boxes is None else None
    if count == 1 or (split is None and layout.boxes is None):
        return None
    cuts = {*even_cuts(extent, count)}
    if split is not None:
        cuts |= {*even_cuts(extent, layout.mesh.shape[split.axis]), *_listed(split)}
    return tuple(sorted(cuts)) if extent > 2 * (len(cuts) - 1) else None


def cuts_of(layout: Layout | None, axis: int) -> set[int]:
    """Where a layout cuts an axis; nothing where it does not, or more often than can be listed."""
    split = None if layout is None else layout.splits[axis]
    return set() if split is None else _listed(split)


def _listed(split: Split) -> set[int]:
    pieces = split.as_blocks()
    return set() if pieces is None else set(pieces.cuts)


def between_pieces(split: Split, cuts: Cuts, positions: Sequence[int]) -> Split | None:
    """How a dimension is divided in which `positions` are where the pieces of another begin, and
    end; None where that one is divided elsewhere than between pieces."""
    known = dict(zip(cuts, positions, strict=True))
    pieces = split.as_blocks()
    if pieces is None or not set(pieces.cuts) <= set(known):
        return None
    return split.map_positions(known.__getitem__)


def follow_pieces(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    """One number for each piece: they lie where the pieces do."""
    cuts = node.attributes["cuts"]
    return between_pieces(split, cuts, range(len(cuts)))


def pieces_held(held: IndexSet, cuts: Cuts) -> Iterator[tuple[int, int, int, int]]:
    """Of the pieces that are held: number, first index, and where they begin and end locally."""
    for number, (start, stop) in enumerate(pairwise(cuts)):
        piece = held.intersect(IndexSet.range(start, stop))
        if piece.size:
            local = held.locate(piece)
            yield number, start, local.start, local.stop


def each_piece(
    tensor: torch.Tensor, held: IndexSet, axis: int, cuts: Cuts
) -> list[tuple[int, int, torch.Tensor]]:
    """Number, first index and view of each piece of a tensor that holds some of an axis."""
    return [
        (number, first, tensor.narrow(axis, start, stop - start))
        for number, first, start, stop in pieces_held(held, cuts)
    ]


def number_held(held: IndexSet, number: int) -> int:
    """Where the number of a piece is stored by who holds some of them."""
    return held.locate(IndexSet.range(number, number + 1)).start


def letters_of(letters: str, axis: int, change: Callable[[str], str]) -> str:
    """An operand's letters with that of one axis changed."""
    return letters[:axis] + change(letters[axis]) + letters[axis + 1 :]
