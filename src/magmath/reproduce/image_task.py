"""The images and the network of SHM-Learn-Dist's experiments, or what takes their place.

The report trains AlexNet on CIFAR-10. A quick run takes a part of CIFAR-10 and a smaller network,
and without CIFAR-10 on this machine another data set replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import magmath as mm
from magmath.errors import MissingDataError
from magmath.reproduce.experiment import Options

if TYPE_CHECKING:
    from magmath.data import Dataset

ALEXNET = "alexnet_cifar"
SMALLER = {"digits": "mlp", "mnist-5k": "lenet5", "fashion-mnist": "lenet5", "cifar-10": "lenet5"}
"""The networks of reduced experiments, by data set."""
QUICK_TRAINING, QUICK_TEST = 4_000, 1_000
"""The images of CIFAR-10 that a quick run takes."""


@final
@dataclass(frozen=True)
class ImageTask:
    """A data set, and the name of a network in `mm.nn.zoo` for it.

    text       what they are, as the first words of a sentence
    is_paper   True for the report's own data set and network
    """

    data: Dataset
    network: str
    text: str
    is_paper: bool = False

    def build(self, learning_rate: float, seed: int | None = None) -> mm.nn.NeuralNetwork:
        """Return a new network with plain gradient descent."""
        height, width = self.data.train_images.shape[-2:]
        module = mm.nn.zoo.NETWORKS[self.network].for_images(
            height, width, classes=len(self.data.classes)
        )
        optimizer = mm.optim.GradientDescent(learning_rate)
        return mm.nn.NeuralNetwork(module, optimizer=optimizer, seed=seed)


def image_task(options: Options, substitutes: Sequence[str]) -> ImageTask:
    """Return CIFAR-10 with AlexNet, a part of it for a quick run, or the first of the substitutes
    that is on this machine.

    Raises MissingDataError if the folder that the user names has no CIFAR-10, and DataError if its
    files are damaged.
    """
    try:
        data = mm.data.load("cifar-10", options.data)
    except MissingDataError:
        if options.data is not None:
            raise
        return _substitute(substitutes)
    if options.quick:
        return _part(data)
    text = "The report's CIFAR-10 with AlexNet for images of 32×32"
    return ImageTask(data, ALEXNET, text, is_paper=True)


def _part(data: Dataset) -> ImageTask:
    """Return the first images of CIFAR-10, whose files are in random order."""
    part = replace(
        data,
        train_images=data.train_images[:QUICK_TRAINING],
        train_labels=data.train_labels[:QUICK_TRAINING],
        test_images=data.test_images[:QUICK_TEST],
        test_labels=data.test_labels[:QUICK_TEST],
    )
    network = SMALLER[data.name]
    text = (
        f"A reduced form for a quick run: {len(part.train_labels):,} of the "
        f"{len(data.train_labels):,} training images of CIFAR-10, and the network {network} "
        "instead of AlexNet"
    )
    return ImageTask(part, network, text)


def _substitute(names: Sequence[str]) -> ImageTask:
    """Return the first of these data sets that is on this machine; the last one always is."""
    data = _first_of(names)
    network = SMALLER[data.name]
    text = (
        "A reduced form: CIFAR-10 is not on this machine (name its folder with --data), so "
        f"{data.name} ({len(data.train_labels):,} training images) and the network {network} take "
        "the place of CIFAR-10 and AlexNet"
    )
    return ImageTask(data, network, text)


def _first_of(names: Sequence[str]) -> Dataset:
    for name in names[:-1]:
        try:
            return mm.data.load(name)
        except MissingDataError:
            continue
    return mm.data.load(names[-1])
