"""Arrays in files: `load`, `save`, `savez`. Each worker reads and writes its own part.

The suffix determines the format: .npy, .npz, .safetensors, .csv, .h5 or .hdf5 (with h5py), .zarr
(with zarr). The controller reads and writes file objects. File contents are never executed or
unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, overload

import numpy as np

from magmath.api.creation import DTypeLike
from magmath.api.data_types import astype
from magmath.api.file_objects import load_file_object, save_file_object, write_compressed
from magmath.api.loaded_arrays import LoadedArrays
from magmath.arrays.array import Array, Operand, as_array
from magmath.arrays.inputs.conversion import LayoutLike, bind_layout, default_layout
from magmath.core.atomic_replace import atomic_replace
from magmath.core.dtypes import as_dtype, bfloat16, float32
from magmath.diagnostics.progress import transfer_progress
from magmath.engine import session
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.errors import DataError, MissingDataError, OptionError
from magmath.files import safetensors
from magmath.files.array_specs import ArraySpec, Checksum, RawBytes
from magmath.files.checksums import PartChecksums, combined_crc
from magmath.files.csv import DEFAULT_OPTIONS, CsvOptions, read_table_spec
from magmath.files.format_errors import require_readable
from magmath.files.formats import Format, StorageSpec, StoredArray, format_of
from magmath.layout import CutPieces, Layout, Split, even_cuts
from magmath.ops.leaves import input_leaf

if TYPE_CHECKING:
    import torch

ONE_WRITER: Final = 1 << 24
"""Maximum size, in bytes, of a replicated array that a single worker writes."""

_STORES: Final = ("zarr.json", ".zarray", ".zgroup")
"""Files that mark a folder as a store of arrays, which may be replaced."""

Path = str | os.PathLike[str]


def absolute_path(operation: str, path: Path) -> str:
    """Return the absolute path. Raises TypeError for other objects than paths."""
    try:
        return os.path.abspath(os.fsdecode(path))
    except TypeError:
        raise TypeError(
            f"{operation}: the first argument is a path, a string or pathlib.Path, was given "
            f"{type(path).__name__}; write it first, as in mm.{operation}('x.npy', …)"
        ) from None


def missing_file(operation: str, location: str) -> MissingDataError:
    """Return the error for a missing file."""
    return MissingDataError(
        f"{operation}: there is no file {location}; give the path of a file that exists"
    )


@overload
def load(
    path: Path | IO[bytes],
    name: str,
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    mmap_mode: str | None = None,
    allow_pickle: bool = False,
) -> Array: ...
@overload
def load(
    path: Path | IO[bytes],
    name: None = None,
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    mmap_mode: str | None = None,
    allow_pickle: bool = False,
) -> Any: ...
def load(
    path: Path | IO[bytes],
    name: str | None = None,
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    mmap_mode: str | None = None,
    allow_pickle: bool = False,
) -> Any:
    """Return the array in a file, or a dictionary of the arrays in a file with named arrays, which
    may be the context of a `with` statement and has NumPy's attribute `files`.

    name     the one array to read from a file with named arrays; others need not be readable
    dtype    the element type to convert to; by default that of the file
    layout   the layout of the array, as for `asarray`; each worker reads only its own part
    path     of a file, or a file object with NumPy's formats, .npy or .npz

    NumPy's options have no effect: with `mmap_mode` "r" or "c" too, each worker reads its own part,
    and Python objects are not read with `allow_pickle` either. Other modes, which write into the
    file, raise OptionError.

    Without a name, arrays of a file that cannot be read raise an error that names them.

    Shape and element type are those in the file. A text table is int64 if all of its numbers are
    integers, otherwise float64 (`data.read_csv` has more details, and other delimiters). Raises
    MissingDataError if the file does not exist (or a worker on another host does not see it),
    DataError for a damaged or truncated file or another format, DTypeError for elements that are
    not numbers (Python objects are never read), MissingPackageError if a package is missing,
    LayoutError for a layout that does not fit.
    """
    if mmap_mode not in (None, "r", "c"):
        raise OptionError(
            f"load: arrays are not written back into their file, was given mmap_mode={mmap_mode!r}"
            f"; load the array, change it, and save it with mm.save"
        )
    if hasattr(path, "read"):
        return load_file_object(path, name, dtype, layout)
    location = absolute_path("load", path)
    if not os.path.exists(location):
        raise missing_file("load", location)
    format = format_of("load", location)
    if os.path.isdir(location) and not format.is_folder:
        raise DataError(f"load: {location} is a folder; give the path of a file in it")
    if not format.typed:
        return read_table(location, dtype, layout)
    entries = format.entries(location, name)
    if name is not None:
        if name not in entries:
            raise _no_array(location, name, format.entries(location, None))
        entries = {name: entries[name]}
    arrays = LoadedArrays(
        {
            key: read_entry(location, entry, dtype, layout)
            for key, entry in require_readable(location, entries).items()
        }
    )
    if name is not None:
        return arrays[name]
    return arrays[""] if arrays.keys() == {""} else arrays


def _no_array(location: str, name: str, entries: Collection[str]) -> DataError:
    """Return the error for a name that no array of a file has."""
    names = ", ".join(sorted(entries)) if set(entries) != {""} else "one without a name"
    return DataError(f"load: {location} has no array {name!r}; it holds {names or 'none'}")


def save(
    file: Path | IO[bytes],
    arr: Operand | Mapping[str, Operand],
    *,
    allow_pickle: bool = False,
) -> None:
    """Write an array, or several by name, in the format of the path's suffix.

    An array without a suffix is saved as .npy, which is added to the path, as in NumPy. To file
    objects, one array is written as .npy, several as .npz. `allow_pickle` has no effect: arrays
    have no objects.

    .npy and .csv store one array; .npz, .safetensors and .h5 store named arrays; .zarr stores
    either. The workers write concurrently, each its own part. The complete file replaces an earlier
    one atomically; after a failure the earlier file is unchanged. What a killed process
    leaves next to it, `.NAME.saving-…`, is removed by the next `save` of that name.

    Raises DataError for an unknown suffix or a format that cannot store the arrays, DTypeError if
    the format lacks the element type (only .safetensors has bfloat16), MissingDataError if the
    folder does not exist or a worker on another host does not see it, OSError if the disk is full
    or the path is not writable.
    """
    if hasattr(file, "write"):
        save_file_object(file, arr)
        return
    location = absolute_path("save", file)
    if not (isinstance(arr, Mapping) or os.path.splitext(location)[1]):
        location += ".npy"
    format = format_of("save", location)
    arrays = _contents(format, arr)
    specs = {name: ArraySpec(x.shape, x.dtype) for name, x in arrays.items()}
    _check_target(location)
    with atomic_replace(location) as draft:
        storages = format.create(draft, specs)
        for name, x in arrays.items():
            _write(draft, storages[name], x)
        format.finish(draft, specs)


def _contents(format: Format, arr: Operand | Mapping[str, Operand]) -> dict[str, Array]:
    """Return arrays by name, "" for one without a name. Raises DataError if files of the format
    cannot store them."""
    if not isinstance(arr, Mapping):
        if not format.single:
            raise DataError(
                f"save: {format.suffixes[0]} files hold arrays with names; give it one, as in "
                f'mm.save(path, {{"x": x}})'
            )
        return {"": as_array("save", arr)}
    if not format.named:
        raise DataError(
            f"save: {format.suffixes[0]} files hold one array without a name; save each to a "
            f"file of its own, or all to .npz"
            "; or choose the suffix .safetensors"
        )
    if not all(isinstance(name, str) and name for name in arr):
        raise DataError(
            f"save: names are strings that are not empty, not {list(arr)}"
            f'; name each array, as in mm.save(path, {{"x": x}})'
        )
    return {name: as_array("save", value) for name, value in arr.items()}


def save_on_controller(
    path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]
) -> None:
    """Write arrays and texts to a safetensors file, from this process.

    The states of modules are saved by it: they are small, and workers on other hosts need not see
    the folder. The complete file replaces an earlier one atomically. Raises as `save`.
    """
    import torch

    specs = {name: ArraySpec(x.shape, x.dtype) for name, x in arrays.items()}
    with atomic_replace(path) as draft:
        storages = safetensors.create(draft, specs, metadata)
        for name, x in arrays.items():
            data = x.fetch().contiguous().view(-1).view(torch.uint8).numpy()
            with storages[name].open(draft, specs[name], True) as elements:
                elements[...,] = data


def load_texts(path: Path) -> dict[str, str]:
    """Return the texts of a safetensors file. Raises as `load`."""
    return safetensors.read_header(absolute_path("load", path))[1]


def load_on_controller(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the arrays of a safetensors file, and its texts, read by this process; see
    `save_on_controller`. Raises DataError if it is damaged, and DTypeError as `load`."""
    import torch

    location = absolute_path("load", path)
    entries, texts = safetensors.read_header(location)
    tensors = {}
    for name, (spec, storage) in require_readable(location, entries).items():
        with storage.open(location, spec, False) as elements:
            tensor = torch.from_numpy(np.array(elements))
        tensors[name] = tensor.view(torch.bfloat16) if spec.dtype is bfloat16 else tensor
    return tensors, texts


def _check_target(path: str) -> None:
    """Raise if the folder of `path` does not exist, or `path` is a folder of other files."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise MissingDataError(f"save: the folder {folder} of {path} does not exist; create it")
    stores = (os.path.join(path, name) for name in _STORES)
    if os.path.isdir(path) and not any(map(os.path.exists, stores)):
        raise DataError(f"save: {path} is a folder with other content; choose another path")


def savez(path: Path | IO[bytes], /, *arrays: Operand, **named: Operand) -> None:
    """Write several arrays to an .npz file, as numpy.savez; unnamed ones are arr_0, arr_1, …

    Adds the suffix if it is missing. Raises as `save`.
    """
    save(_npz_target("savez", path), _named("savez", arrays, named))


def savez_compressed(path: Path | IO[bytes], /, *arrays: Operand, **named: Operand) -> None:
    """Write several arrays to a compressed .npz file; see `savez`.

    The controller fetches and compresses one array at a time.
    """
    contents = _named("savez_compressed", arrays, named)
    target = _npz_target("savez_compressed", path)
    if not isinstance(target, str):
        write_compressed(target, contents)
        return
    _check_target(target)
    with atomic_replace(target) as draft, open(draft, "wb") as file:
        write_compressed(file, contents)


def _named(
    operation: str, arrays: Sequence[Operand], named: Mapping[str, Operand]
) -> dict[str, Operand]:
    """Return arrays by name; those without one are numbered."""
    numbered = {f"arr_{i}": array for i, array in enumerate(arrays)}
    repeated = sorted(numbered.keys() & named.keys())
    if repeated:
        raise DataError(
            f"{operation}: {', '.join(repeated)} would be in the file twice; choose other names"
        )
    return {**numbered, **named}


def _npz_target(operation: str, path: Path | IO[bytes]) -> Any:
    """Return a file object, or the absolute path with the suffix .npz."""
    if hasattr(path, "write"):
        return path
    location = absolute_path(operation, path)
    return location if location.endswith(".npz") else f"{location}.npz"


def read_table(
    path: str,
    dtype: DTypeLike,
    layout: LayoutLike,
    options: CsvOptions = DEFAULT_OPTIONS,
) -> Array:
    """Return the table in a text file; for `dtype` None the numbers determine the type."""
    element = None if dtype is None else as_dtype(dtype)
    parsed = float32 if element is bfloat16 else element  # NumPy's parser has no bfloat16
    return read_entry(path, read_table_spec(path, options, parsed), element, layout)


def read_entry(path: str, entry: StoredArray, dtype: DTypeLike, layout: LayoutLike) -> Array:
    """Return an array of a file whose header has been read; dtype, layout, errors as for `load`."""
    storage = entry[1]
    if isinstance(storage, RawBytes) and storage.checksum is not None:
        _verify(path, storage.checksum)
    array = _read(path, entry, layout)
    return array if dtype is None else astype(array, dtype, copy=False)


def _verify(path: str, checksum: Checksum) -> None:
    """Raise DataError unless a part of a file has its checksum, which all workers compute."""
    parts = PartChecksums(checksum.offset, checksum.nbytes)
    if parts.spec.shape[0] <= 1:
        crcs = parts.compute(path, 0, 1)
    else:
        crcs = _read(path, (parts.spec, parts), Layout.split(0)).numpy()
    if combined_crc(crcs, checksum.nbytes) != checksum.crc:
        raise DataError(
            f"load: {path} is damaged: bytes {checksum.offset} to "
            f"{checksum.offset + checksum.nbytes} do not have their checksum; write the file again"
        )


def _read(path: str, entry: StoredArray, layout: LayoutLike) -> Array:
    """Return an array of a file in its type, of which each worker reads its own part."""
    spec, storage = entry
    if layout is None:
        target = default_layout(spec.shape, spec.nbytes)
    else:
        target = bind_layout("load", layout, spec.shape)
    if storage.chunks is None and not (target.shared or target.is_partial):
        divided = target
    else:
        divided = _in_chunks(target, storage.chunks)
    pool = session.engine().pool
    with transfer_progress(f"load {os.path.basename(path)}", spec.nbytes) as progress:
        number = pool.read(path, storage, divided, spec.dtype, progress)
    data = RemoteArray(pool, number, spec.shape, spec.dtype, divided)
    result = Array(input_leaf(spec.shape, spec.dtype, divided, data))
    return result if divided == target else result.redistribute(target)


def _write(path: str, storage: StorageSpec, array: Array) -> None:
    """Write an array to its place in a file, each worker its own part."""
    layout = array.layout
    is_small = layout.mesh.size == 1 or array.size * array.dtype.itemsize <= ONE_WRITER
    has_one_writer = layout.is_replicated and is_small
    if not (has_one_writer or (storage.chunks is None and _is_in_rows(layout))):
        array = array.redistribute(_in_chunks(layout, storage.chunks))
    data = remote_array_of(array.evaluated_leaf())
    with transfer_progress(
        f"save {os.path.basename(path)}", array.size * array.dtype.itemsize
    ) as progress:
        data.pool.write(data.array_id, path, storage, progress)


def _is_in_rows(layout: Layout) -> bool:
    """Return True if each worker stores a range of the first dimension, a contiguous part of a
    file."""
    if layout.boxes is not None or layout.is_partial or layout.is_replicated:
        return False
    tiles = [layout.tiles(worker)[0] for worker in layout.mesh.workers]
    return not any(layout.splits[1:]) and all(tile[0].is_range for tile in tiles)


def _in_chunks(layout: Layout, chunks: tuple[int, ...] | None) -> Layout:
    """Return a layout that splits an array over all workers of a mesh at chunk boundaries."""
    shape, mesh = layout.shape, layout.mesh.flattened()
    chunks = chunks or (1,) * len(shape)
    counts = [-(-n // max(1, c)) for n, c in zip(shape, chunks, strict=True)]
    if not counts or max(counts) <= 1:
        return Layout.replicated_on(shape, mesh)
    dim = next((d for d, n in enumerate(counts) if n >= mesh.size), int(np.argmax(counts)))
    cuts = [min(cut * chunks[dim], shape[dim]) for cut in even_cuts(counts[dim], mesh.size)]
    split = Split(0, CutPieces(tuple(cuts), tuple(range(mesh.size))))
    return Layout.replicated_on(shape, mesh).replace_split(dim, split)
