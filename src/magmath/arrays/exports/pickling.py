"""Pickling of arrays and variables by value, for `pickle` and `copy`.

A pickled array consists of its element type, its values as a NumPy array, and its layout rule; it
does not refer to a pool. It is restored on the workers of the then current pool, with the same rule
if that fits them, otherwise with the default layout. Controller and workers exchange no pickles:
this module is for users only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from magmath.arrays.inputs.conversion import bind_layout, leaf_of_tensor
from magmath.arrays.lazy_array import LazyArray
from magmath.engine import session
from magmath.engine.remote_array import remote_array_of
from magmath.errors import LayoutError
from magmath.graph import Node
from magmath.layout import Layout, Mesh, Rule
from magmath.layout.split import CutPieces, Cyclic
from magmath.memory.torch_dtypes import as_tensor, from_torch

if TYPE_CHECKING:
    Values: TypeAlias = tuple[str, np.ndarray[Any, Any], Rule | Layout | None, int]

_BITS = {"bfloat16": torch.int16}
"""Element types that NumPy lacks, and the types that store their bits."""


def values_of(array: LazyArray) -> Values:
    """Return the pickled form of an array: the arguments of `restored_leaf`."""
    tensor, layout = array.fetch(), array.layout
    name = from_torch(tensor.dtype).name
    values = tensor.view(_BITS[name]) if name in _BITS else tensor
    mesh = remote_array_of(array.evaluated_leaf()).pool.mesh
    return name, values.numpy(), _rule_of(layout, mesh), mesh.size


def restored_leaf(
    name: str, values: np.ndarray[Any, Any], rule: Rule | Layout | None, workers: int
) -> Node:
    """Return the leaf of a pickled array, on the workers of the current pool."""
    tensor = as_tensor(values)
    if name in _BITS:
        tensor = tensor.view(getattr(torch, name))
    return leaf_of_tensor(tensor.contiguous(), _fitting(rule, workers, tuple(tensor.shape)))


def _rule_of(layout: Layout, mesh: Mesh) -> Rule | Layout | None:
    """Return a rule that gives this layout on the workers of a pool, otherwise the layout itself.

    Returns None for a pool of one worker, whose layout does not determine one for more workers.
    """
    if mesh.size == 1 and layout.is_whole_on_first_worker:
        return None
    for rule in _rules(layout):
        try:
            if rule.bind(layout.shape, mesh) == layout:
                return rule
        except LayoutError:
            continue
    return layout


def _rules(layout: Layout) -> Iterator[Rule]:
    """Yield rules that may give this layout, the most general one first."""
    if layout.boxes is not None:
        yield Layout.blocks(layout.boxes)
        return
    if layout.mesh.size == 1:
        yield Layout.on(layout.mesh.workers[0])
    yield Layout.replicated()
    for dim, split in enumerate(layout.splits):
        if split is not None and isinstance(split.pieces, Cyclic):
            yield Layout.cyclic(dim, split.pieces.block)
        elif split is not None and isinstance(split.pieces, CutPieces):
            yield Layout.split(dim)
            yield Layout.split(dim, split.pieces.cuts)
    yield Layout.grid(layout.mesh.shape)
    pieces = [split.pieces for split in layout.splits if split is not None]
    blocks = [piece.block for piece in pieces if isinstance(piece, Cyclic)]
    if len(blocks) == layout.mesh.ndim:
        yield Layout.block_cyclic(blocks, layout.mesh.shape)


def _fitting(rule: Rule | Layout | None, workers: int, shape: tuple[int, ...]) -> Layout | None:
    """Return the layout for the current pool, or None for the default layout.

    Returns None if there is no rule, if the rule does not fit the workers, or if a layout is given
    and the number of workers differs.
    """
    if rule is None or (isinstance(rule, Layout) and session.engine().pool.workers != workers):
        return None
    try:
        return bind_layout("restore", rule, shape)
    except LayoutError:
        return None
