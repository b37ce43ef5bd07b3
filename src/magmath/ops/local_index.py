"""Where the elements of a global dimension lie in the part of it that a worker holds.

What the kernels share that pick elements by position: indices count from the end where they are
negative, must be in range, and name elements that this worker may or may not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from magmath.core.index_set import IndexSet

if TYPE_CHECKING:
    import torch


class LocalIndices(NamedTuple):
    """Local positions, and a mask of those that are here; None where all are."""

    local: torch.Tensor
    here: torch.Tensor | None


class Locator:
    """Finds global positions of one dimension in what is held of it."""

    def __init__(self, axis: int, extent: int, held: IndexSet, device: torch.device) -> None:
        from magmath.memory.torch_dtypes import as_tensor

        self.axis, self.extent, self.held = axis, extent, held
        self.whole = held.size == extent
        if not held.is_range:
            starts, stops = held.segments()
            before = (stops - starts).cumsum() - (stops - starts)
            self._starts, self._stops, self._before = (
                as_tensor(values, device) for values in (starts, stops, before)
            )

    def __call__(self, positions: torch.Tensor) -> LocalIndices:
        """Places of positions in 0 … extent - 1."""
        import torch

        if self.whole:
            return LocalIndices(positions, None)
        if self.held.is_range:
            local = positions - self.held.start
            here = (local >= 0) & (local < self.held.size)
        else:
            piece = (torch.searchsorted(self._starts, positions, right=True) - 1).clamp_(min=0)
            local = self._before[piece] + positions - self._starts[piece]
            here = (positions >= self._starts[piece]) & (positions < self._stops[piece])
        return LocalIndices(torch.where(here, local, 0), here)

    def wrapped(self, indices: torch.Tensor) -> torch.Tensor:
        """Indices as positions from the front. Raises IndexError for one out of range."""
        positions, failure = normalised(indices, self.axis, self.extent)
        if failure is not None:
            raise failure
        return positions


def normalised(
    indices: torch.Tensor, axis: int, extent: int
) -> tuple[torch.Tensor, IndexError | None]:
    """Indices as positions from the front; 0 in the place of those that are out of range, and the
    error for these."""
    import torch

    positions = indices.long()
    positions = torch.where(positions < 0, positions + extent, positions)
    outside = (positions < 0) | (positions >= extent)
    if not outside.any():
        return positions, None
    wrong = int(indices.long()[outside].flatten()[0])
    return positions.masked_fill(outside, 0), picked_out_of_range(wrong, axis, extent)


def front(tensor: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """A view with these dimensions first."""
    return tensor.movedim(tuple(axes), tuple(range(len(axes))))


def out_of_range(index: int, axis: int, extent: int, operation: str = "indexing") -> IndexError:
    """The error for an index beyond the end of an axis."""
    return IndexError(
        f"{operation}: index {index} is out of range for extent {extent} (axis {axis}); "
        f"indices go from {-extent} to {extent - 1}"
        if extent
        else f"{operation}: index {index} is out of range: axis {axis} has extent 0"
    )


picked_out_of_range = partial(out_of_range, operation="take, or indexing by an array")
"""The same for one among many, which are the same operation however they were written."""


def both(*masks: torch.Tensor | None) -> torch.Tensor | None:
    """The elements that all masks hold; None where none excludes any."""
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found & mask
    return found


def neutral(tensor: torch.Tensor) -> float:
    """What changes nothing when it is added, -0 included."""
    return -0.0 if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 0
