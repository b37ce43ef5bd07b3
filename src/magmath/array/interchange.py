"""Exchange of arrays with other libraries by DLPack: through the memory of the controller.

An array lies on workers, so what is handed out is a copy that nobody else refers to, and what is
taken in is copied to the workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack as tensor_from_dlpack

from magmath.array.array import Array
from magmath.array.creation import asarray, put
from magmath.array.data import data_of
from magmath.array.devices import check_device

CPU = (1, 0)  # kDLCPU, its only device


def to_dlpack(
    x: Array,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A DLPack capsule with a copy of the array's values in the controller's memory."""
    if dl_device is not None and tuple(map(int, dl_device)) != CPU:
        raise BufferError(f"__dlpack__: exports to the CPU, not to device {tuple(dl_device)}")
    if stream is not None:
        raise BufferError("__dlpack__: there are no streams on the CPU; leave `stream` out")
    if copy is False:
        raise BufferError("__dlpack__: copy=False, but an array's values must be copied from the "
                          "workers")  # fmt: skip
    data = data_of(x.evaluated())
    tensor: torch.Tensor = data.pool.get(data.handle)
    return tensor.__dlpack__(max_version=max_version)


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
        return put(tensor_from_dlpack(x).detach().cpu().contiguous())
    return asarray(values)
