"""CUDA's unified memory: one address that host and device both read and write.

torch has no allocator for it, so this module calls the CUDA runtime that torch has loaded, and
wraps the memory as a tensor through the CUDA array interface.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from functools import cache
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from magmath.errors import DeviceError, MemoryLimitError
from magmath.memory.chunk_sources import ChunkSource

_ATTACH_GLOBAL = 1  # cudaMemAttachGlobal: any device may use it


@final
class ManagedSource(ChunkSource):
    """Chunks of unified memory, initially on one CUDA device. Raises DeviceError without CUDA."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rank = 0
        self.size = 1
        runtime = cuda_runtime()
        if runtime is None:
            raise DeviceError(
                "this machine has no CUDA runtime, which unified memory comes from"
                "; use memory of kind HOST"
            )
        self._runtime = runtime

    def chunk(self, nbytes: int) -> tuple[Tensor | None, ...]:
        address = ctypes.c_void_p()
        with torch.cuda.device(self.device):
            status = self._runtime.cudaMallocManaged(
                ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_uint(_ATTACH_GLOBAL)
            )
        if status or address.value is None:
            raise MemoryLimitError(
                f"CUDA gives no {nbytes / 1e6:.3g} MB of unified memory (error {status}); free "
                f"arrays, or use memory of kind HOST or DEVICE"
            )
        return (torch.as_tensor(_Managed(self._runtime, address, nbytes), device=self.device),)


@final
class _Managed:
    """The owner of a block of unified memory; its tensor keeps it alive."""

    def __init__(self, runtime: ctypes.CDLL, address: ctypes.c_void_p, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address.value, False),
            "version": 3,
        }
        weakref.finalize(self, runtime.cudaFree, address)


def host_view(tensor: Tensor) -> Tensor:
    """Return the same unified memory as a flat host tensor; valid while `tensor` is alive."""
    if tensor.nbytes == 0:
        return torch.empty(0, dtype=tensor.dtype)
    memory = (ctypes.c_byte * tensor.nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype)


@cache
def cuda_runtime() -> ctypes.CDLL | None:
    """Return the CUDA runtime that torch has loaded, or None."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.init()  # type: ignore[no-untyped-call]
    maps = Path("/proc/self/maps")
    match = re.search(r"/\S*libcudart\S*", maps.read_text()) if maps.exists() else None
    return ctypes.CDLL(match.group()) if match else None
