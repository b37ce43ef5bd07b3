"""The data of `magmath train`: arrays or loaders of normalized images of the size that a network
takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

import magmath as mm
from magmath.cli.train_options import IMAGES, TrainOptions
from magmath.data import Dataset
from magmath.errors import OptionError

# Statistics of the pixels of ImageNet, which all networks for photographs use.
_PHOTOGRAPHS = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# Padding of random crops as a share of the image, and whether mirror images are of the same class.
_AUGMENTATION = {
    "cifar-10": (1 / 8, True),
    "cifar-100": (1 / 8, True),
    "fashion-mnist": (1 / 14, True),
}
_PLAIN_AUGMENTATION = (1 / 14, False)
_AUGMENTED = ("cifar-10", "cifar-100", IMAGES)
"""The data sets that are augmented by default."""


_DATA_OF_OPTIONS = {"corrupt": (IMAGES,)}
"""The data sets that take an option, for each option that not all of them take."""


@final
@dataclass(frozen=True)
class TrainData:
    """Training and test data, each a pair of arrays or a loader, and their properties.

    `normalization`: mean and standard deviation of each channel, which every image is normalized
    with.
    """

    train: Any
    test: Any
    description: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    train_count: int
    test_count: int
    normalization: tuple[list[float], list[float]]


def train_data(options: dict[str, Any]) -> TrainData:
    """Return the data of the resolved options of `magmath train`. Raises OptionError for an option
    that the data set does not take."""
    for name, takers in _DATA_OF_OPTIONS.items():
        default = getattr(TrainOptions, name)
        if options[name] != default and options["data"] not in takers:
            raise OptionError(
                f"--{name} {options[name]}: --data {options['data']} does not take this option; "
                f"--data {' and '.join(takers)} does"
            )
    if options["data"] == IMAGES:
        return _photographs(options)
    images = mm.data.load(options["data"], options["data_path"])
    return _small_images(images, options)


def image_size(
    network: str, data: str, height: int, width: int, requested_size: int | None
) -> int | None:
    """Return the size to which images are resized, or None if they stay as they are."""
    architecture = mm.nn.zoo.NETWORKS[network]
    least = architecture.min_extent
    if requested_size is not None and requested_size < least:
        raise OptionError(
            f"--image-size: {network} takes images from {least}×{least} on, was given "
            f"{requested_size}"
        )
    if requested_size is not None:
        return requested_size
    if data == IMAGES:
        return architecture.image[1]
    return None if min(height, width) >= least else least


def _small_images(images: Dataset, options: dict[str, Any]) -> TrainData:
    """Return arrays, or loaders if images are resized or augmented."""
    _, channels, height, width = images.train_images.shape
    size = image_size(options["network"], options["data"], height, width, options["image_size"])
    normalization = mm.data.pixel_statistics(images.train_images)
    steps = [mm.data.normalize(*normalization)]
    if size is not None:
        height = width = size
        steps.insert(0, mm.data.resize(size))
    augmented = _augmentation(options["data"], height) if _is_augmented(options) else []
    pairs = (
        (images.train_images, images.train_labels, [*steps, *augmented], True),
        (images.test_images, images.test_labels, steps, False),
    )
    resident = size is None and not augmented
    train, test = (
        (_normalized(x, *normalization), y)
        if resident
        else mm.data.Loader(
            (x, y), options["batch"], transforms=transforms, shuffle=shuffle, seed=options["seed"]
        )
        for x, y, transforms, shuffle in pairs
    )
    return TrainData(
        train,
        test,
        repr(images),
        (channels, height, width),
        images.classes,
        len(images.train_labels),
        len(images.test_labels),
        normalization,
    )


def _normalized(images: Any, mean: list[float], std: list[float]) -> Any:
    return mm.data.normalize(mean, std)(images, np.random.default_rng(0))


def _is_augmented(options: dict[str, Any]) -> bool:
    chosen = options["augment"]
    return options["data"] in _AUGMENTED if chosen is None else bool(chosen)


def _augmentation(data: str, height: int) -> list[Any]:
    share, mirrors = _AUGMENTATION.get(data, _PLAIN_AUGMENTATION)
    crop = mm.data.random_crop(max(1, round(share * height)))
    return [crop, mm.data.random_flip()] if mirrors else [crop]


def _photographs(options: dict[str, Any]) -> TrainData:
    """Return loaders of folders of image files."""
    if options["data_path"] is None:
        raise OptionError(
            "--data images needs --data-path, a folder with the sub-folders train and val"
        )
    size = image_size(options["network"], IMAGES, 0, 0, options["image_size"])
    assert size is not None
    path = Path(options["data_path"])
    train, test = mm.data.image_folders(path, size, corrupt=options["corrupt"])
    if not _is_augmented(options):
        train = mm.data.ImageFolder(train.path, size, corrupt=options["corrupt"])
    normal = mm.data.normalize(*_PHOTOGRAPHS)
    flips = [mm.data.random_flip()] if _is_augmented(options) else []
    batch, seed = options["batch"], options["seed"]
    return TrainData(
        mm.data.Loader(train, batch, transforms=[*flips, normal], seed=seed),
        mm.data.Loader(test, batch, transforms=[normal], shuffle=False),
        f"{train!r}\n{test!r}",
        (3, size, size),
        train.classes,
        len(train),
        len(test),
        _PHOTOGRAPHS,
    )
