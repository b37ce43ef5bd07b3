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

from magmath.files.damage import reading
from magmath.files.packages import package
from magmath.files.place import Elements, Natural, Spec, Text, numpy_spec, require_numpy

CHUNK_BYTES: Final = 1 << 23
"""The size of a chunk of what is written, roughly."""


class Chunked(msgspec.Struct, frozen=True, tag="zarr", forbid_unknown_fields=True):
    """An array of a Zarr store; "" is the store itself."""

    name: Text
    chunks: tuple[Natural, ...]

    @contextmanager
    def open(self, path: str, spec: Spec, writing: bool) -> Iterator[Elements]:
        """The array; zarr reads and writes the chunks that are touched."""
        zarr = package("zarr", path)
        yield zarr.open_array(path, path=self.name, mode="r+" if writing else "r")


def entries(path: str) -> dict[str, tuple[Spec, Chunked]]:
    """The arrays of a store by their paths in it. Raises DataError where it is damaged or none."""
    zarr = package("zarr", path)
    with reading(path, "a Zarr store"):
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            return {"": _entry(path, "", root)}
        return {
            name: _entry(path, name, item)
            for name, item in sorted(root.members(max_depth=None))
            if isinstance(item, zarr.Array)
        }


def _entry(path: str, name: str, array: Any) -> tuple[Spec, Chunked]:
    spec = numpy_spec(f"{path}: {name}", array.shape, array.dtype)
    return spec, Chunked(name, array.shards or array.chunks)


def create(path: str, specs: Mapping[str, Spec]) -> dict[str, Chunked]:
    """A store with the arrays' metadata; chunks are made when they are written."""
    zarr = package("zarr", path)
    Path(path).mkdir()
    if "" not in specs:
        zarr.create_group(path)
    found = {}
    for name, spec in specs.items():
        chunks = _chunks(spec)
        dtype = require_numpy("Zarr", spec)
        zarr.create_array(path, name=name or None, shape=spec.shape, dtype=dtype, chunks=chunks)
        found[name] = Chunked(name, chunks)
    return found


def _chunks(spec: Spec) -> tuple[int, ...]:
    """Whole rows, so many that a chunk is neither tiny nor too large to deal out."""
    if not spec.shape:
        return ()
    row = max(1, math.prod(spec.shape[1:]) * spec.dtype.itemsize)
    return (max(1, min(spec.shape[0], CHUNK_BYTES // row)), *[max(1, n) for n in spec.shape[1:]])
