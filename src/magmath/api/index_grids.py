"""Grids of coordinates, and NumPy's objects that make them, or joined ranges, from subscripts."""

from __future__ import annotations

from typing import Any, Final, final

from magmath.api.creation import arange, created_array
from magmath.api.data_types import result_type
from magmath.api.index_functions import ix_
from magmath.api.manipulation import broadcast_arrays, concat, reshape, stack
from magmath.api.spaced_numbers import linspace
from magmath.arrays.array import Array, as_array, as_arrays, rearranged
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.views import Reshaped, Stretched
from magmath.core.dtypes import complex64, complex128, real_dtype
from magmath.errors import OptionError
from magmath.ops import sums


@dispatch_cached
def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Array, ...]:
    """Return coordinate arrays of a grid from 1-D arrays, one for each, of a dimension for each;
    arrays of other dimensions are flattened.

    indexing: "ij" orders the dimensions as the arrays, "xy" exchanges the first two. With `sparse`
    an array has an extent of 1 in the dimensions of the others. Without `copy` they are views,
    which are only read unless `sparse`.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f'meshgrid: indexing must be "xy" or "ij", was given {indexing!r}')
    lines = [as_array("meshgrid", x) for x in arrays]
    lines = [x if x.ndim == 1 else rearranged(x, Reshaped((x.size,))) for x in lines]
    ndim = len(lines)
    dims = list(range(ndim))
    if indexing == "xy" and ndim > 1:
        dims[:2] = [1, 0]
    shape = tuple(lines[dim].size for dim in dims)
    grids = []
    for x, dim in zip(lines, dims, strict=True):
        column = rearranged(x, Reshaped((1,) * dim + x.shape + (1,) * (ndim - dim - 1)))
        if not copy:
            grids.append(column if sparse else rearranged(column, Stretched(shape)))
            continue
        node = column.node
        grids.append(created_array(node if sparse else sums.broadcast_to(node, shape)))
    return tuple(grids)


def _line(part: slice) -> Array:
    """Return the numbers of a slice; an imaginary step is their number, with the last one
    included."""
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    if isinstance(step, complex) or getattr(step, "dtype", None) in (complex64, complex128):
        dtype = None
        if type(step) is not complex:  # a number of NumPy has a type of its own
            dtype = real_dtype(result_type(start, part.stop, step))
        line: Array = linspace(start, part.stop, int(abs(step)), dtype=dtype)
        return line
    return arange(start, part.stop, step)


@final
class Grid:
    """`mgrid` and `ogrid`: coordinates of the points of a grid, one array for each dimension."""

    def __init__(self, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if isinstance(key, slice):
            return _line(key)
        lines = ix_(*map(_line, key))
        return lines if self._sparse else stack(broadcast_arrays(*lines))


@final
class Joined:
    """`r_` and `c_`: arrays, numbers and ranges, joined along an axis.

    ndmin    the least number of dimensions; arrays of fewer get dimensions of extent 1
    leading  how many of these precede the dimensions of the array; negative: counted from the last

    A text before the entries replaces the three, as far as it names them: "axis,ndmin,leading".
    """

    def __init__(self, axis: int, ndmin: int, leading: int) -> None:
        self._settings = axis, ndmin, leading

    def __getitem__(self, key: Any) -> Array:
        entries = key if isinstance(key, tuple) else (key,)
        axis, ndmin, leading = self._settings
        if isinstance(entries[0], str):
            axis, ndmin, leading = _join_settings(entries[0], self._settings)
            entries = entries[1:]
        parts = as_arrays(
            "r_", *[_line(entry) if isinstance(entry, slice) else entry for entry in entries]
        )
        return concat([_with_dimensions(part, ndmin, leading) for part in parts], axis)


def _join_settings(text: str, settings: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the settings of a `Joined`, the first ones as the text says."""
    try:
        named = [int(number) for number in text.split(",")]
    except ValueError:
        named = []
    if not 0 < len(named) <= len(settings):
        raise OptionError(
            f"r_: a text before the arrays is 'axis', 'axis,ndmin' or 'axis,ndmin,leading', was "
            f"{text!r}; matrices are arrays of two dimensions: write r_['0,2', x]"
        )
    return (*named, *settings[len(named) :])


def _with_dimensions(x: Array, ndmin: int, leading: int) -> Array:
    """Return an array with at least `ndmin` dimensions; see `Joined`."""
    missing = max(ndmin - x.ndim, 0)
    before = min(leading if leading >= 0 else leading + missing + 1, missing)
    return reshape(x, (1,) * before + x.shape + (1,) * (missing - before)) if missing else x


mgrid: Final = Grid(sparse=False)
ogrid: Final = Grid(sparse=True)
r_: Final = Joined(axis=0, ndmin=1, leading=-1)
c_: Final = Joined(axis=-1, ndmin=2, leading=0)
