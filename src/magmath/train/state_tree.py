"""States of callbacks and schedules in checkpoints: nested values as JSON, and their arrays.

A state consists of numbers, strings, None and arrays, in lists, tuples and dictionaries. Arrays are
tensors of the checkpoint, all other values are part of its metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.errors import OptionError

if TYPE_CHECKING:
    import torch

_PLAIN = (bool, int, float, str)


def encode_state(owner: str, value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return a state as values that JSON represents; add its arrays to `arrays`.

    The arrays have names that begin with `path`. Raises OptionError, which names the owner of the
    state, for values of other kinds.
    """
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return encode_state(owner, value.item(), path, arrays)
    if isinstance(value, (list, tuple)):
        items = [encode_state(owner, v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, Mapping) and all(type(key) in (int, str) for key in value):
        return {
            "dict": [[k, encode_state(owner, v, f"{path}/{k}", arrays)] for k, v in value.items()],
        }
    if isinstance(value, (Array, np.ndarray)) or hasattr(value, "__dlpack__"):
        array = value.snapshot() if isinstance(value, Variable) else asarray(value)
        arrays[path] = array
        return {"numpy" if isinstance(value, np.ndarray) else "array": path}
    raise OptionError(
        f"fit: the state of {owner} has a {type(value).__name__} ({path.partition('/')[2]}), which "
        f"a checkpoint cannot store; state_dict() must return numbers, strings, None and arrays, "
        f"in lists, tuples and dictionaries with keys of type str or int"
    )


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
    array = asarray(tensors[value])
    return array.numpy() if kind == "numpy" else array
