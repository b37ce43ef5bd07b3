"""Computing nodes at once, one kernel after the other: what small arrays need no program for.

Planning pays where arrays are large or far away. For a few kilobytes on the one worker of this
process it costs more than it saves, so the operations' own kernels are called as the nodes come,
each on memory of the heap that is used again as soon as its last reader has run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from magmath.core.dtypes import DType
from magmath.core.index import IndexSet, Tile
from magmath.graph import LocalCall, Node, Shape
from magmath.layout import Layout, Mesh
from magmath.memory.stored import Stored
from magmath.memory.tensors import to_torch
from magmath.ops.leaves import CONSTANT, PARAMETER
from magmath.program.bind import blame
from magmath.program.execute import Context


def compute(
    context: Context,
    order: Sequence[Node],
    wanted: Sequence[Node],
    stored: Callable[[Node], Stored],
) -> list[Stored]:
    """The values of `wanted`, in new memory, by the nodes in `order`, each after its inputs.

    `stored` gives the arrays behind the leaves and the nodes that are known. What goes wrong
    carries the user's line that built the failing node, and leaves nothing allocated.
    """
    heap = context.heap
    readers = _readers(order, wanted)
    tensors: dict[Node, torch.Tensor] = {}
    made: dict[Node, Stored] = {}
    for node in order:
        try:
            if node.operation is PARAMETER:
                tensors[node] = scalar(node.value, node.dtype)
            elif node.operation is CONSTANT:
                tensors[node] = scalar(node.attributes["value"], node.dtype)
            elif node.value is not None:
                tensors[node] = stored(node).tensor
            else:
                out = made[node] = Stored.allocate(heap, _whole(node.shape).layout, node.dtype, 0)
                tensors[node] = out.tensor
                _call(node, tensors, context)
                for source in node.inputs:
                    readers[source] -= 1
                    if not readers[source] and source in made:
                        made.pop(source).free(heap)
        except Exception as error:
            for left in made.values():
                left.free(heap)
            blame(error, node)
            raise
    return [made[node] for node in wanted]


def _readers(order: Sequence[Node], wanted: Sequence[Node]) -> dict[Node, int]:
    """How often each node will be read; what is wanted once more."""
    readers = dict.fromkeys(order, 0)
    for node in order:
        if node.value is None:
            for source in node.inputs:
                readers[source] += 1
    for node in wanted:
        readers[node] += 1
    return readers


def _call(node: Node, tensors: Mapping[Node, torch.Tensor], context: Context) -> None:
    """Compute a node's value in its tensor, by the operation's own kernel."""
    place = _whole(node.shape)
    if not place.layout.size:
        return
    shapes = [source.shape for source in node.inputs]
    local = LocalCall(
        tensors[node],
        [tensors[source] for source in node.inputs],
        node.attributes,
        place.tile,
        [_whole(shape).tile for shape in shapes],
        node.shape,
        shapes,
        context,
    )
    node.operation.kernel(local)()


def scalar(value: bool | int | float | complex, dtype: DType) -> torch.Tensor:
    """A Python number as a 0-d tensor; to be read only."""
    if value and type(value) is not complex:  # two zeros are equal and may differ in sign
        return _kept_scalar(value, dtype)
    return _new_scalar(value, dtype)


def _new_scalar(value: bool | int | float | complex, dtype: DType) -> torch.Tensor:
    return torch.zeros((), dtype=to_torch(dtype)).fill_(value)


_kept_scalar = lru_cache(maxsize=1024, typed=True)(_new_scalar)


class _Whole(NamedTuple):
    """Where an array of one worker lies, and which elements are in its tile: all of them."""

    layout: Layout
    tile: Tile


@lru_cache(maxsize=4096)
def _whole(shape: Shape) -> _Whole:
    tile = tuple([IndexSet.range(0, extent) for extent in shape])
    return _Whole(Layout.whole(shape, Mesh.line(1)), tile)
