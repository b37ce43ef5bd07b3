"""Applies Python functions along axes. The controller calls them with parts of an array; the
workers compute the operations in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any, Final

from magmath.api.manipulation import concat, expand_dims, moveaxis, reshape, stack
from magmath.arrays.array import Array, as_array, as_array_for
from magmath.arrays.lazy_array import evaluate
from magmath.core.integers import is_integer
from magmath.core.shapes import normalize_axis
from magmath.engine.traces import tracing
from magmath.errors import ShapeError

MAX_PLANNED: Final = 128
"""Results that are planned together."""


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **options: Any
) -> Array:
    """Apply a function to each 1-D slice along an axis; its results replace the slices. The
    function is called once for each slice: one that takes an axis itself is faster."""
    x = as_array("apply_along_axis", arr)
    dim = normalize_axis("apply_along_axis", axis, x.ndim)
    lines = moveaxis(x, dim, -1)
    outer = lines.shape[:-1]
    if 0 in outer:
        raise ShapeError(
            f"apply_along_axis: needs extents of 1 or more in all axes but {axis}, "
            f"was given shape {x.shape}; leave empty arrays out"
        )
    results = (
        as_array_for("apply_along_axis", func1d(lines[index], *args, **options), x)
        for index in product(*map(range, outer))
    )
    stacked = _stacked(results)
    whole = reshape(stacked, (*outer, *stacked.shape[1:]))
    dims = range(len(outer), whole.ndim)
    return moveaxis(whole, dims, range(dim, dim + len(dims)))


def _stacked(results: Iterator[Array]) -> Array:
    """Return the results along a new first axis.

    Many results are computed block by block: the time to plan them together grows faster than
    their number.
    """
    blocks: list[Array] = []
    while block := list(islice(results, MAX_PLANNED)):
        blocks.append(stack(block))
        if len(block) == MAX_PLANNED and tracing.current() is None:
            evaluate(blocks[-1])
    return blocks[0] if len(blocks) == 1 else concat(blocks)


def apply_over_axes(func: Callable[..., Any], a: Any, axes: int | Sequence[int]) -> Array:
    """Apply a function (array, axis) → array over several axes in turn; reduced axes keep extent
    1."""
    x = as_array("apply_over_axes", a)
    ndim = x.ndim
    for axis in (axes,) if is_integer(axes) else axes:
        dim = normalize_axis("apply_over_axes", axis, ndim)
        result = as_array("apply_over_axes", func(x, dim))
        x = result if result.ndim == ndim else expand_dims(result, axis=dim)
        if x.ndim != ndim:
            raise ShapeError(
                "apply_over_axes: the function must return as many axes, or one less"
                "; keep the dimension with keepdims=True"
            )
    return x
