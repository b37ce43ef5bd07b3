"""Arrays as texts, by NumPy's names. Of a large array only the edges are fetched."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.array.array import as_array
from magmath.array.printing import shown_values


def array_repr(arr: Any) -> str:
    """What the prompt shows of an array."""
    return repr(as_array("array_repr", arr))


def array_str(a: Any) -> str:
    """What `print` shows of an array."""
    return str(as_array("array_str", a))


def array2string(a: Any, **options: Any) -> str:
    """What `print` shows of an array, with the options of `numpy.array2string`."""
    with shown_values(as_array("array2string", a)) as values:
        return np.array2string(values, **options)
