"""Folders of image files, one sub-folder for each class, as ImageNet is stored.

Files are decoded by Pillow when a batch needs them, in the loader's threads.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import numpy.typing as npt

from magmath.core.integers import require_integer
from magmath.core.optional_packages import import_package
from magmath.data.dataset import Images, Labels, folder_content
from magmath.errors import DataError, MissingDataError, OptionError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
TRAINING_FOLDERS = ("train",)
TEST_FOLDERS = ("val", "test", "validation")
# Inception-style crops (Szegedy et al. 2015, section 6): the share of the area, and the ratio of
# width to height, of a random part; attempts before the centre is used.
_AREA = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10
# The centre crop for evaluation has 7/8 of the shorter side, that is 224 of 256 pixels.
_CENTRE = 7 / 8

Corrupt = Literal["error", "warn", "skip"]
Crop = Literal["center", "random"]


@final
class ImageFolder:
    """The images of a folder that has one sub-folder for each class; a source of a `Loader`.

    path      the folder; sub-folders, in alphabetical order, are the classes
    size      height and width of the images in pixels
    crop      "center": resize, and crop the centre; "random": a random part of random size
              and ratio, for training
    corrupt   the reaction to a file that is not a readable image: "error" raises DataError with its
              name, "warn" names it in a warning, "skip" ignores it. Another image replaces it in
              its batch: the next readable one of its class
    channels  3 (RGB) or 1 (grey)
    classes   the names of the classes, if other folders define them; by default the sub-folders

    Images are float32 in [0, 1], shape (N, C, size, size): integers of 8 bits are divided by 255,
    grey levels of more bits by 65535, and those of floating point are unchanged. Hidden files and
    folders, whose names begin with a dot, are ignored. `corrupt_files` is a dictionary of the
    corrupt files that were found so far, with the reasons.

    Raises MissingDataError for a folder that is missing, DataError for one without images in
    sub-folders, and for a sub-folder without images unless `classes` names it. Reading raises
    DataError for grey levels that are not from 0 to 65535, or 1 for floating point.
    """

    def __init__(
        self,
        path: str | Path,
        size: int = 224,
        *,
        crop: Crop = "center",
        corrupt: Corrupt = "error",
        channels: Literal[1, 3] = 3,
        classes: Sequence[str] | None = None,
    ) -> None:
        for name, value, known in (
            ("crop", crop, ("center", "random")),
            ("corrupt", corrupt, ("error", "warn", "skip")),
            ("channels", channels, (1, 3)),
        ):
            if value not in known:
                raise OptionError(
                    f"ImageFolder: {name} must be one of {known}, was given {value!r}"
                )
        self.path = Path(path).expanduser()
        self.size = require_integer("ImageFolder: size", size, 1)
        self.crop, self.corrupt, self.channels = crop, corrupt, channels
        self.classes, self.files, self.labels = _scan(self.path, classes)
        self.corrupt_files: dict[Path, str] = {}
        self._lock = Lock()
        self._pillow: Any = import_package("PIL.Image", str(self.path))

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return (
            f"ImageFolder({str(self.path)!r}: {len(self)} images in {len(self.classes)} classes, "
            f"read as {self.channels}×{self.size}×{self.size})"
        )

    def read(self, indices: npt.NDArray[np.int64], generator: np.random.Generator) -> Images:
        """Return the images of these files, shape (N, C, size, size)."""
        result = np.empty((len(indices), self.channels, self.size, self.size), np.float32)
        for i, index in enumerate(indices):
            result[i] = self._image_or_next(int(index), generator)
        return result

    def _image_or_next(self, index: int, generator: np.random.Generator) -> Images:
        """Return the image of a file, or of the next one of its class that is readable."""
        for number in self._of_its_class(index):
            file = self.files[number]
            try:
                return self._decode(file, generator)
            except DataError:  # it is readable, but has other numbers than images
                raise
            # Decoders of damaged files raise many kinds of exceptions.
            except Exception as error:
                self._handle_corrupt(file, error)
        raise DataError(
            f"ImageFolder: none of the files of the class {self.classes[self.labels[index]]!r} of "
            f"{self.path} is readable; check that they are images that Pillow can read"
        )

    def _of_its_class(self, index: int) -> Iterator[int]:
        """Yield the number of a file, then those of the other files of its class, the next one
        first."""
        yield index
        (alike,) = np.nonzero(self.labels == self.labels[index])
        later = int(np.searchsorted(alike, index)) + 1
        yield from map(int, (*alike[later:], *alike[: later - 1]))

    def _handle_corrupt(self, file: Path, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if self.corrupt == "error":
            raise DataError(
                f"ImageFolder: {file} is not a readable image: {reason}; repair or remove the "
                f'file, or give corrupt="skip" or "warn"'
            ) from error
        with self._lock:
            known = file in self.corrupt_files
            self.corrupt_files[file] = reason
        if self.corrupt == "warn" and not known:
            warnings.warn(
                f"ImageFolder: {file} is not a readable image and is replaced by the next one: "
                f"{reason}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _decode(self, file: Path, generator: np.random.Generator) -> Images:
        with self._pillow.open(file) as image:
            is_random = self.crop == "random"
            box = _random_box(image.size, generator) if is_random else _centre(image.size)
            return self._pixels(image, box)

    def _pixels(self, image: Image, box: tuple[float, float, float, float]) -> Images:
        """Return the pixels of a part of an image, resized."""
        mode, scale = "RGB" if self.channels == 3 else "L", 255
        if image.mode == "F" or image.mode.startswith("I"):  # which Pillow would clip to 8 bits
            mode, scale = "F", 1 if image.mode == "F" else 65535
        converted = image.convert(mode)
        if mode == "F":
            _check_range(image, np.asarray(converted), scale)
        resized = converted.resize(
            (self.size, self.size), self._pillow.Resampling.BILINEAR, box=box
        )
        pixels = np.asarray(resized, np.float32).reshape(self.size, self.size, -1)
        levels = pixels.transpose(2, 0, 1) / np.float32(scale)
        return np.broadcast_to(levels, (self.channels, self.size, self.size))


def _check_range(image: Image, levels: Images, largest: int) -> None:
    """Raise DataError if a grey level is not between 0 and `largest`."""
    low, high = levels.min(), levels.max()
    if not 0 <= low <= high <= largest:  # nor nan
        kind = "floating point" if largest == 1 else "more than 8 bits"
        raise DataError(
            f"ImageFolder: grey levels of {kind} are from 0 to {largest}, was given {low:g} to "
            f"{high:g} in {getattr(image, 'filename', image)}; scale the levels of the files, or "
            f"read them with an object of your own that has `labels` and `read`, as Loader takes"
        )


def image_folders(
    path: str | Path,
    size: int = 224,
    *,
    corrupt: Corrupt = "error",
    channels: Literal[1, 3] = 3,
) -> tuple[ImageFolder, ImageFolder]:
    """Return the training and the test images of a folder with sub-folders `train` and `val` (or
    `test`, `validation`), each with one sub-folder for each class.

    Training images are random parts, test images are cropped to the centre. Raises
    MissingDataError, with what the folder has, if one of the two is missing.
    """
    root = Path(path).expanduser()
    train, test = (
        next((root / name for name in names if (root / name).is_dir()), None)
        for names in (TRAINING_FOLDERS, TEST_FOLDERS)
    )
    if train is None or test is None:
        raise MissingDataError(
            f"image_folders: {root} must have the sub-folders 'train' and 'val' (or 'test'), each "
            f"with one folder of images for each class; it {folder_content(root)}"
        )
    training = ImageFolder(train, size, crop="random", corrupt=corrupt, channels=channels)
    return training, ImageFolder(
        test, size, corrupt=corrupt, channels=channels, classes=training.classes
    )


def _scan(path: Path, classes: Sequence[str] | None) -> tuple[tuple[str, ...], list[Path], Labels]:
    """Return the classes, the image files in order, and their labels."""
    expected = f"must have one sub-folder for each class, with images ({', '.join(SUFFIXES)})"
    if not path.is_dir():
        raise MissingDataError(f"ImageFolder: {path} {expected}; it {folder_content(path)}")
    folders = sorted(
        entry.name for entry in os.scandir(path) if entry.is_dir() and not _is_hidden(entry.name)
    )
    if unknown := set(folders) - set(folders if classes is None else classes):
        raise DataError(
            f"ImageFolder: {path} has sub-folders that are not classes of the training images: "
            f"{', '.join(sorted(unknown)[:5])}"
            "; remove them, or add them to the training images"
        )
    names = tuple(folders if classes is None else classes)
    images = [_images(path / name) for name in names]
    if not any(images):
        raise DataError(f"ImageFolder: {path} {expected}; it {folder_content(path)}")
    empty = [name for name, found in zip(names, images, strict=True) if not found]
    if empty and classes is None:
        raise DataError(
            f"ImageFolder: {path} has sub-folders without images ({', '.join(SUFFIXES)}): "
            f"{', '.join(empty[:5])}; remove them, or give classes=[…] to keep them as classes"
        )
    labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(found) for found in images])
    return names, list(chain.from_iterable(images)), labels


def _images(folder: Path) -> list[Path]:
    """Return the image files in a folder and in the folders below it, in order."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES
        and not any(map(_is_hidden, file.relative_to(folder).parts))
        and file.is_file()
    )


def _is_hidden(name: str) -> bool:
    """Return True for names that begin with a dot, such as those of files that notebooks keep."""
    return name.startswith(".")


def _centre(size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return the box (left, top, right, bottom) of the central square."""
    width, height = size
    side = min(width, height) * _CENTRE
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _random_box(
    size: tuple[int, int], generator: np.random.Generator
) -> tuple[float, float, float, float]:
    """Return a random box within an image of this width and height."""
    width, height = size
    for _ in range(_ATTEMPTS):
        area = width * height * generator.uniform(*_AREA)
        ratio = np.exp(generator.uniform(*np.log(_RATIO)))
        box_width, box_height = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < box_width <= width and 0 < box_height <= height:
            left = generator.integers(0, width - box_width + 1)
            top = generator.integers(0, height - box_height + 1)
            return float(left), float(top), float(left + box_width), float(top + box_height)
    return _centre(size)
