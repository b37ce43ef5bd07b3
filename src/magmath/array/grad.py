"""Gradients of expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from magmath.array.array import Array
from magmath.array.variable import Variable
from magmath.autodiff import gradients


@overload
def grad(y: Array, xs: Array) -> Array: ...
@overload
def grad(y: Array, xs: Sequence[Array]) -> list[Array]: ...
def grad(y: Array, xs: Array | Sequence[Array] | None = None) -> Array | list[Array]:
    """The gradient of a 0-d array with respect to an array, or to each of several.

    The result is an expression like any other: it can be combined, compiled and differentiated
    again. What y does not depend on has gradient zero. With respect to a variable, all values that
    y has read of it count. Arrays whose values were asked for can be differentiated as long as what
    they were computed from exists; MagmathError is raised where it does not, and where y depends on
    what xs was computed from but not on xs: `x[0]` is another array each time it is written.
    Raises ShapeError if y is not 0-d, DTypeError for other than real floats.
    """
    if xs is None:
        raise TypeError(
            "grad: needs the arrays to differentiate by: mm.grad(y, x), or a list of them"
        )
    several = isinstance(xs, Iterable) and not isinstance(xs, (Array, np.ndarray))
    sources: list[Array] = list(xs) if several else [xs]  # type: ignore[list-item]
    for array in (y, *sources):
        if not isinstance(array, Array):
            raise TypeError(
                f"grad: needs magmath arrays, was given {type(array).__name__}; the result must be "
                f"made of the very array that it is differentiated by: x = mm.asarray(x)"
            )
    nodes = [x.leaf if isinstance(x, Variable) else x.node for x in sources]
    found = [Array(node) for node in gradients(y.node, nodes)]
    return found[0] if isinstance(xs, Array) else found
