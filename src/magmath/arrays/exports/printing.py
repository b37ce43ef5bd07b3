"""Printing of arrays as text and HTML.

As in NumPy, only the edges of a large array are fetched and shown; `numpy.set_printoptions`
applies. An array without a value prints as one line: while a function is traced, and after its pool
has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import numpy as np

from magmath.arrays.lazy_array import LazyArray
from magmath.engine import session
from magmath.engine.remote_array import remote_array_of
from magmath.errors import TracingError, WorkerLost
from magmath.graph import apply, topological
from magmath.layout.svg import draw_layout
from magmath.ops.concatenation import CONCAT
from magmath.ops.slicing import slice_along


def text(array: LazyArray) -> str:
    """Return the values alone, as `print` shows them."""
    return _shown(array, _text)


def representation(array: LazyArray) -> str:
    """Return the text for the prompt: values, shape and element type; the layout where there are
    several workers."""
    return _shown(array, _representation)


def html(array: LazyArray) -> str:
    """Return the HTML for notebooks: the layout and the values."""
    return _shown(array, _html)


def _shown(array: LazyArray, show: Callable[[LazyArray], str]) -> str:
    """Return the result of `show` for an array, or a line of text if its pool has ended, or a
    function is traced."""
    try:
        reason = _why_lost(array)
        if not reason:
            return show(array)
    except TracingError:
        reason = "traced, without a value"
    except WorkerLost:
        reason = _why_lost(array)
        if not reason:
            raise
    line = f"<magmath.Array of shape {array.shape} {array.dtype}: {reason}>"
    return escape(line) if show is _html else line


def _why_lost(array: LazyArray) -> str:
    lost = why_lost(array)
    return f"its pool {lost}" if lost else ""


def why_lost(array: LazyArray) -> str:
    """Return why a pool with values of the array is unreachable; empty if all are reachable.

    The reason is "has ended", or "is another process's" in a fork of the process that started the
    pool.
    """
    is_computed = array.is_computed
    order = [array.evaluated_leaf()] if is_computed else topological((array.node,), pending=True)
    for node in order:
        leaf = node.leaf_or_self
        if leaf.is_leaf and leaf.name != "scalar" and leaf.value is not None:
            pool = remote_array_of(leaf).pool
            if pool.closed:
                return "has ended"
            if pool.end_reason is not None:
                return "is another process's"
    return ""


def _text(array: LazyArray) -> str:
    with shown_values(array) as values:
        return str(values)


def _representation(array: LazyArray) -> str:
    prefix = "magmath.Array("
    with shown_values(array) as values:
        shown = np.array2string(values, separator=", ", prefix=prefix)
    is_alone = session.engine().environment.workers == 1
    is_plain = is_alone and array.layout.is_whole_on_first_worker
    layout = "" if is_plain else f", layout={array.layout}"
    return f"{prefix}{shown}, shape={array.shape}, dtype={array.dtype}{layout})"


def _html(array: LazyArray) -> str:
    drawn = draw_layout(array.layout, array.dtype.itemsize, "Array", array.dtype.name)
    style = "font-size: 11px; margin: 4px 6px"
    return f'<div>{drawn}<pre style="{style}">{escape(_text(array))}</pre></div>'


@contextmanager
def shown_values(array: LazyArray) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the values, or the edges of a large array, with NumPy's print options set for them."""
    options: Any = np.get_printoptions()
    if array.size <= options["threshold"]:
        yield array.numpy()
        return
    array.evaluated_leaf()
    edge = max(1, int(options["edgeitems"]))
    with np.printoptions(threshold=0, edgeitems=edge):
        yield _edges(array, edge).numpy()


def _edges(array: LazyArray, edge: int) -> LazyArray:
    """Return the first and last elements of each dimension.

    It has one more than NumPy shows, so that NumPy elides the middle.
    """
    node = array.node
    for dim, extent in enumerate(array.shape):
        if extent > 2 * edge + 1:
            first = slice_along(node, dim, 0, edge + 1)
            last = slice_along(node, dim, extent - edge, extent)
            node = apply(CONCAT, first, last, axis=dim)
    return LazyArray(node)
