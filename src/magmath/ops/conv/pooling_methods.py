"""Two implementations of pooling: by torch's functions, and one element of the window after the
other, for all windows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import numpy as np

from magmath.ops.conv.window_ranges import Attributes, window_elements

if TYPE_CHECKING:
    import torch


SpaceExtents = Sequence[int]


@final
class OutOfBounds(NamedTuple):
    """What distinguishes the elements of an array from those around it, which have its least value.

    value            that of the elements out of bounds
    first_in_bounds  for each window its first element in bounds, which is the maximum if that has
                     this value; counted in the form of the method that uses it
    """

    value: float
    first_in_bounds: Any

    def positions_in_bounds(self, xp: Any, maxima: Any, found: Any) -> Any:
        """Return the elements in bounds that attain the maxima, given those found anywhere."""
        return xp.where(maxima == self.value, self.first_in_bounds, found)


def first_numbers(firsts: Sequence[Sequence[int]], kernel: SpaceExtents) -> Any:
    """Return elements of windows, given for each dimension, as their number in the window."""
    return np.ravel_multi_index(np.ix_(*firsts), tuple(kernel))


def first_positions(
    firsts: Sequence[Sequence[int]], extents: SpaceExtents, attributes: Attributes
) -> Any:
    """Return elements of windows, given for each dimension, as their position in an array of these
    extents, which begins with the first window."""
    steps = zip(firsts, attributes["stride"], attributes["dilation"], strict=True)
    positions = [[s * o + d * j for o, j in enumerate(elements)] for elements, s, d in steps]
    return np.ravel_multi_index(np.ix_(*positions), tuple(extents))


class PoolingMethod(Protocol):
    """Pooling over windows of extents `space`, of arrays that include their padding except what the
    method supplies."""

    def max(self, x: Any, space: SpaceExtents) -> Any:
        """Return the maximum of each window."""

    def select(self, a: Any, x: Any, space: SpaceExtents) -> Any:
        """Return the element of a at the maximum of each window of x."""

    def scatter(self, g: Any, x: Any) -> Any:
        """Return zeros of the shape of x with g added at the maximum of each window of x."""

    def sum(self, x: Any, space: SpaceExtents) -> Any:
        """Return the sum of each window."""

    def add_windows(self, g: Any, extents: SpaceExtents) -> Any:
        """Return zeros of these extents of space with g added to each element of its windows."""


@final
class PoolingByElement(PoolingMethod):
    """Pooling that visits one element of the window after the other, of NumPy arrays or torch
    tensors.

    `outside`: the elements of x out of bounds, if there are any and positions are needed;
    `first_numbers` counts the others.
    """

    def __init__(self, xp: Any, attributes: Attributes, outside: OutOfBounds | None = None) -> None:
        self._xp, self._attributes, self._outside = xp, attributes, outside

    def _elements(self, x: Any, space: SpaceExtents) -> list[Any]:
        """Return each element of the window, as a view of x that contains it for all windows."""
        kernel = self._attributes["kernel"]
        return [x[(..., *where)] for _, where in window_elements(kernel, space, self._attributes)]

    def _maxima(self, x: Any, space: SpaceExtents) -> tuple[Any, Any]:
        """Return the maximum of each window, and its number among the elements of the window."""
        xp, (best, *others) = self._xp, self._elements(x, space)
        number = xp.zeros_like(best, dtype=xp.int64)
        for i, element in enumerate(others, 1):
            better = (element > best) | xp.isnan(element)
            best, number = xp.where(better, element, best), xp.where(better, i, number)
        if self._outside is not None:
            number = self._outside.positions_in_bounds(xp, best, number)
        return best, number

    def max(self, x: Any, space: SpaceExtents) -> Any:
        return self._maxima(x, space)[0]

    def select(self, a: Any, x: Any, space: SpaceExtents) -> Any:
        (result, *others), number = self._elements(a, space), self._maxima(x, space)[1]
        for i, element in enumerate(others, 1):
            result = self._xp.where(number == i, element, result)
        return result

    def scatter(self, g: Any, x: Any) -> Any:
        space = g.shape[g.ndim - len(self._attributes["kernel"]) :]
        number, total = self._maxima(x, space)[1], self._xp.zeros_like(x)
        zero = self._xp.zeros_like(g)
        for i, target in enumerate(self._elements(total, space)):
            target += self._xp.where(number == i, g, zero)
        return total

    def sum(self, x: Any, space: SpaceExtents) -> Any:
        first, *others = self._elements(x, space)
        total = first + self._xp.zeros_like(first)
        for element in others:
            total += element
        return total

    def add_windows(self, g: Any, extents: SpaceExtents) -> Any:
        lead = g.ndim - len(extents)
        shape = *g.shape[:lead], *extents
        total = np.zeros(shape, g.dtype) if self._xp is np else g.new_zeros(shape)
        for target in self._elements(total, g.shape[lead:]):
            target += g
        return total


@final
class TorchPooling(PoolingMethod):
    """Pooling by torch's functions, which supply padding of their own: `padding` at both ends.

    `outside`: the elements of x out of bounds, as for `PoolingByElement`; `first_positions` counts
    the others.
    """

    def __init__(
        self, attributes: Attributes, padding: SpaceExtents, outside: OutOfBounds | None = None
    ) -> None:
        import torch

        self._outside = outside
        self._space = len(attributes["kernel"])
        flat = [1] * (self._space == 1)  # torch has fewer functions for one dimension
        self._kernel, self._stride, self._dilation = (
            [*flat, *attributes[name]] for name in ("kernel", "stride", "dilation")
        )
        self._padding = [*[0] * len(flat), *padding]
        self._functions, self._ndim = torch.ops.aten, max(self._space, 2)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._functions, name.replace("*", f"{self._ndim}d"))(*arguments)

    def _images(self, x: torch.Tensor) -> torch.Tensor:
        """Return x as (images, channels, *space)."""
        lead = x.ndim - self._space
        space = (1, *x.shape[lead:]) if self._space == 1 else x.shape[lead:]
        if lead == 2:
            return x if self._space > 1 else x.unsqueeze(2)
        return x.reshape(1, -1, *space)

    def _maxima(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the maxima, and their positions in the space of x, counted as one dimension."""
        import torch

        values, positions = self._call(
            "max_pool*_with_indices", x, self._kernel, self._stride, self._padding, self._dilation
        )
        if self._outside is not None:
            positions = self._outside.positions_in_bounds(torch, values, positions)
        return values, positions

    def max(self, x: torch.Tensor, space: SpaceExtents) -> torch.Tensor:
        return self._maxima(self._images(x))[0].reshape(*x.shape[: x.ndim - self._space], *space)

    def select(self, a: torch.Tensor, x: torch.Tensor, space: SpaceExtents) -> torch.Tensor:
        lead = a.shape[: a.ndim - self._space]
        positions = self._maxima(self._images(x))[1].reshape(*lead, -1)
        return a.reshape(*lead, -1).gather(-1, positions).reshape(*lead, *space)

    def scatter(self, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        images = self._images(x)
        result: torch.Tensor = self._call(
            "max_pool*_with_indices_backward", self._images(g), images, self._kernel,
            self._stride, self._padding, self._dilation, False, self._maxima(images)[1],
        )  # fmt: skip
        return result.reshape(x.shape)

    def sum(self, x: torch.Tensor, space: SpaceExtents) -> torch.Tensor:
        result: torch.Tensor = self._call(
            "avg_pool*", self._images(x), self._kernel, self._stride, self._padding, False, True, 1
        )
        return result.reshape(*x.shape[: x.ndim - self._space], *space)

    def add_windows(self, g: torch.Tensor, extents: SpaceExtents) -> torch.Tensor:
        lead = g.shape[: g.ndim - self._space]
        like = self._images(g.new_empty(()).expand(*lead, *extents))
        result: torch.Tensor = self._call(
            "avg_pool*_backward", self._images(g), like, self._kernel, self._stride,
            self._padding, False, True, 1,
        )  # fmt: skip
        return result.reshape(*lead, *extents)
