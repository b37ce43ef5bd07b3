"""Consistency checks of layouts; each raises a LayoutError that names the violated condition."""

from __future__ import annotations

from typing import Protocol

from magmath.errors import LayoutError
from magmath.layout.boxes import Box, check_tiling
from magmath.layout.mesh import Mesh
from magmath.layout.split import Split

REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
_MAX_INDEX = 2**63 - 1  # indices are int64


class LayoutParts(Protocol):
    """The parts of a `Layout`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each dimension of the array."""

    @property
    def mesh(self) -> Mesh:
        """The workers."""

    @property
    def splits(self) -> tuple[Split | None, ...]:
        """The split of each dimension, or None."""

    @property
    def partial(self) -> tuple[str | None, ...]:
        """The pending reduction along each mesh axis, or None."""

    @property
    def boxes(self) -> tuple[tuple[Box, int], ...] | None:
        """The boxes and their workers, or None."""

    @property
    def ndim(self) -> int:
        """The number of dimensions of the array."""

    @property
    def size(self) -> int:
        """The number of elements of the whole array."""

    @property
    def is_partial(self) -> bool:
        """True if a reduction is pending."""


def check_extents(layout: LayoutParts) -> None:
    """Check that extents are not negative and the number of elements fits into int64."""
    shape = layout.shape
    if min(shape, default=0) < 0 or max(shape, default=0) > _MAX_INDEX or layout.size > _MAX_INDEX:
        raise LayoutError(
            f"a layout needs lengths from 0 up and at most 2**63 - 1 elements, not shape {shape}"
            "; give a shape in these bounds"
        )


def check_splits(layout: LayoutParts) -> None:
    """Check that each split has the extent of its dimension and its own, sufficiently long mesh
    axis."""
    if len(layout.splits) != layout.ndim:
        raise LayoutError(
            f"an array of shape {layout.shape} needs {layout.ndim} splits (None where whole), "
            f"not {len(layout.splits)}"
        )
    used: dict[int, int] = {}
    for axis, split in enumerate(layout.splits):
        if split is None:
            continue
        if not 0 <= split.mesh_axis < layout.mesh.ndim:
            raise LayoutError(
                f"dimension {axis} is split along axis {split.mesh_axis}, {layout.mesh}"
                "; name an axis of the mesh"
            )
        if split.mesh_axis in used:
            raise LayoutError(
                f"dimensions {used[split.mesh_axis]} and {axis} are both split along mesh axis "
                f"{split.mesh_axis}; give each its own axis of the mesh"
            )
        used[split.mesh_axis] = axis
        if split.extent != layout.shape[axis]:
            raise LayoutError(
                f"dimension {axis} of an array of shape {layout.shape} has length "
                f"{layout.shape[axis]}, its split is of length {split.extent}"
                "; bind the rule to the array's shape"
            )
        if split.pieces.span > layout.mesh.shape[split.mesh_axis]:
            raise LayoutError(
                f"dimension {axis} has an owner at coordinate {split.pieces.span - 1} of mesh axis "
                f"{split.mesh_axis}, whose length is {layout.mesh.shape[split.mesh_axis]}"
            )


def check_partial(layout: LayoutParts) -> None:
    """Check that all pending reductions have one name and that their mesh axes split no
    dimension."""
    if layout.partial == (None,) * layout.mesh.ndim:
        return
    names = {name for name in layout.partial if name is not None}
    if len(layout.partial) != layout.mesh.ndim or not names <= set(REDUCTIONS) or len(names) > 1:
        raise LayoutError(
            f"pending reductions are one name of {', '.join(REDUCTIONS)} or None for each of the "
            f"{layout.mesh.ndim} mesh axes, not {layout.partial}; reduce with one name first"
        )
    for split in layout.splits:
        if split is not None and layout.partial[split.mesh_axis] is not None:
            raise LayoutError(
                f"mesh axis {split.mesh_axis} both splits a dimension and has a pending reduction"
                "; use another axis for one of them"
            )


def check_boxes(layout: LayoutParts) -> None:
    """Check that boxes tile the array, and that they have no splits or pending reductions with
    them."""
    assert layout.boxes is not None
    if any(layout.splits) or layout.is_partial:
        raise LayoutError(
            "a layout of boxes has no splits and no pending reductions; leave them out"
        )
    check_tiling(layout.shape, tuple([box for box, _ in layout.boxes]))
    unknown = {worker for _, worker in layout.boxes} - set(layout.mesh.workers)
    if unknown:
        raise LayoutError(
            f"Layout.blocks places boxes on workers {sorted(unknown)}, which are not in the "
            f"pool; it has workers {layout.mesh.workers}"
        )
