"""Transfers between a worker's part of an array and a file, in pieces, which bounds extra memory
and allows interrupts and progress reports."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch

from magmath.core.dtypes import DType
from magmath.core.index_set import Tile
from magmath.core.type_aliases import Poll
from magmath.errors import MissingDataError
from magmath.files.array_specs import ArraySpec, numpy_dtype
from magmath.files.csv_rows import CsvRows
from magmath.files.format_errors import as_data_error
from magmath.files.formats import StorageSpec
from magmath.memory.local_array import LocalArray
from magmath.runtime.tiles import numpy_index

PIECE_BYTES: Final = 1 << 24
"""Approximate bytes that are copied between two polls for interrupts."""
PIECE_NUMBERS: Final = 1 << 17
"""Approximate numbers that are converted from text, or into text, between two polls."""


@final
@dataclass(frozen=True)
class ArrayFile:
    """The location of an array in a file, and the name of the worker for error messages."""

    path: str
    storage: StorageSpec
    worker: str


def transfer_tile(
    file: ArrayFile, stored: LocalArray, rank: int, poll: Poll, *, writing: bool
) -> None:
    """Copy the part of worker `rank` from the file or into the file.

    `poll` gets the bytes of each piece and stops the transfer by returning True. Raises
    MissingDataError if this worker cannot access the file, DataError if its content contradicts its
    header, and InterruptedError if the transfer was stopped.
    """
    if not os.path.exists(file.path):
        raise MissingDataError(
            f"{file.worker} does not see {file.path}; a file of arrays must be in a folder that "
            f"all hosts of the pool share, under the same name"
        )
    if not stored.tensor.numel():
        return
    host = stored.tensor.cpu()  # no copy on a CPU worker
    spec = ArraySpec(stored.layout.shape, stored.dtype)
    with file.storage.open(file.path, spec, writing) as elements:
        for local, tile in _local_tiles(host, stored, rank):
            for here, there in _pieces(local, tile, file.storage):
                if writing:
                    elements[there] = local[here]
                else:
                    _read_piece(local, here, elements, there, file)
                if poll(local[here].nbytes, []):
                    raise InterruptedError(f"{file.worker} was interrupted at {file.path}")
    if not writing and host is not stored.tensor:
        stored.tensor.copy_(host)


def _local_tiles(
    host: torch.Tensor, stored: LocalArray, rank: int
) -> Iterator[tuple[np.ndarray[Any, Any], Tile]]:
    """Yield the tiles of a worker: their elements in its memory, and their indices."""
    flat, layout = _flat_numpy(host, stored.dtype), stored.layout
    for tile, (begin, shape) in zip(layout.tiles(rank), layout.tile_spans(rank), strict=True):
        yield flat[begin : begin + math.prod(shape)].reshape(shape), tile


def _read_piece(
    local: np.ndarray[Any, Any], here: Any, elements: Any, there: Any, file: ArrayFile
) -> None:
    """Read the elements at `there` in a file into those at `here` in memory. Any nonzero byte of a
    truth value means true, and becomes 1."""
    with as_data_error(file.path, "what its header announced"):
        values = np.asarray(elements[there])
        local[here] = values.view(np.uint8) if values.dtype.kind == "b" else values


def _flat_numpy(tensor: torch.Tensor, dtype: DType) -> np.ndarray[Any, Any]:
    """Return a contiguous CPU tensor as a flat NumPy array on the same memory."""
    return tensor.view(-1).view(torch.uint8).numpy().view(numpy_dtype(dtype))


def _pieces(
    local: np.ndarray[Any, Any], tile: Tile, storage: StorageSpec
) -> Iterator[tuple[Any, Any]]:
    """Yield selectors of pieces that take a fraction of a second, in the tile and in the whole
    array; chunks of the file are not split."""
    dim = next((d for d, extent in enumerate(local.shape) if extent > 1), None)
    if dim is None:
        yield ..., numpy_index(tile)
        return
    extent = local.shape[dim]
    grain = max(1, storage.chunks[dim]) if storage.chunks else 1
    is_text = isinstance(storage, CsvRows)
    numbers = PIECE_NUMBERS if is_text else PIECE_BYTES // local.itemsize
    count = grain * max(1, numbers * extent // max(1, local.size) // grain)
    for start in range(0, extent, count):
        stop = min(start + count, extent)
        part = (*tile[:dim], tile[dim].select(start, stop), *tile[dim + 1 :])
        yield (*[slice(None)] * dim, slice(start, stop)), numpy_index(part)
