"""Readers of CIFAR-10 and CIFAR-100 in their official formats (Krizhevsky 2009, "Learning multiple
layers of features from tiny images"; https://www.cs.toronto.edu/~kriz/cifar.html).

The binary format has one record for each image: one label byte (CIFAR-100: two, coarse and fine),
then 3 × 32 × 32 bytes, channels first. The Python format has pickles of a dictionary with the same
numbers; `array_unpickler` reads them without executing their content. Files are untrusted: sizes
and labels are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from magmath.core.options import DATA
from magmath.data.array_unpickler import read_pickle
from magmath.data.dataset import (
    Dataset,
    data_folders,
    folder_content,
    unit_images,
    unset_variable,
)
from magmath.errors import DataError, MissingDataError

Pixels = npt.NDArray[np.uint8]
Bytes = npt.NDArray[np.uint8]

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
CIFAR_10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


@final
@dataclass(frozen=True)
class _FileFormat:
    """One of the two formats of a data set: its files, its class names and its reader."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    read: Callable[[_Cifar, Path], tuple[Pixels, Bytes]]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that must exist; without the names of the classes, these are numbers."""
        return (*self.train, *self.test)


@final
@dataclass(frozen=True)
class _Cifar:
    """A description of CIFAR-10 or CIFAR-100.

    label_bytes  bytes before the pixels of a binary record, of which the last is the label
    label_key    the key of the labels in the Python format
    names_key    the key of the class names in the Python format
    """

    name: str
    classes: int
    label_bytes: int
    label_key: bytes
    names_key: bytes
    formats: tuple[_FileFormat, ...]


def read_binary(kind: _Cifar, path: Path) -> tuple[Pixels, Bytes]:
    """Return the pixels (N, 3, 32, 32) and labels (N,) of a file in the binary format."""
    record = kind.label_bytes + PIXELS
    size = path.stat().st_size
    if size == 0 or size % record:
        raise DataError(
            f"load: {path} must hold records of {record} bytes ({kind.label_bytes} for the label, "
            f"{PIXELS} for the pixels); it has {size} bytes; get {kind.name} again"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, record)
    return records[:, kind.label_bytes :].reshape(-1, *SHAPE), records[:, kind.label_bytes - 1]


def read_python(kind: _Cifar, path: Path) -> tuple[Pixels, Bytes]:
    """Return the pixels (N, 3, 32, 32) and labels (N,) of a file in the Python format."""
    content = _dictionary(path)
    pixels = content.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1:] != (PIXELS,):
        content_kind = pixels.shape if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(
            f"load: {path} must hold an array 'data' of 8-bit pixels, shape (N, {PIXELS}); "
            f"it holds {content_kind}; get {kind.name} again"
        )
    labels = content.get(kind.label_key)
    key = kind.label_key.decode()
    if not isinstance(labels, list) or len(labels) != len(pixels):
        count = len(labels) if isinstance(labels, list) else type(labels).__name__
        raise DataError(
            f"load: {path} must hold a list {key!r} with the labels of its {len(pixels)} images; "
            f"it holds {count}; get {kind.name} again"
        )
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise DataError(
            f"load: {path} must hold integers from 0 to 255 in its list {key!r}"
            "; get the data set again from its source"
        )
    return pixels.reshape(-1, *SHAPE), np.array(labels, np.uint8)


def _dictionary(path: Path) -> dict[Any, Any]:
    content = read_pickle(path)
    if not isinstance(content, dict):
        raise DataError(
            f"load: {path} must hold a dictionary; it holds {type(content).__name__}"
            "; get the data set again from its source"
        )
    return content


_CIFAR_10 = _Cifar(
    "cifar-10",
    10,
    1,
    b"labels",
    b"label_names",
    (
        _FileFormat(
            "cifar-10-batches-bin",
            tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            ("test_batch.bin",),
            "batches.meta.txt",
            read_binary,
        ),
        _FileFormat(
            "cifar-10-batches-py",
            tuple(f"data_batch_{i}" for i in range(1, 6)),
            ("test_batch",),
            "batches.meta",
            read_python,
        ),
    ),
)
_CIFAR_100 = _Cifar(
    "cifar-100",
    100,
    2,
    b"fine_labels",
    b"fine_label_names",
    (
        _FileFormat(
            "cifar-100-binary", ("train.bin",), ("test.bin",), "fine_label_names.txt", read_binary
        ),
        _FileFormat("cifar-100-python", ("train",), ("test",), "meta", read_python),
    ),
)


def load_cifar_10(path: Path | None) -> Dataset:
    """Load CIFAR-10 from a folder, or from $MAGMATH_DATA."""
    return _load(_CIFAR_10, path)


def load_cifar_100(path: Path | None) -> Dataset:
    """Load CIFAR-100, with its 100 fine labels, from a folder, or from $MAGMATH_DATA."""
    return _load(_CIFAR_100, path)


def _load(kind: _Cifar, path: Path | None) -> Dataset:
    roots = [path] if path else data_folders()
    for root in roots:
        for format in kind.formats:
            for folder in (root, root / format.folder):
                if all((folder / file).is_file() for file in format.files):
                    return _read_set(kind, format, folder)
    raise MissingDataError(_missing(kind, path, roots))


def _read_set(kind: _Cifar, format: _FileFormat, folder: Path) -> Dataset:
    train_pixels, train_labels = _read_files(kind, format, folder, format.train)
    test_pixels, test_labels = _read_files(kind, format, folder, format.test)
    return Dataset(
        unit_images(train_pixels),
        train_labels.astype(np.int64),
        unit_images(test_pixels),
        test_labels.astype(np.int64),
        kind.name,
        _class_names(kind, format, folder),
    )


def _read_files(
    kind: _Cifar, format: _FileFormat, folder: Path, files: Sequence[str]
) -> tuple[Pixels, Bytes]:
    parts = []
    for file in files:
        pixels, labels = format.read(kind, folder / file)
        if labels.size and labels.max() >= kind.classes:
            index = int(np.argmax(labels >= kind.classes))
            raise DataError(
                f"load: {folder / file} must hold labels 0 to {kind.classes - 1}; label {index} is "
                f"{labels[index]}; is it {kind.name}?"
            )
        parts.append((pixels, labels))
    return np.concatenate([p for p, _ in parts]), np.concatenate([n for _, n in parts])


def _class_names(kind: _Cifar, format: _FileFormat, folder: Path) -> tuple[str, ...]:
    """Return the names of the classes in the set's own file, or known names without that file."""
    file = folder / format.names
    if not file.is_file():
        return CIFAR_10_CLASSES if kind is _CIFAR_10 else tuple(map(str, range(kind.classes)))
    if format.read is read_binary:
        names = [line.strip() for line in file.read_text("utf-8", "replace").splitlines()]
        names = [name for name in names if name]
    else:
        listed = _dictionary(file).get(kind.names_key, ())
        names = [name.decode("utf-8", "replace") for name in listed if isinstance(name, bytes)]
    if len(names) != kind.classes:
        raise DataError(
            f"load: {file} must hold {kind.classes} names of classes; it holds {len(names)}"
            "; get the data set again from its source"
        )
    return tuple(names)


def _missing(kind: _Cifar, path: Path | None, roots: list[Path]) -> str:
    formats = " or ".join(
        f"{', '.join(format.files)} (of {format.folder})" for format in kind.formats
    )
    looked = [f"{root}, which {folder_content(root)}" for root in roots]
    searched = "; ".join([*looked, *([] if path else unset_variable())])
    return (
        f"load: {kind.name!r} needs a folder with {formats}; looked in {searched}; get and unpack "
        f"one of its archives from https://www.cs.toronto.edu/~kriz/cifar.html, and name the "
        f"folder by path= (--data-path), or put it into ${DATA}"
    )
