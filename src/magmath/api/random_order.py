"""Random orders and choices of the entries of arrays."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

import numpy as np

from magmath.api.creation import asarray, normal_shape, require_known
from magmath.api.cumulative import cumulative_sum
from magmath.api.elementwise import log
from magmath.api.indexing import take, take_along_axis
from magmath.api.manipulation import reshape
from magmath.api.random_draw import Draw, DrawState, Size
from magmath.api.random_integers import integers
from magmath.api.searching import searchsorted
from magmath.api.sorting import argsort
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import float64, int64
from magmath.core.shapes import normalize_axis, size_of
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape, apply
from magmath.ops import creation


def permutation(state: DrawState, x: Any, axis: int) -> Array:
    """Return 0 … x-1, or the entries of an array along an axis, in random order; those of a list of
    texts as an array of NumPy."""
    require_known("random.permutation", "random.permutation(n)", x)
    if isinstance(x, (int, np.integer)):
        return _order(state, int(x), int(x))
    if (entries := _objects(x)) is not None:
        order: Any = _order(state, len(entries), len(entries)).numpy()
        return entries[order]  # type: ignore[no-any-return]
    x = as_array("random.permutation", x)
    axis = normalize_axis("random.permutation", axis, x.ndim)
    return take(x, _order(state, x.shape[axis], x.shape[axis]), axis=axis)


def _order(state: DrawState, count: int, below: int) -> Array:
    """Return the first `count` of the positions 0 … below-1 in random order."""
    attributes = {"shape": (count,), "dtype": int64, "below": below}
    return Array(apply(creation.PERMUTATION, *state.draw(), **attributes, line=user_line()))


def permuted(state: DrawState, x: Any, axis: int | None) -> Array:
    """Return the elements of an array in random order, each 1-D slice along `axis` in its own
    order."""
    x = as_array("random.permuted", x)
    if axis is None:
        return reshape(permutation(state, reshape(x, (-1,)), 0), x.shape)
    axis = normalize_axis("random.permuted", axis, x.ndim)
    keys = apply(creation.BITS, *state.draw(), shape=x.shape, dtype=int64, line=user_line())
    return take_along_axis(x, argsort(Array(keys), axis=axis), axis=axis)


def shuffle(state: DrawState, x: Any, axis: int) -> None:
    """Bring the entries of an array along an axis, or those of a list, into random order, in
    place."""
    if isinstance(x, MutableSequence):
        x[:] = [x[i] for i in _order(state, len(x), len(x)).tolist()]
        return
    if not isinstance(x, Array):
        raise TypeError(
            f"random.shuffle: changes arrays of magmath in place, was given {type(x).__name__}; "
            f"write x = mm.random.permutation(x)"
        )
    stored("random.shuffle", permutation(state, x, axis), x)


def choice(state: DrawState, a: Any, size: Size, replace: bool, p: Any, axis: int) -> Array:
    """Return entries of an array along an axis, or integers below `a`; entries of a list of texts
    as an array of NumPy, or a text."""
    if (entries := _objects(a)) is not None:
        positions: Any = choice(state, len(entries), size, replace, p, 0).numpy()
        return entries[positions]  # type: ignore[no-any-return]
    require_known("random.choice", "random.choice(n, …)", a)
    values = None if isinstance(a, (int, np.integer)) else asarray(a)
    if values is not None:
        axis = normalize_axis("random.choice", axis, values.ndim)
    extent = int(a) if values is None else values.shape[axis]
    shape = normal_shape("random.choice", () if size is None else size)
    count = size_of(shape)
    if not extent and count:
        raise ShapeError(
            "random.choice: there is nothing to choose from"
            "; pass a number of at least 1, or an array with elements"
        )
    if not replace and count > extent:
        raise ShapeError(
            f"random.choice: cannot draw {count} of {extent} without replacement"
            "; draw fewer, or pass replace=True"
        )
    if p is not None:
        probabilities = _probabilities(p, extent, 0 if replace else count)
        positions = _weighted_positions(state, probabilities, shape, replace)
    elif replace and extent:
        positions = Array(integers(state, 0, extent, shape, False))
    else:
        positions = reshape(_order(state, count, extent), shape)
    return positions if values is None else take(values, positions, axis=axis)


def _weighted_positions(
    state: DrawState, probabilities: Array, shape: Shape, replace: bool
) -> Array:
    """Return positions drawn with these probabilities."""
    if replace:
        limits = cumulative_sum(probabilities, dtype=float64)  # narrow types lose small ones
        draw = Draw(state, "choice", shape, float64)
        drawn = Array(draw.standard(creation.UNIFORM))
        return searchsorted(limits / limits[-1], drawn, "right")
    # The largest of log p plus noise of Gumbel's distribution.
    draw = Draw(state, "choice", probabilities.size, None)
    noise = -log(Array(draw.standard(creation.EXPONENTIAL)))
    order = argsort(log(probabilities) + noise, descending=True)
    return reshape(order[: size_of(shape)], shape)


def _objects(values: Any) -> np.ndarray[Any, Any] | None:
    """Return a list of texts or other objects, which the workers cannot store, as an array of
    NumPy; None for numbers."""
    if isinstance(values, (list, tuple)):
        if all(hasattr(x, "__float__") or isinstance(x, (list, tuple, complex)) for x in values):
            return None
        values = np.asarray(values)
    is_foreign = isinstance(values, np.ndarray) and values.dtype.kind not in "biufc"
    return values if is_foreign and values.ndim else None


def _probabilities(p: Any, extent: int, count: int) -> Array:
    """Return probabilities as an array. Those whose values are known here are checked: `count` of
    them must be above 0."""
    probabilities = floating("random.choice", p)
    if probabilities.shape != (extent,):
        raise ShapeError(
            f"random.choice: p needs one probability for each of {extent} entries, was given shape "
            f"{probabilities.shape}"
        )
    if isinstance(p, (Sequence, np.ndarray)):
        values = np.asarray(p, dtype=float)
        if not (values >= 0).all() or abs(values.sum() - 1) > 1e-5:
            raise OptionError(
                f"random.choice: probabilities are at least 0 and their sum is 1; the smallest is "
                f"{values.min():g}, the sum {values.sum():g}"
                "; divide them by their sum"
            )
        if np.count_nonzero(values) < count:
            raise ShapeError(
                f"random.choice: cannot draw {count} without replacement where only "
                f"{np.count_nonzero(values)} have a probability above 0"
                "; draw fewer, or pass replace=True"
            )
    return probabilities
