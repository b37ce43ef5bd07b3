"""The outputs of the parts of a batch as those of the whole batch.

The axis that has another length in the outputs of the whole batch numbers the samples: outputs are
joined along it. An output without such an axis, such as a mean over the batch, is averaged, with
the weights of the parts. The outputs of the whole batch are not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from magmath.api.elementwise import add
from magmath.api.manipulation import concat, moveaxis, reshape
from magmath.api.statistics import mean
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.errors import ShapeError
from magmath.graph import Shape


def joined_outputs(parts: Sequence[Any], whole: Any, shares: Sequence[float]) -> Any:
    """Return the outputs of consecutive parts of a batch as those of the batch.

    parts   objects with arrays, nested alike
    whole   the same of the whole batch, of which only the shapes are read
    shares  the parts' shares of the samples
    """
    leaves_of_parts = zip(*[flatten(part)[0] for part in parts], strict=True)
    leaves, tree = flatten(whole)
    pairs = zip(leaves_of_parts, leaves, strict=True)
    return unflatten(tree, [_joined(arrays, x.shape, shares) for arrays, x in pairs])


def merged_outputs(stacked: Any, whole: Any) -> Any:
    """Return the outputs (parts, …) of equal consecutive parts of a batch as those of the batch.

    `whole`: the outputs of the whole batch, of which only the shapes are read.
    """
    leaves, tree = flatten(stacked)
    pairs = zip(leaves, flatten(whole)[0], strict=True)
    return unflatten(tree, [_merged(x, y.shape) for x, y in pairs])


def _joined(parts: Sequence[Array], whole: Shape, shares: Sequence[float]) -> Array:
    axis = _sample_axis(parts[0].shape, whole)
    if axis is not None:
        return concat(parts, axis=axis)
    return reduce(add, [x * share for x, share in zip(parts, shares, strict=True)])


def _merged(stacked: Array, whole: Shape) -> Array:
    count, *shape = stacked.shape
    if count == 1:
        return stacked[0]
    axis = _sample_axis(shape, whole)
    if axis is None:
        return mean(stacked, axis=0)
    shape[axis] *= count
    return reshape(moveaxis(stacked, 0, axis), shape)


def _sample_axis(part: Sequence[int], whole: Shape) -> int | None:
    """Return the axis of the samples in the output of a part; None if there is none."""
    axes = [axis for axis, (m, n) in enumerate(zip(part, whole, strict=False)) if m != n]
    if len(axes) > 1:
        raise ShapeError(
            f"outputs: one of shape {whole} depends on the samples in axes {axes}, so those of the "
            f"parts of a batch, such as {tuple(part)}, cannot be joined; return one with a single "
            f"axis of samples, or train without accumulate= and replicas"
        )
    return axes[0] if axes else None
