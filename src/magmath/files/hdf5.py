"""HDF5 files, by h5py.

A contiguous data set is mapped like a .npy file, so workers read and write it concurrently without
a parallel build of HDF5. h5py reads chunked and compressed data sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, final

import msgspec

from magmath.core.optional_packages import import_package
from magmath.errors import DataError, MagmathError
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
from magmath.files.format_errors import as_data_error, entry_or_error

MAX_PATHS: Final = 1 << 12
"""Paths through links by which one group may be entered when all arrays are loaded."""


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


def entries(
    path: str, name: str | None
) -> dict[str, tuple[ArraySpec, RawBytes | Hdf5Chunks] | MagmathError]:
    """Return the data sets of a file by path, or that of a name, or the error of one that cannot be
    read. Raises DataError if the file is damaged or not an HDF5 file.

    A data set has all names of its links. A name may pass through any links, from the root ("/x")
    too.
    """
    h5py = import_package("h5py", path)
    with as_data_error(path, "an HDF5 file"), h5py.File(path, "r") as file:
        every = _members(h5py, path, (file["/"],), "", Counter())
        members = every if name is None else _member(file, name)
        return {
            member: entry_or_error(
                f"{path}: {member}", partial(_entry, h5py, path, file, member, item)
            )
            for member, item in members
            if item is None or isinstance(item, h5py.Dataset)
        }


def _target(group: Any, name: str) -> Any:
    """Return what a link refers to; None if there is no link, or it refers to nothing."""
    try:
        return group[name]
    except (KeyError, RuntimeError, OSError):  # a missing file, a cycle of soft links
        return None


def _member(file: Any, name: str) -> list[tuple[str, Any]]:
    """Return the path and the target of a link, as `_members`; nothing if there is no such link."""
    if "\0" in name:  # HDF5 would read a name that ends there
        return []
    target = _target(file, name)
    return [(name, target)] if target is not None or name in file else []


def _members(
    h5py: Any, path: str, groups: tuple[Any, ...], prefix: str, entered: Counter[Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the path and the target of each link in the last of `groups`, and in its groups, except
    links to groups; once for each path that passes no group twice.

    Raises DataError for very many paths to a group, of which a few links can make 2ⁿ.
    """
    for name in groups[-1]:
        item = _target(groups[-1], name)
        if not isinstance(item, h5py.Group):
            yield prefix + name, item
        elif item not in groups:
            entered[item] += 1
            if entered[item] > MAX_PATHS:
                raise DataError(
                    f"load: {path} has more than {MAX_PATHS} paths to the group {item.name}; load "
                    f"its arrays by name"
                )
            yield from _members(h5py, path, (*groups, item), f"{prefix}{name}/", entered)


def _entry(
    h5py: Any, path: str, file: Any, name: str, dataset: Any
) -> tuple[ArraySpec, RawBytes | Hdf5Chunks]:
    if dataset is None:
        raise DataError(
            f"load: {path}: {name} is a link to nothing; restore what it refers to, or remove it"
        )
    if dataset.shape is None:
        raise DataError(f"load: {path}: {name} is empty, it has no shape; write an array into it")
    if dataset.external:
        raise DataError(
            f"load: {path}: {name} is stored in other files; copy it into one with h5repack"
        )
    spec = spec_of_numpy(f"{path}: {name}", dataset.shape, dataset.dtype)
    offset = dataset.id.get_offset()
    is_in_file = _file_number(h5py, dataset) == _file_number(h5py, file)
    if is_in_file and offset is not None and _is_stored_as_in_numpy(h5py, dataset):
        return spec, RawBytes(offset, swapped=is_byte_swapped(dataset.dtype))
    return spec, Hdf5Chunks(name, dataset.chunks or (1,) * len(spec.shape))


def _file_number(h5py: Any, item: Any) -> int:
    """Return HDF5's number of the open file of an object; external links refer to other files."""
    number: int = h5py.h5o.get_info(item.id).fileno
    return number


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
