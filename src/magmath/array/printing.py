"""Arrays as text and as pictures. Of a large array only the edges are fetched and shown, as NumPy
does it; `numpy.set_printoptions` holds here too. An array whose pool has ended is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import numpy as np

from magmath.array.data import data_of
from magmath.array.handle import Handle
from magmath.errors import WorkerLost
from magmath.graph import apply, topological
from magmath.layout.picture import picture
from magmath.ops.manipulation import CONCAT
from magmath.ops.slicing import slice_along


def text(array: Handle) -> str:
    """The values alone, as `print` shows them."""
    return _shown(array, _text)


def representation(array: Handle) -> str:
    """What the prompt shows: the values, shape, element type and layout."""
    return _shown(array, _representation)


def html(array: Handle) -> str:
    """What a notebook shows: the layout, and the values."""
    return _shown(array, _html)


def _shown(array: Handle, show: Callable[[Handle], str]) -> str:
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


def why_lost(array: Handle) -> str:
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
            if pool.why_ended is not None:
                return "is another process's"
    return ""


def _text(array: Handle) -> str:
    with shown_values(array) as values:
        return str(values)


def _representation(array: Handle) -> str:
    prefix = "magmath.Array("
    with shown_values(array) as values:
        shown = np.array2string(values, separator=", ", prefix=prefix)
    return f"{prefix}{shown}, shape={array.shape}, dtype={array.dtype}, layout={array.layout})"


def _html(array: Handle) -> str:
    drawn = picture(array.layout, array.dtype.itemsize, "Array", array.dtype.name)
    style = "font-size: 11px; margin: 4px 6px"
    return f'<div>{drawn}<pre style="{style}">{escape(_text(array))}</pre></div>'


@contextmanager
def shown_values(array: Handle) -> Iterator[np.ndarray[Any, Any]]:
    """The values, or the edges of many, while NumPy's options are such that it prints them so."""
    options: Any = np.get_printoptions()
    if array.size <= options["threshold"]:
        yield array.numpy()
        return
    array.evaluated()
    edge = max(1, int(options["edgeitems"]))
    with np.printoptions(threshold=0, edgeitems=edge):
        yield _edges(array, edge).numpy()


def _edges(array: Handle, edge: int) -> Handle:
    """The first and last indices of each dimension: one more than are shown, so that NumPy leaves
    out the middle."""
    node = array.node
    for dim, extent in enumerate(array.shape):
        if extent > 2 * edge + 1:
            first = slice_along(node, dim, 0, edge + 1)
            last = slice_along(node, dim, extent - edge, extent)
            node = apply(CONCAT, first, last, axis=dim)
    return Handle(node)
