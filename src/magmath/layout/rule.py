"""Layout rules: layouts as users write them, before the array shape and the pool are known.

`Layout.split(0)`, `Layout.grid((2, 4))` and similar return a `Rule`; binding it to a shape and to
the workers of the pool gives the `Layout`. `bind` reports contradictions, with a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import NamedTuple, Self, TypeAlias, final

from magmath.errors import LayoutError
from magmath.layout.boxes import Box
from magmath.layout.mesh import Mesh
from magmath.layout.split import Blocks, Cyclic, Split

BoxLike: TypeAlias = "Sequence[slice | tuple[int, int]]"
_OpenBox: TypeAlias = tuple[tuple[int | None, int | None], ...]


@final
class BoundParts(NamedTuple):
    """The parts of the `Layout` to which a rule is bound."""

    shape: tuple[int, ...]
    mesh: Mesh
    splits: tuple[Split | None, ...]
    boxes: tuple[tuple[Box, int], ...] | None = None


@final
@dataclass(frozen=True)
class Term:
    """The rule for one dimension: contiguous pieces, or cyclic blocks if `block` is set."""

    axis: int
    mesh_axis: int | str | None = None
    cuts: tuple[int, ...] | None = None
    block: int | None = None

    def __str__(self) -> str:
        along = "" if self.mesh_axis is None else f", mesh_axis={self.mesh_axis!r}"
        cuts = "" if self.cuts is None else f", {self.cuts}"
        kind = "split" if self.block is None else "cyclic"
        block = "" if self.block is None else f", {self.block}"
        return f"Layout.{kind}({self.axis}{cuts}{block}{along})"


@dataclass(frozen=True)
class UnboundLayout:
    """The content of a `Rule`: the splits of dimensions, before their extents and the workers are
    known."""

    terms: tuple[Term, ...] = ()
    grid: tuple[int, ...] | None = None
    worker: int | None = None
    boxes: tuple[tuple[_OpenBox, int], ...] | None = None
    mesh: Mesh | None = None

    @classmethod
    def along(
        cls,
        axis: int,
        mesh_axis: int | str | None,
        *,
        cuts: Sequence[int] | None = None,
        block: int | None = None,
    ) -> Self:
        """Return a rule that splits one dimension; see `Layout.split` and `Layout.cyclic`."""
        numbers = None if cuts is None else _indices("cuts of a layout", cuts)
        return cls((Term(_index("the axis of a layout", axis), mesh_axis, numbers, _block(block)),))

    @classmethod
    def on_grid(cls, grid: Sequence[int], blocks: Sequence[int] | None = None) -> Self:
        """Return a rule that splits dimension i along axis i of a grid; see `Layout.grid`."""
        shape = _indices("the grid of a layout", grid)
        if not shape or min(shape) < 1:
            raise LayoutError(
                f"Layout.grid needs lengths of at least 1, not {shape}"
                "; write such as Layout.grid((2, 2))"
            )
        if blocks is None:
            return cls(tuple([Term(d, d) for d in range(len(shape))]), shape)
        if len(blocks) != len(shape):
            raise LayoutError(
                f"Layout.block_cyclic needs one block length for each axis of the grid, not "
                f"blocks {tuple(blocks)} for grid {shape}"
                "; give one for each axis"
            )
        sizes = [_block(block) for block in blocks]
        return cls(tuple([Term(d, d, block=b) for d, b in enumerate(sizes)]), shape)

    @classmethod
    def from_boxes(cls, boxes: Sequence[tuple[BoxLike, int]]) -> Self:
        """Return a rule that places boxes on workers; see `Layout.blocks`."""
        try:
            pairs = [(box, index(worker)) for box, worker in boxes]
            return cls(boxes=tuple([(_open_box(box), worker) for box, worker in pairs]))
        except (TypeError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(
                f"Layout.blocks needs pairs of a box and a worker, as [([slice(0, 2)], 0), …], "
                f"was given {boxes!r}"
            ) from None

    @classmethod
    def on_worker(cls, worker: int) -> Self:
        """Return a rule that stores the whole array on one worker; see `Layout.on`."""
        return cls(worker=_index("the worker of Layout.on", worker))

    def over(self, mesh: Mesh) -> Self:
        """Return this rule on the workers of `mesh` instead of the whole pool."""
        return replace(self, mesh=mesh)

    def bound_parts(self, shape: Sequence[int], mesh: Mesh) -> BoundParts:
        """Return the parts of the layout of an array of `shape` over `mesh`; see `Rule.bind`."""
        extents = tuple([index(extent) for extent in shape])
        resolved = self._resolve_mesh(mesh)
        splits: list[Split | None] = [None] * len(extents)
        if self.boxes is not None:
            boxes = tuple([(_close_box(box, extents), worker) for box, worker in self.boxes])
            return BoundParts(extents, resolved, tuple(splits), boxes)
        for term in self.terms:
            if not -len(extents) <= term.axis < len(extents):
                raise LayoutError(
                    f"{self} needs an array with a dimension {term.axis}; the array has shape "
                    f"{extents}, so dimensions 0 to {len(extents) - 1}"
                    if extents
                    else f"{self} cannot split an array of no dimensions; use Layout.replicated()"
                )
            axis = term.axis % len(extents)
            splits[axis] = self._split(term, extents[axis], resolved)
        return BoundParts(extents, resolved, tuple(splits))

    def _resolve_mesh(self, pool: Mesh) -> Mesh:
        """Return the mesh over which the rule splits."""
        mesh = pool if self.mesh is None else self.mesh
        unknown = [worker for worker in mesh.workers if pool.position(worker) is None]
        if self.worker is not None and mesh.position(self.worker) is None:
            unknown = [self.worker]
        if unknown:
            raise LayoutError(
                f"{self} needs workers {unknown}, which are not in the pool: its workers are "
                f"{pool.workers}; start more with mm.init(workers=…) or name others"
            )
        if self.worker is not None:
            return Mesh((1,), None, (self.worker,))
        if self.grid is not None and mesh.shape != self.grid:
            needed = math.prod(self.grid)
            if needed > mesh.size:
                raise LayoutError(
                    f"{self} needs {needed} workers, there are {mesh.size}; choose a smaller grid "
                    f"or start more workers with mm.init(workers={needed})"
                )
            return Mesh(self.grid, None, mesh.workers[:needed])
        if any(term.mesh_axis is None for term in self.terms):
            return mesh.flattened()
        return mesh

    def _split(self, term: Term, extent: int, mesh: Mesh) -> Split:
        mesh_axis = 0 if term.mesh_axis is None else mesh.axis(term.mesh_axis)
        length = mesh.shape[mesh_axis]
        if term.block is not None:
            return Split(mesh_axis, Cyclic(extent, term.block, length))
        if term.cuts is None:
            return Split.even(mesh_axis, extent, length)
        count = len(term.cuts) - 1
        if count > length or term.cuts[:1] != (0,) or term.cuts[-1] != extent:
            raise LayoutError(
                f"{self} on a dimension of length {extent} over {length} workers: cuts are the "
                f"boundaries of at most {length} pieces, the first 0, the last {extent}"
            )
        return Split(mesh_axis, Blocks(term.cuts, tuple(range(count))))

    def __str__(self) -> str:
        if self.boxes is not None:
            text = f"Layout.blocks({len(self.boxes)} boxes)"
        elif self.worker is not None:
            text = f"Layout.on({self.worker})"
        elif self.grid is not None:
            blocks = tuple([term.block for term in self.terms if term.block is not None])
            text = f"Layout.block_cyclic({blocks}, " if blocks else "Layout.grid("
            text += f"{self.grid})"
        else:
            text = str(self.terms[0]) if self.terms else "Layout.replicated()"
        return text + ("" if self.mesh is None else f".over({self.mesh})")

    __repr__ = __str__


def _index(description: str, value: object) -> int:
    """Return `value` as an int. Raises LayoutError if it is not an integer."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LayoutError(
            f"{description} must be an integer, was given {value!r}; pass a Python integer"
        ) from None


def _indices(description: str, values: Sequence[object]) -> tuple[int, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise LayoutError(
            f"{description} must be a sequence of integers, was given {values!r}"
            "; pass such as [0, 2, 4]"
        )
    return tuple([_index(description, value) for value in values])


def _block(block: int | None) -> int | None:
    length = None if block is None else _index("the blocks of Layout.cyclic", block)
    if length is not None and length < 1:
        raise LayoutError(
            f"Layout.cyclic needs blocks of at least 1 index, not {block}"
            "; write such as Layout.cyclic(0, block=1)"
        )
    return length


def _open_box(box: BoxLike) -> _OpenBox:
    """Return the (start, stop) pairs of a box; None stands for the end of the array."""
    sides: list[tuple[int | None, int | None]] = []
    for side in box:
        if isinstance(side, slice):
            if side.step not in (None, 1):
                raise LayoutError(
                    f"Layout.blocks needs contiguous boxes, not {side}"
                    "; leave the step of the slice out"
                )
            side = (side.start, side.stop)
        start, stop = side
        sides.append(
            (None if start is None else index(start), None if stop is None else index(stop))
        )
    return tuple(sides)


def _close_box(box: _OpenBox, shape: tuple[int, ...]) -> Box:
    """Return the box in an array of this shape."""
    if len(box) != len(shape):
        raise LayoutError(
            f"Layout.blocks on an array of shape {shape} needs boxes of {len(shape)} sides, not "
            f"{len(box)}"
            "; give one slice for each dimension"
        )
    return tuple(
        [
            (0 if start is None else start, extent if stop is None else stop)
            for (start, stop), extent in zip(box, shape, strict=True)
        ]
    )
