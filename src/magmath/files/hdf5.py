"""HDF5 files, by h5py.

A data set that lies in one piece is mapped like a .npy file, so workers read and write it at once
without a parallel build of HDF5. Chunked and compressed ones are read by h5py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from magmath.errors import DataError
from magmath.files.damage import reading
from magmath.files.packages import package
from magmath.files.place import (
    Elements,
    Natural,
    Raw,
    Spec,
    Text,
    is_swapped,
    numpy_spec,
    require_numpy,
)


class Dataset(msgspec.Struct, frozen=True, tag="hdf5", forbid_unknown_fields=True):
    """A data set of an HDF5 file that is not in one piece."""

    name: Text
    chunks: tuple[Natural, ...]

    @contextmanager
    def open(self, path: str, spec: Spec, writing: bool) -> Iterator[Elements]:
        """The data set; h5py reads and unpacks the chunks that are touched."""
        assert not writing, "data sets are written in one piece"
        with package("h5py", path).File(path, "r") as file:
            yield file[self.name]


def entries(path: str) -> dict[str, tuple[Spec, Raw | Dataset]]:
    """The data sets of a file by path. Raises DataError where it is damaged or no HDF5 file."""
    h5py = package("h5py", path)
    found: dict[str, tuple[Spec, Raw | Dataset]] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = _entry(path, item)

    with reading(path, "an HDF5 file"), h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


def _entry(path: str, dataset: Any) -> tuple[Spec, Raw | Dataset]:
    if dataset.shape is None:
        raise DataError(f"load: {path}: {dataset.name} is empty, it has no shape")
    if dataset.external:
        raise DataError(
            f"load: {path}: {dataset.name} lies in other files; copy it into one with h5repack"
        )
    spec = numpy_spec(f"{path}: {dataset.name}", dataset.shape, dataset.dtype)
    offset = dataset.id.get_offset()
    if offset is not None:
        return spec, Raw(offset, swapped=is_swapped(dataset.dtype))
    return spec, Dataset(dataset.name, dataset.chunks or spec.shape)


def create(path: str, specs: Mapping[str, Spec]) -> dict[str, Raw]:
    """A file with each data set in one piece, its space reserved."""
    h5py = package("h5py", path)
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        offsets = {name: _create(h5py, file, name, spec) for name, spec in specs.items()}
    return {name: Raw(offset) for name, offset in offsets.items()}


def _create(h5py: Any, file: Any, name: str, spec: Spec) -> int:
    """A new data set in one piece; the offset of its elements."""
    groups = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    groups.set_create_intermediate_group(True)
    storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    storage.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    storage.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind = h5py.h5t.py_create(require_numpy("HDF5", spec), logical=True)
    space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    try:
        created = h5py.h5d.create(file.id, name.encode(), kind, space, storage, groups)
    except (ValueError, RuntimeError) as error:
        raise DataError(
            f"save: {file.filename} cannot hold an array named {name!r}: {error}"
        ) from None
    offset: int | None = created.get_offset()
    assert offset is not None or not spec.nbytes
    return offset or 0
