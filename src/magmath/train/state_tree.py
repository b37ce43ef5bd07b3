"""Histories and states of callbacks and schedules in checkpoints: values as JSON, and arrays.

A state consists of numbers, strings, None and arrays, in lists, tuples and dictionaries. Arrays and
lists of numbers are tensors of the checkpoint, because the size of its metadata is limited; all
other values are part of the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.errors import OptionError

if TYPE_CHECKING:
    import torch

_PLAIN = (bool, int, float, str)
_TABLE_DTYPES: Mapping[type | None, type] = {int: np.int64, float: np.float64}
"""The element types of lists of numbers, which keep their values."""


def encode_state(owner: str, value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return a state as values that JSON represents; add its arrays and its lists of numbers to
    `arrays`.

    These have names that begin with `path`. Raises OptionError, which names the owner of the state,
    for values of other kinds.
    """
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return encode_state(owner, value.item(), path, arrays)
    if (numbers := _number_table(value)) is not None:
        return {"numbers": _store(asarray(numbers), path, arrays)}
    if isinstance(value, (list, tuple)):
        items = [encode_state(owner, v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, Mapping) and all(type(key) in (int, str) for key in value):
        return {
            "dict": [[k, encode_state(owner, v, f"{path}/{k}", arrays)] for k, v in value.items()],
        }
    if isinstance(value, (Array, np.ndarray)) or hasattr(value, "__dlpack__"):
        array = value.snapshot() if isinstance(value, Variable) else asarray(value)
        kind = "numpy" if isinstance(value, np.ndarray) else "array"
        return {kind: _store(array, path, arrays)}
    raise OptionError(
        f"fit: the state of {owner} has a {type(value).__name__} ({path.partition('/')[2]}), which "
        f"a checkpoint cannot store; state_dict() must return numbers, strings, None and arrays, "
        f"in lists, tuples and dictionaries with keys of type str or int"
    )


def _store(array: Array, path: str, arrays: dict[str, Array]) -> str:
    """Add an array under its path, or under a longer name if another one has that: keys may be
    equal as texts, or contain slashes. Return the name."""
    while path in arrays:
        path += "'"
    arrays[path] = array
    return path


def _number_table(value: Any) -> npt.NDArray[Any] | None:
    """Return a list of numbers of one type, int or float, or of such lists of equal lengths, as an
    array; None for other values."""
    dtype = _TABLE_DTYPES.get(_number_type(value)) if type(value) is list else None
    try:
        return None if dtype is None else np.array(value, dtype)
    except (ValueError, OverflowError):  # the lengths differ, or an integer has more than 64 bits
        return None


def _number_type(value: Any) -> type | None:
    """Return the type of a number, or of all numbers in nested lists; None if there is no such."""
    if type(value) is not list:
        return float if isinstance(value, np.floating) else type(value)
    types = set(map(_number_type, value))
    return types.pop() if len(types) == 1 else None


def decode_state(content: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the state that `encode_state` has converted; its arrays are in `tensors`."""
    if not isinstance(content, dict):
        return content
    ((kind, value),) = content.items()
    if kind == "dict":
        return {k: decode_state(v, tensors) for k, v in value}
    if kind in ("list", "tuple"):
        items = [decode_state(v, tensors) for v in value]
        return tuple(items) if kind == "tuple" else items
    if kind == "numbers":
        return tensors[value].tolist()
    array = asarray(tensors[value])
    return array.numpy() if kind == "numpy" else array
