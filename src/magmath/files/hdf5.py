"""HDF5 files, by h5py.

A contiguous data set is mapped like a .npy file, so workers read and write it concurrently without
a parallel build of HDF5. h5py reads chunked and compressed data sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import msgspec

from magmath.core.optional_packages import import_package
from magmath.errors import DataError
from magmath.files.array_specs import (
    ArraySpec,
    Elements,
    Natural,
    RawBytes,
    Text,
    is_byte_swapped,
    name_error,
    require_numpy_dtype,
    spec_of_numpy,
)
from magmath.files.format_errors import as_data_error


@final
class Hdf5Chunks(msgspec.Struct, frozen=True, tag="hdf5", forbid_unknown_fields=True):
    """A data set of an HDF5 file that h5py reads: a chunked or compressed one, or one of another
    type than NumPy's, which is read in any parts."""

    name: Text
    chunks: tuple[Natural, ...]

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the data set; h5py reads and decompresses the accessed chunks."""
        assert not writing, "data sets are written in one piece"
        with import_package("h5py", path).File(path, "r") as file:
            yield file[self.name]


def entries(path: str) -> dict[str, tuple[ArraySpec, RawBytes | Hdf5Chunks]]:
    """Return the data sets of a file by path. Raises DataError if it is damaged or not an HDF5
    file."""
    h5py = import_package("h5py", path)
    data_sets: dict[str, tuple[ArraySpec, RawBytes | Hdf5Chunks]] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            data_sets[name] = _entry(h5py, path, item)

    with as_data_error(path, "an HDF5 file"), h5py.File(path, "r") as file:
        file.visititems(visit)
    return data_sets


def _entry(h5py: Any, path: str, dataset: Any) -> tuple[ArraySpec, RawBytes | Hdf5Chunks]:
    if dataset.shape is None:
        raise DataError(
            f"load: {path}: {dataset.name} is empty, it has no shape; write an array into it"
        )
    if dataset.external:
        raise DataError(
            f"load: {path}: {dataset.name} is stored in other files; copy it into one with h5repack"
        )
    spec = spec_of_numpy(f"{path}: {dataset.name}", dataset.shape, dataset.dtype)
    offset = dataset.id.get_offset()
    if offset is not None and _is_stored_as_in_numpy(h5py, dataset):
        return spec, RawBytes(offset, swapped=is_byte_swapped(dataset.dtype))
    return spec, Hdf5Chunks(dataset.name, dataset.chunks or (1,) * len(spec.shape))


def _is_stored_as_in_numpy(h5py: Any, dataset: Any) -> bool:
    """Return True if the elements are stored in the type in which h5py returns them. HDF5 also has
    types such as floats of 3 bytes and integers of 12 bits, which h5py converts."""
    kind = h5py.h5t.py_create(dataset.dtype, logical=True)
    return bool(dataset.id.get_type().equal(kind))


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, RawBytes]:
    """Create a file with contiguous, allocated data sets."""
    h5py = import_package("h5py", path)
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        offsets = {name: _create(h5py, file, name, spec) for name, spec in specs.items()}
    return {name: RawBytes(offset) for name, offset in offsets.items()}


def _create(h5py: Any, file: Any, name: str, spec: ArraySpec) -> int:
    """Create a contiguous data set; return the offset of its elements."""
    groups = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    groups.set_create_intermediate_group(True)
    storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    storage.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    storage.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    kind = h5py.h5t.py_create(require_numpy_dtype("HDF5", spec), logical=True)
    space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    try:
        created = h5py.h5d.create(file.id, name.encode(), kind, space, storage, groups)
    except (ValueError, RuntimeError) as error:
        raise name_error("HDF5 files", name, error) from None
    if (stored := h5py.h5i.get_name(created).decode()) != f"/{name}":
        raise name_error("HDF5 files", name, f"it would become {stored[1:]!r}")
    offset: int | None = created.get_offset()
    assert offset is not None or not spec.nbytes
    return offset or 0
