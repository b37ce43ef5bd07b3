"""The steps of loops, and their states: arrays, nested as the user's value is, whose shapes and
types each step keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from magmath.api.creation import asarray
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.operands import written_operand
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import Tree, flatten
from magmath.core.dtypes import DType
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Node

StepFunction: TypeAlias = Callable[
    [Sequence[Array], Sequence[Array], Node], tuple[Sequence[Node], Sequence[Node]]
]
"""States, rows and the number of the step → the next states, and values to collect."""


@final
class LoopResults(NamedTuple):
    """The final states of a loop, and the values that its steps have collected, stacked."""

    states: list[Array]
    collected: list[Array]


def state_of(value: Any) -> Array:
    """Return the initial value of a loop as an array with a new handle."""
    if isinstance(value, TracedScalar):
        return value.converted()
    return Array(value.node) if isinstance(value, Array) else asarray(value)


def checked_states(name: str, returned: Any, tree: Tree, states: Sequence[Array]) -> list[Node]:
    """Return the nodes of the arrays that the body of a loop returned.

    A Python number becomes an array of the state's type, unless its kind is more general. Raises
    OptionError, ShapeError or DTypeError if their structure, shapes or types are not those of the
    states.
    """
    leaves, returned_tree = flatten(returned)
    if returned_tree != tree:
        raise OptionError(
            f"{name}: the body must return the structure of arrays that it receives; it returned "
            f"{_structure(returned, len(leaves))}, for {_counted(len(states))}"
        )
    arrays = [_next_state(name, leaf, state) for leaf, state in zip(leaves, states, strict=True)]
    for array, state in zip(arrays, states, strict=True):
        if array.shape != state.shape or array.dtype != state.dtype:
            raise (ShapeError if array.shape != state.shape else DTypeError)(
                f"{name}: the body was given {state.shape} {state.dtype} and returned "
                f"{array.shape} {array.dtype}; every step must return the same shape and type, "
                f"that of the initial value{_remedy(array.dtype, state.dtype)}"
            )
    return [array.node for array in arrays]


def _remedy(returned: DType, initial: DType) -> str:
    """Return the advice for results of a more general type than the initial value."""
    if not (initial.is_integer and returned.is_floating):
        return ""
    return ": give a floating-point one, such as 0.0 for 0"


def _structure(returned: Any, count: int) -> str:
    return "None" if returned is None else f"{type(returned).__name__} of {_counted(count)}"


def _counted(count: int) -> str:
    return f"{count} array{'' if count == 1 else 's'}"


def _next_state(name: str, value: Any, state: Array) -> Array:
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return Array(written_operand(state.dtype, value, name))
    return as_array(name, value)
