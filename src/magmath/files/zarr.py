"""Zarr stores, by zarr: a folder with a file for each chunk of each array.

Workers read and write at once as long as each chunk is one worker's, which `chunks` sees to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from magmath.files.format_errors import as_data_error
from magmath.files.optional_packages import import_package
from magmath.files.storage import (
    ArraySpec,
    Elements,
    Natural,
    Text,
    require_numpy_dtype,
    spec_of_numpy,
)

CHUNK_BYTES: Final = 1 << 23
"""The size of a chunk of what is written, roughly."""


class ZarrChunks(msgspec.Struct, frozen=True, tag="zarr", forbid_unknown_fields=True):
    """An array of a Zarr store; "" is the store itself."""

    name: Text
    chunks: tuple[Natural, ...]

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """The array; zarr reads and writes the chunks that are touched."""
        zarr = import_package("zarr", path)
        yield zarr.open_array(path, path=self.name, mode="r+" if writing else "r")


def entries(path: str) -> dict[str, tuple[ArraySpec, ZarrChunks]]:
    """The arrays of a store by their paths in it. Raises DataError where it is damaged or none."""
    zarr = import_package("zarr", path)
    with as_data_error(path, "a Zarr store"):
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            return {"": _entry(path, "", root)}
        return {
            name: _entry(path, name, item)
            for name, item in sorted(root.members(max_depth=None))
            if isinstance(item, zarr.Array)
        }


def _entry(path: str, name: str, array: Any) -> tuple[ArraySpec, ZarrChunks]:
    spec = spec_of_numpy(f"{path}: {name}", array.shape, array.dtype)
    return spec, ZarrChunks(name, array.shards or array.chunks)


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, ZarrChunks]:
    """A store with the arrays' metadata; chunks are made when they are written."""
    zarr = import_package("zarr", path)
    Path(path).mkdir()
    if "" not in specs:
        zarr.create_group(path)
    found = {}
    for name, spec in specs.items():
        chunks = _chunks(spec)
        dtype = require_numpy_dtype("Zarr", spec)
        zarr.create_array(path, name=name or None, shape=spec.shape, dtype=dtype, chunks=chunks)
        found[name] = ZarrChunks(name, chunks)
    return found


def _chunks(spec: ArraySpec) -> tuple[int, ...]:
    """Whole rows, so many that a chunk is neither tiny nor too large to deal out."""
    if not spec.shape:
        return ()
    row = max(1, math.prod(spec.shape[1:]) * spec.dtype.itemsize)
    return (max(1, min(spec.shape[0], CHUNK_BYTES // row)), *[max(1, n) for n in spec.shape[1:]])
