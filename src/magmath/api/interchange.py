"""Import of other libraries' arrays by DLPack: their values are copied to the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils.dlpack import from_dlpack as tensor_from_dlpack

from magmath.api.creation import asarray
from magmath.array.array import Array
from magmath.array.conversion import leaf_of_tensor, leaf_of_values
from magmath.engine.devices import check_device


def from_dlpack(x: Any, /, *, device: object = None, copy: bool | None = None) -> Array:
    """The array of another library, by DLPack, copied to the workers; an Array is returned itself.

    Raises BufferError for `copy=False` where a copy is needed, DeviceError for another device than
    the pool's, DTypeError for element types that magmath lacks.
    """
    check_device("from_dlpack", device)
    if isinstance(x, Array):
        return asarray(x, copy=copy)
    if copy is False:
        raise BufferError("from_dlpack: copy=False, but the values must be copied to the workers")
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: needs an array with __dlpack__, was given {x!r}")
    return _taken(x)


def _taken(x: Any) -> Array:
    """By NumPy, which takes any strides: at negative ones torch ends the process. Torch has
    bfloat16 and GPUs."""
    try:
        values = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):
        return Array(leaf_of_tensor(tensor_from_dlpack(x).detach().cpu().contiguous()))
    return Array(leaf_of_values(values))
