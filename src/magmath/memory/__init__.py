"""All memory of the workers: the pooled heap of arrays and the user's memory manager."""

from __future__ import annotations

from magmath.memory.heap import Block, ChunkSource, Heap, PrivateSource, WindowSource
from magmath.memory.stored import Stored, tile_tensor
from magmath.memory.tensors import from_torch, to_torch

__all__ = [
    "Block",
    "ChunkSource",
    "Heap",
    "PrivateSource",
    "Stored",
    "WindowSource",
    "from_torch",
    "tile_tensor",
    "to_torch",
]
