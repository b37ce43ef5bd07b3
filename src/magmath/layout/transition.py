"""Classification of redistributions: allgather, reduce-scatter, …, by the change of placements.

Cost models, dumps and the choice of a collective use the name; the moves alone define the result.
"""

from __future__ import annotations

from typing import TypeAlias

from magmath.layout.layout import Layout
from magmath.layout.split import Pieces

_Placement: TypeAlias = "tuple[int, Pieces] | str | None"
"""Along one mesh axis: a split dimension, a pending reduction, or None for replication."""


def collective_name(source: Layout, target: Layout) -> str:
    """Return the collective that changes `source` to `target`; "exchange" if none does.

    "gather" and "broadcast" go to and from a single worker.
    """
    if target.mesh.size == 1 < source.mesh.size:
        return "gather"
    if source.mesh.size == 1 < target.mesh.size and target.is_replicated:
        return "broadcast"
    changes = _changes(source, target)
    if changes is None:
        return "exchange"
    if not changes:  # only the shared copy must be written
        return "allgather"
    before, after = changes[0]
    if isinstance(before, tuple) and isinstance(after, tuple):
        return "all_to_all" if len(changes) == 1 and before[0] != after[0] else "exchange"
    steps = {(_letter(before), _letter(after)) for before, after in changes}
    return _NAMES.get(steps.pop(), "exchange") if len(steps) == 1 else "exchange"


_NAMES = {("S", "R"): "allgather", ("P", "R"): "allreduce", ("P", "S"): "reduce_scatter"}


def has_same_tiles(source: Layout, target: Layout) -> bool:
    """Return True if every worker stores the same tensor with the same meaning in both layouts."""
    if source == target:
        return True
    if source.shared != target.shared or (source.boxes is None) != (target.boxes is None):
        return False
    if set(source.mesh.workers) != set(target.mesh.workers):
        return False
    if (source.is_partial or target.is_partial) and (
        source.mesh.shape != target.mesh.shape
        or source.mesh.workers != target.mesh.workers
        or source.partial != target.partial
    ):
        return False
    return all(source.tiles(worker) == target.tiles(worker) for worker in source.mesh.workers)


def _changes(source: Layout, target: Layout) -> list[tuple[_Placement, _Placement]] | None:
    """Return the placements that differ, axis by axis; None if the meshes are not comparable."""
    if source.boxes is not None or target.boxes is not None:
        return None
    if source.mesh.workers == target.mesh.workers and source.mesh.shape == target.mesh.shape:
        after = [_placement(target, axis) for axis in range(target.mesh.ndim)]
    elif target.is_replicated and set(source.mesh.workers) == set(target.mesh.workers):
        after = [None] * source.mesh.ndim
    else:
        return None
    before = [_placement(source, axis) for axis in range(source.mesh.ndim)]
    pairs = zip(before, after, source.mesh.shape, strict=True)
    return [(old, new) for old, new, length in pairs if length > 1 and old != new]


def _placement(layout: Layout, mesh_axis: int) -> _Placement:
    axis = layout.axis_of(mesh_axis)
    if axis is None:
        return layout.partial[mesh_axis]
    split = layout.splits[axis]
    assert split is not None
    return axis, split.pieces


def _letter(placement: _Placement) -> str:
    if placement is None:
        return "R"
    return "P" if isinstance(placement, str) else "S"
