"""The default target of a pending reduction: a layout in which every worker reduces its own
part."""

from __future__ import annotations

from functools import lru_cache

from magmath.layout import CutPieces, Layout, Mesh, Split, even_cuts


@lru_cache(maxsize=4096)
def default_reduction(layout: Layout) -> Layout:
    """Return the layout without pending reductions.

    Along each mesh axis with a pending reduction, the first dimension that is long enough is split;
    the array is replicated along the axis if no dimension is.
    """
    result = layout.without_partial()
    for axis in reversed(range(layout.mesh.ndim)):  # a merged axis renumbers later axes
        if layout.partial[axis] is not None:
            result = _scattered(result, axis)
    return result


def _scattered(layout: Layout, axis: int) -> Layout:
    """Return the layout with a dimension split along an axis that replicates: an unsplit dimension,
    or each piece of a dimension that is split along another axis."""
    count = layout.mesh.shape[axis]
    for dim, extent in enumerate(layout.shape):
        if layout.splits[dim] is None and extent >= count:
            return layout.replace_split(dim, Split.even(axis, extent, count))
    for dim, split in enumerate(layout.splits):
        if split is not None and isinstance(split.pieces, CutPieces):
            lengths = [
                b - a for a, b in zip(split.pieces.cuts, split.pieces.cuts[1:], strict=False)
            ]
            if min(lengths, default=0) >= count:
                return _split_further(layout, dim, axis)
    return layout


def _split_further(layout: Layout, dim: int, axis: int) -> Layout:
    """Return the layout with every piece of a dimension divided evenly along another axis, which is
    merged with the axis of the pieces."""
    split = layout.splits[dim]
    assert split is not None
    assert isinstance(split.pieces, CutPieces)
    mesh, count = layout.mesh, layout.mesh.shape[axis]
    cuts, owners = [0], list[int]()
    bounds = zip(split.pieces.cuts, split.pieces.cuts[1:], split.pieces.owners, strict=False)
    for start, stop, owner in bounds:
        cuts += [start + cut for cut in even_cuts(stop - start, count)[1:]]
        owners += range(owner * count, (owner + 1) * count)
    remaining = [a for a in range(mesh.ndim) if a != axis]
    merged = Split(split.mesh_axis, CutPieces(tuple(cuts), tuple(owners)))
    splits = [merged if d == dim else s for d, s in enumerate(layout.splits)]
    return Layout(
        layout.shape,
        _merged(mesh, split.mesh_axis, axis),
        tuple(
            [None if s is None else Split(remaining.index(s.mesh_axis), s.pieces) for s in splits]
        ),
    )


def _merged(mesh: Mesh, axis: int, merged_axis: int) -> Mesh:
    """Return the mesh with `merged_axis` merged into `axis` as its faster part."""
    remaining = [a for a in range(mesh.ndim) if a != merged_axis]
    shape = tuple(
        [mesh.shape[a] * (mesh.shape[merged_axis] if a == axis else 1) for a in remaining]
    )
    workers = []
    for number in range(mesh.size):
        position = 0
        for a, length, step in zip(remaining, shape, Mesh(shape).strides, strict=True):
            coordinate = number // step % length
            if a == axis:
                coordinate, faster = divmod(coordinate, mesh.shape[merged_axis])
                position += faster * mesh.strides[merged_axis]
            position += coordinate * mesh.strides[a]
        workers.append(mesh.workers[position])
    return Mesh(shape, None, workers)
