"""Loop nests: loops over parts of one array are one loop over the array (index-set splitting).

`out[1:] -= u[:-1]` is a loop over all rows of `out` but the first one. A stencil has such a loop
for each neighbour, and each reads and writes the array once more. They share a loop over the whole
array if the updates touch its elements at the same steps. The nest is divided where a part begins
or ends, so that each piece is a rectangle in which the same loops are active, and needs no test
(Allen and Kennedy, Optimizing Compilers for Modern Architectures, section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Generic, TypeVar, final

from magmath.codegen.emit import NativeOperand, Writer
from magmath.core.shapes import Shape
from magmath.executor.loop_dependence import Access, Member, can_share_arrays

if TYPE_CHECKING:
    import torch

MAX_RECTANGLES = 32
"""Maximum number of rectangles of a nest: a stencil in three dimensions has 27."""
MemberType = TypeVar("MemberType", bound=Member)


@final
@dataclass(frozen=True)
class PartLoop(Generic[MemberType]):
    """A loop over a part of an array of shape `whole`, which begins at `offset`.

    `members` are its calls in order; all compute elements of the part.
    """

    members: Sequence[MemberType]
    shape: Shape
    whole: Shape
    offset: Shape

    @property
    def stop(self) -> Shape:
        """The end of the part in each dimension."""
        return tuple([first + n for first, n in zip(self.offset, self.shape, strict=True)])

    def place(self, begin: int, shape: Shape, strides: Shape, itemsize: int) -> object:
        """Return a value that is equal for arrays whose elements are the same ones whenever the
        loops are at the same element of the whole; None for an array that is broadcast.
        """
        if shape != self.shape:
            return None
        before = sum([o * step for o, step in zip(self.offset, strides, strict=True)])
        return begin - before * itemsize, strides, itemsize

    def place_of(self, access: Access) -> object:
        """Return the place of the memory of an access."""
        begin, shape, strides, dtype = access.location
        place = self.place(begin, shape, strides, dtype.itemsize)
        return None if place is None else (place, dtype)


@final
class Registers:
    """The values of elements in one step of a nest.

    Loops of a nest write elements that later ones read, through other views. Such an element stays
    in a register, and is stored once, at the end of the step.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._names: dict[object, str] = {}
        self._values: dict[str, str] = {}

    def read(self, x: NativeOperand, loop: PartLoop[MemberType], indices: Sequence[str]) -> str:
        """Return the expression for the element of an operand at the indices of a loop."""
        element = self._element(x, loop, indices)
        return self._values.get(element, element)

    def write(
        self, x: NativeOperand, loop: PartLoop[MemberType], indices: Sequence[str], register: str
    ) -> None:
        """Set the element of an operand to the value of a register."""
        self._values[self._element(x, loop, indices)] = register

    def store(self) -> None:
        """Write the stores of all elements."""
        for element, register in self._values.items():
            self._writer.line(f"{element} = {register}")

    def _element(self, x: NativeOperand, loop: PartLoop[MemberType], indices: Sequence[str]) -> str:
        """Return one expression for an element, through whatever view a loop accesses it."""
        place = None if x.value else loop.place(x.address, x.shape, x.strides, x.dtype.itemsize)
        if place is None:
            return x.at(indices)
        return self._names.setdefault((place, x.dtype), x.at(indices))


def offset_of(part: torch.Tensor, whole: torch.Tensor) -> Shape | None:
    """Return the index at which a view without steps begins in a tensor; None for other views."""
    if part.stride() != whole.stride():
        return None
    remaining = (part.data_ptr() - whole.data_ptr()) // whole.element_size()
    offset, strides = [0] * whole.ndim, whole.stride()
    for d in sorted(range(whole.ndim), key=lambda d: -strides[d]):
        if whole.shape[d] > 1 and strides[d] > 0:
            offset[d], remaining = divmod(remaining, strides[d])
    inside = [0 <= o <= n - m for o, n, m in zip(offset, whole.shape, part.shape, strict=True)]
    return tuple(offset) if remaining == 0 and all(inside) else None


def joined(loops: Sequence[PartLoop[MemberType]]) -> list[list[PartLoop[MemberType]]]:
    """Return the loops as nests, in order: neighbours over parts of arrays of one shape share a
    nest unless they must run one after the other."""
    nests: list[list[PartLoop[MemberType]]] = []
    for loop in loops:
        if nests and _can_join(nests[-1], loop):
            nests[-1].append(loop)
        else:
            nests.append([loop])
    return nests


def _can_join(nest: Sequence[PartLoop[MemberType]], loop: PartLoop[MemberType]) -> bool:
    if nest[0].whole != loop.whole or any(_should_precede(other, loop) for other in nest):
        return False
    if not can_share_arrays([x for other in nest for x in other.members], loop.members):
        return False
    both = [*nest, loop]
    pieces = [len(_boundaries(both, d)) - 1 for d in range(len(loop.whole))]
    return prod(pieces) <= MAX_RECTANGLES


def _should_precede(loop: PartLoop[MemberType], other: PartLoop[MemberType]) -> bool:
    """Return True if a loop must be complete before another one begins."""
    for x in [access for member in loop.members for access in member.accesses]:
        place = loop.place_of(x)
        for y in [access for member in other.members for access in member.accesses]:
            if x.has_conflict(y):
                elsewhere = x.elsewhere or y.elsewhere or place is None
                if elsewhere or place != other.place_of(y):
                    return True
    return False


def _boundaries(loops: Sequence[PartLoop[MemberType]], dimension: int) -> list[int]:
    """Return the positions of a dimension at which a loop begins or ends."""
    return sorted({end for x in loops for end in (x.offset[dimension], x.stop[dimension])})


def joined_dimensions(
    order: Sequence[int],
    loops: Sequence[PartLoop[MemberType]],
    operands: Sequence[tuple[Shape, Shape]],
) -> tuple[list[int], dict[int, int]]:
    """Return the dimensions of a nest over which loops are written, the outermost first, and the
    extents of those loops that cover several dimensions or a whole one.

    A dimension can join the next inner one: one long loop over 3×3 filters is faster than loops of
    three steps.

    Two dimensions are joined if every loop covers them whole, and every operand, given by its shape
    and strides, either has one element in both or is contiguous over them.
    """
    whole = loops[0].whole
    written: list[int] = []
    extents: dict[int, int] = {}
    for d in reversed([d for d in order if whole[d] > 1]):
        covered = all(x.shape[d] == whole[d] for x in loops)
        if written and covered and written[-1] in extents:
            inner, extent = written[-1], extents[written[-1]]
            if all(_is_contiguous(x, len(whole), (d, inner), whole, extent) for x in operands):
                extents[inner] = extent * whole[d]
                continue
        written.append(d)
        if covered:
            extents[d] = whole[d]
    return written[::-1], extents


def _is_contiguous(
    operand: tuple[Shape, Shape], ndim: int, dimensions: tuple[int, int], whole: Shape, extent: int
) -> bool:
    """Return True if an operand is contiguous over an outer and an inner dimension of a loop, of
    which the inner one has this extent, or has one element in both."""
    shape, strides = operand
    places = [d - (ndim - len(shape)) for d in dimensions]
    (n, step), (m, unit) = [(shape[i], strides[i]) if i >= 0 else (1, 0) for i in places]
    if n == m == 1:
        return True
    outer, inner = dimensions
    return n == whole[outer] and m == whole[inner] and step == unit * extent


def write_rectangles(
    writer: Writer,
    order: Sequence[int],
    indices: Sequence[str],
    loops: Sequence[PartLoop[MemberType]],
    body: Callable[[Sequence[PartLoop[MemberType]]], None],
    extents: Mapping[int, int],
    limits: tuple[str, str] | None = None,
) -> None:
    """Write loops over the rectangles of a nest; `body` writes a step of the active loops.

    `order`: the dimensions, the outermost first, with a name of each index. `extents`: those of
    joined dimensions. `limits`: names of the first index and of the end of the outermost loop, if
    that covers only a part of its dimension.
    """
    if not order:
        body(loops)
        return
    d, *inner = order
    joint = extents.get(d)
    for begin, end in pairwise(_boundaries(loops, d) if joint is None else (0, joint)):
        whole = joint is not None
        active = [x for x in loops if whole or (x.offset[d] <= begin and end <= x.stop[d])]
        if active:
            bounds = f"{begin}, {end}"
            if limits is not None:
                bounds = f"max({limits[0]}, {begin}), min({limits[1]}, {end})"
            writer.line(f"for {indices[d]} in range({bounds}):")
            writer.depth += 1
            write_rectangles(writer, inner, indices, active, body, extents)
            writer.depth -= 1
