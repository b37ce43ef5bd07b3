"""A worker's part of an array, out of a file or into it: piece by piece, so that little is held
besides the part itself, an interrupt is heard and progress can be told."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from magmath.core.dtypes import DType
from magmath.core.index_set import Tile
from magmath.errors import MissingDataError
from magmath.files.format_errors import as_data_error
from magmath.files.formats import StorageSpec
from magmath.files.storage import ArraySpec, numpy_dtype
from magmath.memory.local_array import LocalArray
from magmath.runtime.tiles import numpy_index

PIECE_BYTES: Final = 1 << 24
"""About as many are copied between two looks at interrupts."""

Poll = Callable[[int, list[float]], bool]


@dataclass(frozen=True)
class ArrayFile:
    """Where an array lies, and who goes there."""

    path: str
    storage: StorageSpec
    worker: str


def transfer_tile(
    file: ArrayFile, stored: LocalArray, rank: int, poll: Poll, *, writing: bool
) -> None:
    """Copy the part of worker `rank` from the file, or into it.

    `poll` is told the bytes that each piece had; true stops. Raises MissingDataError where this
    worker does not see the file, DataError where it is not what its header announced, and
    InterruptedError where it was stopped.
    """
    if not os.path.exists(file.path):
        raise MissingDataError(
            f"{file.worker} does not see {file.path}; a file of arrays must lie in a folder that "
            f"all hosts of the pool share, under the same name"
        )
    if not stored.tensor.numel():
        return
    layout, dtype = stored.layout, stored.dtype
    host = stored.tensor.cpu()  # itself, where the worker is no GPU
    flat = _flat_numpy(host, dtype)
    with file.storage.open(file.path, ArraySpec(layout.shape, dtype), writing) as elements:
        spans = layout.tile_spans(rank)
        for tile, (begin, shape) in zip(layout.tiles(rank), spans, strict=True):
            local = flat[begin : begin + math.prod(shape)].reshape(shape)
            for here, there in _pieces(local, tile, file.storage.chunks):
                if writing:
                    elements[there] = local[here]
                else:
                    with as_data_error(file.path, "what its header announced"):
                        local[here] = elements[there]
                if poll(local[here].nbytes, []):
                    raise InterruptedError(f"{file.worker} was interrupted at {file.path}")
    if not writing and host is not stored.tensor:
        stored.tensor.copy_(host)


def _flat_numpy(tensor: torch.Tensor, dtype: DType) -> np.ndarray[Any, Any]:
    """A contiguous CPU tensor as a flat NumPy array on the same memory."""
    return tensor.view(-1).view(torch.uint8).numpy().view(numpy_dtype(dtype))


def _pieces(
    local: np.ndarray[Any, Any], tile: Tile, chunks: tuple[int, ...] | None
) -> Iterator[tuple[Any, Any]]:
    """What selects pieces of some megabytes, here in the tile and there in the whole array; the
    file's own chunks are not cut."""
    dim = next((d for d, extent in enumerate(local.shape) if extent > 1), None)
    if dim is None:
        yield ..., numpy_index(tile)
        return
    extent = local.shape[dim]
    grain = max(1, chunks[dim]) if chunks else 1
    count = grain * max(1, PIECE_BYTES * extent // max(1, local.nbytes) // grain)
    for start in range(0, extent, count):
        stop = min(start + count, extent)
        part = (*tile[:dim], tile[dim].select(start, stop), *tile[dim + 1 :])
        yield (*[slice(None)] * dim, slice(start, stop)), numpy_index(part)
