"""Export of arrays to other libraries by DLPack, as copies in the memory of the controller."""

from __future__ import annotations

from typing import Any

import torch

from magmath.arrays.lazy_array import LazyArray

CPU = (1, 0)  # kDLCPU, device 0


def to_dlpack(
    x: LazyArray,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a DLPack capsule with a copy of the array's values in the controller's memory."""
    if dl_device is not None and tuple(map(int, dl_device)) != CPU:
        raise BufferError(
            f"__dlpack__: exports to the CPU, not to device {tuple(dl_device)}"
            "; leave `dl_device` out"
        )
    if stream is not None:
        raise BufferError("__dlpack__: there are no streams on the CPU; leave `stream` out")
    if copy is False:
        raise BufferError(
            "__dlpack__: copy=False, but an array's values must be copied from the workers"
            "; leave `copy` out"
        )
    tensor: torch.Tensor = x.fetch()
    return tensor.__dlpack__(max_version=max_version)
