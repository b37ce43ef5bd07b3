"""Kinds of layout rules: how a layout is written, before the array shape and the pool are known.

`Layout.split(0)`, `Layout.grid((2, 4))` and similar check their arguments and return a `Rule` with
one of these kinds. Binding it asks the kind for the mesh, and for the splits or the boxes of an
array; each reports a contradiction, with a remedy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import TypeAlias, final

from magmath.errors import LayoutError
from magmath.layout.boxes import Box
from magmath.layout.mesh import Mesh
from magmath.layout.split import CutPieces, Cyclic, Split

BoxLike: TypeAlias = "Sequence[slice | tuple[int, int]]"
Splits: TypeAlias = "tuple[Split | None, ...]"
_OpenBox: TypeAlias = tuple[tuple[int | None, int | None], ...]


class RuleKind(ABC):
    """The content of a `Rule`; immutable, hashable, and printed as users write it."""

    def mesh_of(self, mesh: Mesh) -> Mesh:
        """Return the mesh of the layout, which consists of workers of `mesh`."""
        return mesh

    def splits(self, shape: tuple[int, ...], mesh: Mesh) -> Splits:
        """Return the split of each dimension over `mesh`, the result of `mesh_of`."""
        return (None,) * len(shape)

    def boxes(self, shape: tuple[int, ...]) -> tuple[tuple[Box, int], ...] | None:
        """Return the boxes and their workers; None if the layout consists of splits."""
        return None

    @abstractmethod
    def __str__(self) -> str:
        """Return the call that makes the rule."""


@final
@dataclass(frozen=True)
class ReplicatedRule(RuleKind):
    """The whole array on every worker; see `Layout.replicated`."""

    def __str__(self) -> str:
        return "Layout.replicated()"


class _OneDimension(RuleKind):
    """Pieces of dimension `axis`: along `mesh_axis`, or along all workers in order."""

    axis: int
    mesh_axis: int | str | None

    def mesh_of(self, mesh: Mesh) -> Mesh:
        return mesh.flattened() if self.mesh_axis is None else mesh

    def splits(self, shape: tuple[int, ...], mesh: Mesh) -> Splits:
        splits: list[Split | None] = [None] * len(shape)
        axis = _dimension(self, self.axis, shape)
        mesh_axis = 0 if self.mesh_axis is None else mesh.axis(self.mesh_axis)
        splits[axis] = self._split(shape[axis], mesh_axis, mesh.shape[mesh_axis])
        return tuple(splits)

    @abstractmethod
    def _split(self, extent: int, mesh_axis: int, length: int) -> Split:
        """Return the split of a dimension of this extent along a mesh axis of this length."""

    def _call(self, function: str, argument: object) -> str:
        cut = "" if argument is None else f", {argument}"
        along = "" if self.mesh_axis is None else f", mesh_axis={self.mesh_axis!r}"
        return f"Layout.{function}({self.axis}{cut}{along})"


@final
@dataclass(frozen=True)
class SplitRule(_OneDimension):
    """Contiguous pieces of one dimension; see `Layout.split`."""

    axis: int
    cuts: tuple[int, ...] | None
    mesh_axis: int | str | None

    @classmethod
    def of(cls, axis: int, cuts: Sequence[int] | None, mesh_axis: int | str | None) -> SplitRule:
        """Return the rule of checked arguments."""
        numbers = None if cuts is None else _indices("cuts of a layout", cuts)
        return cls(_axis(axis), numbers, mesh_axis)

    def _split(self, extent: int, mesh_axis: int, length: int) -> Split:
        if self.cuts is None:
            return Split.even(mesh_axis, extent, length)
        count = len(self.cuts) - 1
        if count > length or self.cuts[:1] != (0,) or self.cuts[-1] != extent:
            raise LayoutError(
                f"{self} on a dimension of length {extent} over {length} workers: cuts are the "
                f"boundaries of at most {length} pieces, the first 0, the last {extent}"
            )
        return Split(mesh_axis, CutPieces(self.cuts, tuple(range(count))))

    def __str__(self) -> str:
        return self._call("split", self.cuts)


@final
@dataclass(frozen=True)
class CyclicRule(_OneDimension):
    """Blocks of one dimension in turn; see `Layout.cyclic`."""

    axis: int
    block: int
    mesh_axis: int | str | None

    @classmethod
    def of(cls, axis: int, block: int, mesh_axis: int | str | None) -> CyclicRule:
        """Return the rule of checked arguments."""
        return cls(_axis(axis), _block(block), mesh_axis)

    def _split(self, extent: int, mesh_axis: int, length: int) -> Split:
        return Split(mesh_axis, Cyclic(extent, self.block, length))

    def __str__(self) -> str:
        return self._call("cyclic", self.block)


@final
@dataclass(frozen=True)
class GridRule(RuleKind):
    """Dimension i in pieces along axis i of a grid of workers: contiguous, or cyclic in blocks of
    `blocks[i]`; see `Layout.grid` and `Layout.block_cyclic`."""

    grid: tuple[int, ...]
    blocks: tuple[int, ...] | None = None

    @classmethod
    def of(cls, grid: Sequence[int], blocks: Sequence[int] | None = None) -> GridRule:
        """Return the rule of checked arguments."""
        shape = _indices("the grid of a layout", grid)
        if not shape or min(shape) < 1:
            raise LayoutError(
                f"Layout.grid needs lengths of at least 1, not {shape}"
                "; write such as Layout.grid((2, 2))"
            )
        if blocks is None:
            return cls(shape)
        if len(blocks) != len(shape):
            raise LayoutError(
                f"Layout.block_cyclic needs one block length for each axis of the grid, not "
                f"blocks {tuple(blocks)} for grid {shape}"
                "; give one for each axis"
            )
        return cls(shape, tuple([_block(block) for block in blocks]))

    def mesh_of(self, mesh: Mesh) -> Mesh:
        if mesh.shape == self.grid:
            return mesh
        needed = math.prod(self.grid)
        if needed > mesh.size:
            raise LayoutError(
                f"{self} needs {needed} workers, there are {mesh.size}; choose a smaller grid "
                f"or start more workers with mm.init(workers={needed})"
            )
        return Mesh(self.grid, None, mesh.workers[:needed])

    def splits(self, shape: tuple[int, ...], mesh: Mesh) -> Splits:
        splits: list[Split | None] = [None] * len(shape)
        for axis, length in enumerate(self.grid):
            extent = shape[_dimension(self, axis, shape)]
            splits[axis] = (
                Split.even(axis, extent, length)
                if self.blocks is None
                else Split(axis, Cyclic(extent, self.blocks[axis], length))
            )
        return tuple(splits)

    def __str__(self) -> str:
        if self.blocks is None:
            return f"Layout.grid({self.grid})"
        return f"Layout.block_cyclic({self.blocks}, {self.grid})"


@final
@dataclass(frozen=True)
class WorkerRule(RuleKind):
    """The whole array on one worker; see `Layout.on`."""

    worker: int

    @classmethod
    def of(cls, worker: int) -> WorkerRule:
        """Return the rule of a checked argument."""
        return cls(_index("the worker of Layout.on", worker))

    def mesh_of(self, mesh: Mesh) -> Mesh:
        require_workers(self, (self.worker,), mesh)
        return Mesh((1,), None, (self.worker,))

    def __str__(self) -> str:
        return f"Layout.on({self.worker})"


@final
@dataclass(frozen=True)
class BoxesRule(RuleKind):
    """Boxes on workers, whose sides may end with the array; see `Layout.blocks`."""

    open_boxes: tuple[tuple[_OpenBox, int], ...]

    @classmethod
    def of(cls, boxes: Sequence[tuple[BoxLike, int]]) -> BoxesRule:
        """Return the rule of checked arguments."""
        try:
            pairs = [(box, index(worker)) for box, worker in boxes]
            return cls(tuple([(_open_box(box), worker) for box, worker in pairs]))
        except (TypeError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(
                f"Layout.blocks needs pairs of a box and a worker, as [([slice(0, 2)], 0), …], "
                f"was given {boxes!r}"
            ) from None

    def boxes(self, shape: tuple[int, ...]) -> tuple[tuple[Box, int], ...]:
        return tuple([(_close_box(box, shape), worker) for box, worker in self.open_boxes])

    def __str__(self) -> str:
        return f"Layout.blocks({len(self.open_boxes)} boxes)"


def require_workers(rule: object, workers: Sequence[int], mesh: Mesh) -> None:
    """Raise LayoutError unless `workers`, which a rule needs, are in the mesh."""
    unknown = [worker for worker in workers if mesh.position(worker) is None]
    if unknown:
        raise LayoutError(
            f"{rule} needs workers {unknown}, which are not among the workers {mesh.workers}; "
            "start more with mm.init(workers=…) or name others"
        )


def _dimension(rule: RuleKind, axis: int, shape: tuple[int, ...]) -> int:
    """Return the number of a dimension from 0 up. Raises LayoutError if there is none."""
    ndim = len(shape)
    if not -ndim <= axis < ndim:
        raise LayoutError(
            f"{rule} needs an array with a dimension {axis}; the array has shape "
            f"{shape}, so dimensions 0 to {ndim - 1}"
            if shape
            else f"{rule} cannot split an array of no dimensions; use Layout.replicated()"
        )
    return axis % ndim


def _axis(axis: int) -> int:
    return _index("the axis of a layout", axis)


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


def _block(block: int) -> int:
    length = _index("the blocks of Layout.cyclic", block)
    if length < 1:
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
