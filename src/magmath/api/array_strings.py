"""Arrays as strings, by NumPy's names. Of a large array only the edges are fetched."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from magmath.arrays.array import as_array
from magmath.arrays.exports.printing import shown_values


def array_repr(
    arr: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the `repr` of an array, with NumPy's options."""
    with _options(linewidth=max_line_width, precision=precision, suppress=suppress_small):
        return repr(as_array("array_repr", arr))


def array_str(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the `str` of an array, with NumPy's options."""
    with _options(linewidth=max_line_width, precision=precision, suppress=suppress_small):
        return str(as_array("array_str", a))


def array2string(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
    separator: str = " ",
    prefix: str = "",
    *,
    threshold: int | None = None,
    edgeitems: int | None = None,
    **options: Any,
) -> str:
    """Return the `str` of an array, with the options of `numpy.array2string`.

    Of an array of more elements than `threshold`, those at the edges are fetched (`edgeitems`).
    """
    edges = _options(threshold=threshold, edgeitems=edgeitems)
    with edges, shown_values(as_array("array2string", a)) as values:
        return np.array2string(
            values, max_line_width, precision, suppress_small, separator, prefix, **options
        )


def _options(**options: Any) -> AbstractContextManager[Any]:
    """Return the context in which NumPy prints with these options, without those that are None."""
    return np.printoptions(**{name: x for name, x in options.items() if x is not None})
