"""Halo copies: slices of one array that cross the borders between workers are views of one copy.

In a finite difference such as `u[2:] - 2 * u[1:-1] + u[:-2]`, each worker needs some rows of its
neighbours. Each slice would be moved on its own, a copy of nearly all of its rows. This pass copies
the array once, into tiles that include the rows around them (a halo), and reads each slice as a
part of these. The parts are views, which join the loops of their readers, and an array that is
computed in the program is computed inside of its tile (`passes/assign_buffers.py`), so that only
the halo is copied. An element-wise expression of slices that is moved as a whole is computed where
it is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from magmath.core.index_set import IndexSet
from magmath.graph import Graph, Node, users_of
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout, plan_redistribution
from magmath.layout.split import HaloRanges, Split
from magmath.ops.redistribute import redistribute
from magmath.ops.slicing import SLICE
from magmath.passes.aliasing import is_cross_worker, is_part
from magmath.passes.environment import Environment

HALO_SHARE: Final = 8
"""The halos of all workers are at most one part in this many of the extent."""
MAX_DEPTH: Final = 100
"""Maximum depth of an expression that is computed after its move."""


def share_halos(graph: Graph, environment: Environment) -> Graph:
    """Return the placed graph with parts of one copy with halos in place of the moved slices of an
    array."""
    if environment.workers == 1 or all(node.operation is not SLICE for node in graph.nodes):
        return graph
    moved_before = _computed_after_move(graph)
    graph = graph.replaced(moved_before) if moved_before else graph
    moves: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if _is_moved_slice(node):
            moves[node.inputs[0].inputs[0]].append(node)
    new: dict[Node, Node] = {}
    for array, moved in moves.items():
        if array.is_leaf and len(moved) == 1:  # a copy of the array, or of a part of it
            continue
        layout = _with_halos(layout_of(array), moved)
        if layout is not None:
            copy = redistribute(array, layout, moved[0].line)
            new |= {node: _part(node, copy) for node in moved}
    return graph.replaced(new) if new else graph


def _computed_after_move(graph: Graph) -> dict[Node, Node]:
    """Return, for moved expressions of slices, the same expressions of moved slices."""
    users = users_of(graph.nodes)
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.name == "redistribute" and _is_little_moved(node):
            expression = _moved(node.inputs[0], layout_of(node), users, MAX_DEPTH)
            if expression is not None:
                new[node] = expression
    return new


def _is_little_moved(node: Node) -> bool:
    """Return True for a move in which workers receive few elements of others."""
    have, want = layout_of(node.inputs[0]), layout_of(node)
    if not node.inputs[0].operation.is_elementwise or have.is_partial or want.shared:
        return False
    if not (is_cross_worker(have, want) and want.mesh == have.mesh):
        return False
    return plan_redistribution(have, want).total_bytes(1) * HALO_SHARE <= node.size


def _moved(
    node: Node, layout: Layout, users: Mapping[Node, Sequence[Node]], depth: int
) -> Node | None:
    """Return an expression that is computed in another layout, of moved slices; None if it reads
    other arrays, others read it, or it is deeper than `depth`."""
    if node.name == "redistribute":
        return _moved(node.inputs[0], layout, users, depth)
    if node.operation is SLICE:
        return redistribute(node, layout)
    if not node.operation.is_elementwise or len(users[node]) > 1 or not depth:
        return None
    inputs: list[Node] = []
    for x in node.inputs:
        if x.shape not in ((), node.shape):
            return None
        moved = _moved(x, layout, users, depth - 1) if x.shape else x
        if moved is None:
            return None
        inputs.append(moved)
    return node.replace(tuple(inputs), layout)


def _is_moved_slice(node: Node) -> bool:
    """Return True for a slice of successive elements that is moved into another layout."""
    if node.name != "redistribute" or node.inputs[0].operation is not SLICE:
        return False
    part, want = node.inputs[0], layout_of(node)
    have, array = layout_of(part), layout_of(part.inputs[0])
    if any(step != 1 for _, _, step in part.attributes["bounds"]):
        return False
    if any(x.shared or x.is_partial or x.boxes for x in (have, want, array)):
        return False
    return want.mesh == array.mesh and is_cross_worker(have, want)


def _start(moved: Node) -> tuple[int, ...]:
    """Return the index in the array of the first element of a moved slice."""
    return tuple([first for first, _, _ in moved.inputs[0].attributes["bounds"]])


def _part(moved: Node, copy: Node) -> Node:
    """Return the slice of the copy with halos, in the layout of the moved one."""
    return moved.inputs[0].replace((copy,), layout_of(moved))


def _with_halos(layout: Layout, moved: Sequence[Node]) -> Layout | None:
    """Return the layout of an array with the elements around each tile that moved slices of it
    need; None if these are many, or not around the tile."""
    wide = layout
    for d, split in enumerate(layout.splits):
        if split is not None:
            with_halo = _split_with_halo(split, d, moved)
            if with_halo is None:
                return None
            wide = wide.replace_split(d, with_halo)
    wide = wide.interned()
    parts = [(layout_of(node), _start(node)) for node in moved]
    return wide if all(is_part(wide, part, start) for part, start in parts) else None


def _split_with_halo(split: Split, d: int, moved: Sequence[Node]) -> Split | None:
    """Return the split of dimension `d` with the indices around each range that slices need."""
    ranges, added = [], 0
    for coordinate in range(split.pieces.span):
        own_indices = split.indices_at(coordinate)
        needed = [own_indices]
        for node in moved:
            want = layout_of(node).splits[d]
            if want is None or want.mesh_axis != split.mesh_axis:
                return None
            needed.append(want.indices_at(coordinate).shifted(_start(node)[d]))
        if not own_indices.size or not all(x.is_range for x in needed):
            return None
        first, stop = _hull([x for x in needed if x.size])
        ranges.append((first, stop))
        added += stop - first - own_indices.size
    if added * HALO_SHARE > split.extent:
        return None
    return Split(split.mesh_axis, HaloRanges(split.extent, tuple(ranges)))


def _hull(ranges: Sequence[IndexSet]) -> tuple[int, int]:
    """Return the first index of some ranges and the one after their last."""
    return min([x.start for x in ranges]), max([x.stop for x in ranges])
