"""Arrays as text and as pictures. Of a large array only the edges are fetched and shown, as NumPy
does it; `numpy.set_printoptions` holds here too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.layout.picture import picture

if TYPE_CHECKING:
    from magmath.array.array import Array


def text(array: Array) -> str:
    """The values alone, as `print` shows them."""
    with _as_numpy_would(array) as values:
        return str(values)


def representation(array: Array) -> str:
    """What the prompt shows: the values, shape, element type and layout."""
    prefix = "magmath.Array("
    with _as_numpy_would(array) as values:
        shown = np.array2string(values, separator=", ", prefix=prefix)
    return f"{prefix}{shown}, shape={array.shape}, dtype={array.dtype}, layout={array.layout})"


def html(array: Array) -> str:
    """What a notebook shows: who holds what, and the values."""
    drawn = picture(array.layout, array.dtype.itemsize, "Array", array.dtype.name)
    style = "font-size: 11px; margin: 4px 6px"
    return f'<div>{drawn}<pre style="{style}">{escape(text(array))}</pre></div>'


@contextmanager
def _as_numpy_would(array: Array) -> Iterator[np.ndarray[Any, Any]]:
    """The values, or the edges of many, while NumPy's options are such that it prints them so."""
    options: Any = np.get_printoptions()
    if array.size <= options["threshold"]:
        yield array.numpy()
        return
    array.evaluated()
    edge = max(1, int(options["edgeitems"]))
    with np.printoptions(threshold=0, edgeitems=edge):
        yield _edges(array, edge).numpy()


def _edges(array: Array, edge: int) -> Array:
    """The first and last indices of each dimension: one more than are shown, so that NumPy leaves
    out the middle."""
    from magmath.array.manipulation import concat

    for dim, extent in enumerate(array.shape):
        if extent > 2 * edge + 1:
            whole = tuple(repeat(slice(None), dim))
            first = array[(*whole, slice(0, edge + 1))]
            last = array[(*whole, slice(extent - edge, extent))]
            array = concat([first, last], axis=dim)
    return array
