"""Splitting an array into the workers' tiles, and reassembling it, as raw bytes.

The functions copy elements as integers of their width, so that all dtypes are handled alike; bytes
may start at any address.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.core.index_set import Tile
from magmath.errors import ProtocolError
from magmath.layout import Layout

TileData: TypeAlias = torch.Tensor | bytes | memoryview
"""A worker's part of an array: a tensor within one process, its bytes between processes."""

_BITS: Final[dict[int, torch.dtype]] = {
    1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128,
}  # fmt: skip
_NUMPY_BITS: Final[dict[int, Any]] = {
    1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.complex128,
}  # fmt: skip


def covering_workers(layout: Layout) -> list[int]:
    """Return workers whose tiles cover the array, each element once."""
    if layout.boxes is not None:
        return [worker for worker in layout.mesh.workers if layout.local_size(worker)]
    worker_of: dict[Tile, int] = {}
    for worker in layout.mesh.workers:
        tile = layout.tiles(worker)[0]
        if tile not in worker_of and all(indices.size for indices in tile):
            worker_of[tile] = worker
    return list(worker_of.values())


def extract_tile(whole: torch.Tensor, layout: Layout, worker: int) -> torch.Tensor:
    """Return the worker's part of a CPU array, in its local shape; a view if possible."""
    if layout.boxes is None and layout.is_replicated and layout.tiles(worker):
        return whole
    bits = _bits(whole)
    parts = [bits[numpy_index(tile)] for tile in layout.tiles(worker)]
    if layout.boxes is not None:
        local = np.concatenate([part.reshape(-1) for part in parts] or [bits.reshape(-1)[:0]])
    else:
        local = parts[0] if parts else np.empty(layout.local_shape(worker), bits.dtype)
    return torch.from_numpy(local).view(whole.dtype)


def insert_tile(whole: torch.Tensor, layout: Layout, worker: int, data: TileData) -> None:
    """Write the worker's part into a CPU array.

    Raises ProtocolError if the data has another size than the tile.
    """
    if isinstance(data, torch.Tensor) and layout.is_replicated:
        whole.copy_(data)
        return
    bits, shape = _bits(whole), layout.local_shape(worker)
    local = _bits_of_data(data, whole.dtype, shape)
    if layout.boxes is None:
        bits[numpy_index(layout.tiles(worker)[0])] = local
        return
    spans = layout.tile_spans(worker)
    for tile, (start, extent) in zip(layout.tiles(worker), spans, strict=True):
        size = int(np.prod(extent, dtype=np.int64))
        bits[numpy_index(tile)] = local[start : start + size].reshape(extent)


def fill_tensor(local: torch.Tensor, data: TileData) -> None:
    """Write the data of a tile into a worker's own contiguous tensor, on any device.

    Raises ProtocolError if the data has another size than the tile.
    """
    if isinstance(data, torch.Tensor) and data.shape == local.shape:
        local.copy_(data)
    elif local.device.type == "cpu":
        _bits(local)[...] = _bits_of_data(data, local.dtype, tuple(local.shape))
    else:
        host = torch.empty(local.shape, dtype=local.dtype)
        fill_tensor(host, data)
        local.copy_(host)


def tile_bytes(data: TileData) -> bytes | memoryview:
    """Return the data of a tile as bytes in C order, without a copy if the tensor is contiguous."""
    if isinstance(data, torch.Tensor):
        if not data.numel():
            return b""
        dense = data.detach().cpu().resolve_conj().resolve_neg().contiguous()
        flat = dense.as_strided((dense.numel(),), (1,))  # one element counts as dense at any stride
        return flat.view(torch.uint8).numpy().data
    return data


def _bits(tensor: torch.Tensor) -> NDArray[Any]:
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.view(_BITS[plain.element_size()]).numpy()


def _bits_of_data(data: TileData, dtype: torch.dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    if isinstance(data, torch.Tensor) and data.dtype == dtype and data.shape == shape:
        return _bits(data)
    encoded, itemsize = tile_bytes(data), dtype.itemsize
    needed = itemsize * int(np.prod(shape, dtype=np.int64))
    if len(encoded) != needed:
        raise ProtocolError(f"a tile of shape {shape} has {needed} bytes, not {len(encoded)}")
    return np.frombuffer(encoded, _NUMPY_BITS[itemsize]).reshape(shape)


def numpy_index(tile: Tile) -> tuple[Any, ...]:
    """Return a NumPy index that selects the tile: slices, or the outer product of index arrays."""
    selectors = [indices.selector() for indices in tile]
    if sum(isinstance(selector, np.ndarray) for selector in selectors) > 1:
        return (*np.ix_(*[indices.indices() for indices in tile]), ...)
    return (*selectors, ...)
