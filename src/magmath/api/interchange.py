"""Import of other libraries' arrays by DLPack: their values are copied to the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils.dlpack import from_dlpack as tensor_from_dlpack

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.inputs.conversion import leaf_of_tensor, leaf_of_values
from magmath.engine.devices import check_device


def from_dlpack(x: Any, /, *, device: object = None, copy: bool | None = None) -> Array:
    """Copy an array of another library to the workers, by DLPack; return an Array unchanged.

    Raises BufferError for `copy=False` if a copy is needed, DeviceError for a device other than the
    pool's, DTypeError for element types that magmath lacks.
    """
    check_device("from_dlpack", device)
    if isinstance(x, Array):
        return asarray(x, copy=copy)
    if copy is False:
        raise BufferError(
            "from_dlpack: copy=False, but the values must be copied to the workers"
            "; leave `copy` out"
        )
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: needs an array with __dlpack__, was given {x!r}"
            "; convert it with mm.asarray(x)"
        )
    return _import_array(x)


def _import_array(x: Any) -> Array:
    """Import an array with NumPy, otherwise with PyTorch.

    NumPy supports all strides, while PyTorch ends the process at negative ones. PyTorch supports
    bfloat16 and GPUs.
    """
    try:
        values = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):
        return Array(leaf_of_tensor(tensor_from_dlpack(x).detach().cpu().contiguous()))
    return Array(leaf_of_values(values))
