"""Arrays as text and as pictures. Of a large array only the edges are fetched and shown, as NumPy
does it; `numpy.set_printoptions` holds here too. An array whose pool has ended is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.array.data import data_of
from magmath.diagnostics.layout_svg import draw_layout
from magmath.errors import WorkerLost
from magmath.graph import topological

if TYPE_CHECKING:
    from magmath.array.array import Array


def text(array: Array) -> str:
    """The values alone, as `print` shows them."""
    return _shown(array, _text)


def representation(array: Array) -> str:
    """What the prompt shows: the values, shape, element type and layout."""
    return _shown(array, _representation)


def html(array: Array) -> str:
    """What a notebook shows: the layout, and the values."""
    return _shown(array, _html)


def _shown(array: Array, show: Callable[[Array], str]) -> str:
    """What `show` makes of an array; a line that says so where its pool has ended."""
    lost = why_lost(array)
    if not lost:
        try:
            return show(array)
        except WorkerLost:
            lost = why_lost(array)
            if not lost:
                raise
    line = f"<magmath.Array of shape {array.shape} {array.dtype}: its pool {lost}>"
    return escape(line) if show is _html else line


def why_lost(array: Array) -> str:
    """What has become of a pool that held values of which an array is made: "has ended", or "is
    another process's" in a fork of the process that started it. Empty while all of them exist."""
    known = array.is_known()
    order = [array.evaluated()] if known else topological((array.node,), cut=True)
    for node in order:
        leaf = node.known
        if leaf.is_leaf and leaf.name != "parameter" and leaf.value is not None:
            pool = data_of(leaf).pool
            if pool.closed:
                return "has ended"
            if pool.end_reason is not None:
                return "is another process's"
    return ""


def _text(array: Array) -> str:
    with _as_numpy_would(array) as values:
        return str(values)


def _representation(array: Array) -> str:
    prefix = "magmath.Array("
    with _as_numpy_would(array) as values:
        shown = np.array2string(values, separator=", ", prefix=prefix)
    return f"{prefix}{shown}, shape={array.shape}, dtype={array.dtype}, layout={array.layout})"


def _html(array: Array) -> str:
    drawn = draw_layout(array.layout, array.dtype.itemsize, "Array", array.dtype.name)
    style = "font-size: 11px; margin: 4px 6px"
    return f'<div>{drawn}<pre style="{style}">{escape(_text(array))}</pre></div>'


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
