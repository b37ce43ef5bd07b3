"""Where a pending reduction goes by default: to a layout in which every worker adds up its part."""

from __future__ import annotations

from magmath.layout import Blocks, Layout, Mesh, Split, even_cuts


def default_reduction(layout: Layout) -> Layout:
    """The layout with nothing pending: along each mesh axis with summands, the first dimension that
    is long enough is split; replicated where there is none."""
    result = layout.without_partial()
    for axis in reversed(range(layout.mesh.ndim)):  # a merged axis renumbers those behind it
        if layout.partial[axis] is not None:
            result = _scattered(result, axis)
    return result


def _scattered(layout: Layout, axis: int) -> Layout:
    """The layout with a dimension split along an axis that replicates: a whole dimension, or each
    piece of one that is split along another axis."""
    count = layout.mesh.shape[axis]
    for dim, extent in enumerate(layout.shape):
        if layout.splits[dim] is None and extent >= count:
            return layout.replace_split(dim, Split.even(axis, extent, count))
    for dim, split in enumerate(layout.splits):
        if split is not None and isinstance(split.pieces, Blocks):
            lengths = [
                b - a for a, b in zip(split.pieces.cuts, split.pieces.cuts[1:], strict=False)
            ]
            if min(lengths, default=0) >= count:
                return _split_further(layout, dim, axis)
    return layout


def _split_further(layout: Layout, dim: int, axis: int) -> Layout:
    """Every piece of a dimension divided evenly along another axis, which becomes one with that
    along which the pieces lie."""
    split = layout.splits[dim]
    assert split is not None
    assert isinstance(split.pieces, Blocks)
    mesh, count = layout.mesh, layout.mesh.shape[axis]
    cuts, owners = [0], list[int]()
    bounds = zip(split.pieces.cuts, split.pieces.cuts[1:], split.pieces.owners, strict=False)
    for start, stop, owner in bounds:
        cuts += [start + cut for cut in even_cuts(stop - start, count)[1:]]
        owners += range(owner * count, (owner + 1) * count)
    kept = [a for a in range(mesh.ndim) if a != axis]
    merged = Split(split.axis, Blocks(tuple(cuts), tuple(owners)))
    splits = [merged if d == dim else s for d, s in enumerate(layout.splits)]
    return Layout(
        layout.shape,
        _merged(mesh, split.axis, axis),
        tuple([None if s is None else Split(kept.index(s.axis), s.pieces) for s in splits]),
    )


def _merged(mesh: Mesh, axis: int, other: int) -> Mesh:
    """The mesh with `other` as the faster part of `axis`."""
    kept = [a for a in range(mesh.ndim) if a != other]
    shape = tuple([mesh.shape[a] * (mesh.shape[other] if a == axis else 1) for a in kept])
    workers = []
    for place in range(mesh.size):
        position = 0
        for a, length, step in zip(kept, shape, Mesh(shape).strides, strict=True):
            coordinate = place // step % length
            if a == axis:
                coordinate, faster = divmod(coordinate, mesh.shape[other])
                position += faster * mesh.strides[other]
            position += coordinate * mesh.strides[a]
        workers.append(mesh.workers[position])
    return Mesh(shape, None, workers)
