"""Zarr stores, by zarr: a folder with a file for each chunk of each array.

Workers read and write concurrently; `chunks` ensures that each chunk belongs to one worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import msgspec

from magmath.core.optional_packages import import_package
from magmath.errors import MagmathError
from magmath.files.array_specs import (
    ArraySpec,
    Elements,
    Natural,
    Text,
    name_error,
    require_numpy_dtype,
    spec_of_numpy,
)
from magmath.files.format_errors import as_data_error, entry_or_error

CHUNK_BYTES: Final = 1 << 23
"""Approximate size of a written chunk in bytes."""


@final
class ZarrChunks(msgspec.Struct, frozen=True, tag="zarr", forbid_unknown_fields=True):
    """An array of a Zarr store; "" is the store itself."""

    name: Text
    chunks: tuple[Natural, ...]

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the array; zarr reads and writes the accessed chunks."""
        zarr = import_package("zarr", path)
        yield zarr.open_array(path, path=self.name, mode="r+" if writing else "r")


def entries(path: str, name: str | None) -> dict[str, tuple[ArraySpec, ZarrChunks] | MagmathError]:
    """Return the arrays of a store by path, or that of a name, or the error of one that cannot be
    read. Raises DataError if the store is damaged or none."""
    zarr = import_package("zarr", path)
    with as_data_error(path, "a Zarr store"):
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            return {"": _entry(path, "", root)}
        return {
            member: entry_or_error(f"{path}: {member}", partial(_entry, path, member, item))
            for member, item in _members(root, name)
            if isinstance(item, zarr.Array)
        }


def _members(root: Any, name: str | None) -> list[tuple[str, Any]]:
    """Return the members of a group by path, or only that of a name."""
    if not name:
        return sorted(root.members(max_depth=None))
    return [(name, root[name])] if name in root else []


def _entry(path: str, name: str, array: Any) -> tuple[ArraySpec, ZarrChunks]:
    spec = spec_of_numpy(f"{path}: {name}", array.shape, array.dtype)
    return spec, ZarrChunks(name, array.shards or array.chunks)


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, ZarrChunks]:
    """Create a store with the metadata of the arrays; chunks are created on writing."""
    zarr = import_package("zarr", path)
    Path(path).mkdir()
    if "" not in specs:
        zarr.create_group(path)
    storages = {}
    for name, spec in specs.items():
        chunks = _chunks(spec)
        dtype = require_numpy_dtype("Zarr", spec)
        try:
            created = zarr.create_array(
                path, name=name or None, shape=spec.shape, dtype=dtype, chunks=chunks
            )
        except (ValueError, FileExistsError) as error:
            raise name_error("Zarr stores", name, error) from None
        if created.path != name:
            raise name_error("Zarr stores", name, f"it would become {created.path!r}")
        storages[name] = ZarrChunks(name, chunks)
    return storages


def _chunks(spec: ArraySpec) -> tuple[int, ...]:
    """Return a chunk shape of complete rows, of about CHUNK_BYTES."""
    if not spec.shape:
        return ()
    row = max(1, math.prod(spec.shape[1:]) * spec.dtype.itemsize)
    return (max(1, min(spec.shape[0], CHUNK_BYTES // row)), *[max(1, n) for n in spec.shape[1:]])
