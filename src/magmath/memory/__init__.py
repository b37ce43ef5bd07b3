"""Memory of the workers: the pooled heap of arrays, and the user's memory manager."""

from __future__ import annotations

from magmath.memory.chunk_sources import ChunkSource, PrivateSource, SharedWindowSource
from magmath.memory.heap import Block, Heap
from magmath.memory.local_array import LocalArray, tile_tensor
from magmath.memory.manager import MemoryKind, MemoryManager, available_kinds
from magmath.memory.torch_dtypes import from_torch, to_torch

__all__ = [
    "Block",
    "ChunkSource",
    "Heap",
    "LocalArray",
    "MemoryKind",
    "MemoryManager",
    "PrivateSource",
    "SharedWindowSource",
    "available_kinds",
    "from_torch",
    "tile_tensor",
    "to_torch",
]
