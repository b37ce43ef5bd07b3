"""The position of a mask in an index such as `x[rows, 0]`, whose other items are slices and
positions.

The index without the mask selects a part of the array, and the mask elements of that part.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

from magmath.arrays.indexing.parsed_index import index_items, is_mask, item_node
from magmath.arrays.indexing.subscripts import getitem, setitem
from magmath.graph import Node


@final
class MaskPosition(NamedTuple):
    """The position of a mask in an index.

    mask  the mask
    part  the part of the array that the rest of the index selects
    rest  that index; None if the part is the whole array
    axis  the first dimension of the mask in the part
    """

    mask: Node
    part: Node
    rest: tuple[Any, ...] | None
    axis: int

    def written(self, x: Node, part: Node) -> Node:
        """Return the node of x with another part."""
        return part if self.rest is None else setitem(x, self.rest, part)


def mask_position(x: Node, key: Any) -> MaskPosition | None:
    """Return the position of the only mask in an index.

    None for an index with other arrays, and if slices separate the mask from positions, so that
    NumPy moves the selected dimension. Raises IndexError as `parsed_index.parse`.
    """
    items = index_items(key, x.ndim)
    picked = [i for i, item in enumerate(items) if not _is_kept(item)]
    masks = [i for i in picked if is_mask(items[i])]
    if len(masks) != 1 or any(not isinstance(items[i], int) for i in picked if i not in masks):
        return None
    if picked[-1] - picked[0] >= len(picked):
        return None
    (at,) = masks
    mask = item_node(items[at])
    before = [item for item in items[:at] if item is not Ellipsis]
    first = len([item for item in before if item is not None])
    if not mask.ndim or mask.shape != x.shape[first : first + mask.ndim]:
        return None
    axis = len([item for item in before if not isinstance(item, int)])
    other_items = (*items[:at], *[slice(None)] * mask.ndim, *items[at + 1 :])
    if all(item is Ellipsis or item == slice(None) for item in other_items):
        return MaskPosition(mask, x, None, axis)
    return MaskPosition(mask, getitem(x, other_items)[0], other_items, axis)


def _is_kept(item: Any) -> bool:
    """Return True for an item that keeps a dimension, or adds one."""
    return item is None or item is Ellipsis or isinstance(item, slice)
