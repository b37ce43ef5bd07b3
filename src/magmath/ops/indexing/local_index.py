"""Conversion of global indices along a dimension to positions in a worker's tile.

All kernels that access elements by index use it: negative indices count from the end, indices must
be in range, and an indexed element may be stored on another worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from magmath.core.dtypes import int64
from magmath.core.index_set import IndexSet
from magmath.errors import IndexingError
from magmath.graph import Node
from magmath.graph.operation import CheckedOperands, OperandCheck
from magmath.ops.elementwise import astype, call
from magmath.ops.leaves import constant

if TYPE_CHECKING:
    import torch


@final
class LocalIndices(NamedTuple):
    """Local positions, and a mask of the elements that are stored here (None: all are)."""

    local: torch.Tensor
    here: torch.Tensor | None


@final
class Locator:
    """Converts global positions of one dimension to positions in the stored indices.

    Indices that are out of range are reported in `record`, if there is one.
    """

    def __init__(
        self,
        axis: int,
        extent: int,
        stored_indices: IndexSet,
        device: torch.device,
        record: torch.Tensor | None = None,
    ) -> None:
        from magmath.memory.torch_dtypes import as_tensor

        self.axis, self.extent, self._record = axis, extent, record
        self._stored_indices = stored_indices
        self.is_whole = stored_indices.size == extent
        if not stored_indices.is_range:
            starts, stops = stored_indices.segments()
            before = (stops - starts).cumsum() - (stops - starts)
            self._starts, self._stops, self._before = (
                as_tensor(values, device) for values in (starts, stops, before)
            )

    def __call__(self, positions: torch.Tensor) -> LocalIndices:
        """Return the local positions of global positions in 0 … extent - 1."""
        import torch

        if self.is_whole:
            return LocalIndices(positions, None)
        stored = self._stored_indices
        if stored.is_range:
            local = positions - stored.start
            here = (local >= 0) & (local < stored.size)
        else:
            piece = (torch.searchsorted(self._starts, positions, right=True) - 1).clamp_(min=0)
            local = self._before[piece] + positions - self._starts[piece]
            here = (positions >= self._starts[piece]) & (positions < self._stops[piece])
        return LocalIndices(torch.where(here, local, 0), here)

    def wrapped(self, indices: torch.Tensor) -> torch.Tensor:
        """Return indices as non-negative positions. Raises IndexError for one out of range, or
        records it."""
        if self._record is not None and self.extent and indices.numel():
            positions = indices.long()
            wrong = (positions < -self.extent) | (positions >= self.extent)
            record_first_failure(self._record, positions.reshape(-1), wrong.reshape(-1))
            return positions.remainder(self.extent)
        positions, failure = normalized(indices, self.axis, self.extent)
        if failure is not None:
            raise failure
        return positions


def normalized(
    indices: torch.Tensor, axis: int, extent: int
) -> tuple[torch.Tensor, IndexingError | None]:
    """Return indices as non-negative positions, 0 for those out of range, and their error."""
    import torch

    positions = indices.long()
    if _are_positions(positions, extent):
        return positions, None
    positions = torch.where(positions < 0, positions + extent, positions)
    outside = (positions < 0) | (positions >= extent)
    if not outside.any():
        return positions, None
    wrong = int(indices.long()[outside].flatten()[0])
    return positions.masked_fill(outside, 0), index_out_of_range(wrong, axis, extent)


def record_first_failure(record: torch.Tensor, numbers: torch.Tensor, wrong: torch.Tensor) -> None:
    """Record the first of a row of numbers that is wrong, if one is; the host does not wait."""
    import torch

    is_any_wrong = wrong.any().reshape(1)
    number = numbers.gather(0, wrong.long().argmax(0, keepdim=True))
    record.copy_(torch.where(is_any_wrong, torch.cat([is_any_wrong.long(), number]), record))


def _are_positions(indices: torch.Tensor, extent: int) -> bool:
    """True if all int64 indices in host memory are in 0 … extent - 1, which one pass finds: a
    negative number is a large one without its sign."""
    if indices.device.type != "cpu" or not indices.numel():
        return False
    return int(indices.numpy().view(np.uint64).max()) < extent


def front(tensor: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """Return a view with these dimensions first."""
    return tensor.movedim(tuple(axes), tuple(range(len(axes))))


def out_of_range(
    index: int,
    axis: int,
    extent: int,
    operation: str = "indexing",
    *,
    may_be_of_table: bool = False,
) -> IndexingError:
    """Return the error for an index that is out of range for an axis.

    `may_be_of_table`: negative indices may be out of range (`not_from_the_end`), which only a
    negative index tells.
    """
    least = -extent
    if index < -_NEGATIVE // 2:
        index, least = index + _NEGATIVE, 0
    allowed = f"indices go from {least} to {extent - 1}"
    if may_be_of_table and index >= extent:
        allowed = f"the last index is {extent - 1}"
    return IndexingError(
        f"{operation}: index {index} is out of range for extent {extent} (axis {axis}); {allowed}"
        if extent
        else f"{operation}: index {index} is out of range: axis {axis} has extent 0"
    )


_NEGATIVE = 1 << 62
"""Subtracted from a negative index that must not count from the end, so that it is out of range."""


def not_from_the_end(indices: Node) -> Node:
    """Return indices into a table, of which negative ones are out of range."""
    if indices.dtype.kind == "uint":
        return indices
    wide = astype(indices, int64)
    return call("bitwise_and", wide, constant(~_NEGATIVE, int64))


index_out_of_range = partial(
    out_of_range, operation="take, embedding, or indexing by an array", may_be_of_table=True
)
"""Return the error for an element of an index array, in `take`, `embedding` or an indexing
expression."""


def _index_zero(node: Node, position: int) -> Node:
    return constant(0, node.inputs[position].dtype)


def checked_indices(
    first: int, check: Callable[[Node, int], OperandCheck] | None = None
) -> CheckedOperands:
    """Return the indices of an operation, of which one that is out of range makes it fail
    (IndexError): its integer operands from the one with the number `first` on.

    check  (node, number of an index, from 0) → the check of its values; by default each index is
           one along an axis in `axes` of the first operand
    """
    check_index = check or _check_along_axes
    return CheckedOperands(
        positions=lambda node: [
            i for i, x in enumerate(node.inputs) if i >= first and x.dtype.is_integer
        ],
        harmless=_index_zero,
        check=lambda node, position: check_index(node, position - first),
        accepts_draws=True,
    )


def _check_along_axes(node: Node, number: int) -> OperandCheck:
    axis = node.attributes["axes"][number]
    return index_check(axis, node.inputs[0].shape[axis])


def index_check(axis: int, extent: int) -> OperandCheck:
    """Return the function that raises IndexError for an index that is out of range for an axis."""

    def check(indices: Any) -> None:
        outside = (indices < -extent) | (indices >= extent)
        if outside is not False and np.any(outside):
            raise index_out_of_range(int(np.extract(outside, indices)[0]), axis, extent)

    return check


def conjunction(*masks: torch.Tensor | None) -> torch.Tensor | None:
    """Return the conjunction of masks; None if all of them are None."""
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result & mask
    return result


def neutral(tensor: torch.Tensor) -> float:
    """Return the neutral element of addition: -0.0 for floats, so that a sum with -0.0 is -0.0."""
    return -0.0 if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 0
