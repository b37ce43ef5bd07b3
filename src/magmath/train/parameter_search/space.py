"""The space of a search: named lists of values, and the number of epochs that follows from it.

"batch_per_worker" is the number of images that each worker takes in a step, "workers" the number of
workers. All other names are arguments of the function that builds the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, final

import numpy as np

from magmath.core.integers import require_integer
from magmath.engine import session
from magmath.errors import DataError, OptionError

Settings = dict[str, Any]
RESERVED = ("batch_per_worker", "workers")


@final
@dataclass(frozen=True)
class Space:
    """The values of every setting, in the order of the search: those of workers first."""

    values: Mapping[str, tuple[Any, ...]]

    @staticmethod
    def of(choices: Mapping[str, Sequence[Any]]) -> Space:
        """Return the space. Raises OptionError if it is empty, lacks "batch_per_worker", or has
        impossible numbers."""
        if not choices:
            raise OptionError(
                'search: the space is empty; give at least {"batch_per_worker": [32]}'
            )
        choices = {name: _plain(values) for name, values in choices.items()}
        for name, values in choices.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise OptionError(
                    f"search: {name} needs a list of at least one value, was given {values!r}"
                )
            if not all(isinstance(value, (bool, int, float, str)) for value in values):
                raise OptionError(
                    f"search: the values of {name} must be numbers or names, were given {values!r}"
                )
            if len(set(map(repr, values))) < len(values):
                raise OptionError(
                    f"search: the values of {name} must differ, were given {list(values)}"
                )
        if "batch_per_worker" not in choices:
            raise OptionError(
                'search: the space needs "batch_per_worker", the images of a step of a worker'
            )
        for size in choices["batch_per_worker"]:
            require_integer("search: batch_per_worker", size, 1)
        for count in choices.get("workers", ()):
            require_integer("search: workers", count, 0)
        order = sorted(choices, key=lambda name: name != "workers")  # stable
        return Space({name: tuple(choices[name]) for name in order})

    def settings(self) -> list[Settings]:
        """Return every combination of the values."""
        return [dict(zip(self.values, v, strict=True)) for v in product(*self.values.values())]


def step_images(settings: Settings) -> int:
    """Return the number of images of a step: the batches of all workers, without "workers" those of
    the current pool."""
    workers = settings.get("workers")
    if workers is None:
        workers = session.engine().environment.workers
    return int(settings["batch_per_worker"]) * max(1, workers)


def _plain(values: Any) -> Any:
    """Return the values of an array as a list, and NumPy's numbers in a list as those of Python."""
    if isinstance(values, np.ndarray):
        return values.tolist()
    if isinstance(values, (list, tuple)):
        return [value.item() if isinstance(value, np.generic) else value for value in values]
    return values


@final
@dataclass(frozen=True)
class Amount:
    """The training of every trial: `epochs` passes over `samples` images of the data set."""

    epochs: int
    samples: int

    @staticmethod
    def of(space: Space, images: int, available: int) -> Amount:
        """Return the fewest epochs, each of the same number of whole steps, that contain `images`
        images in total.

        Raises DataError if a step has more images than the data set, OptionError if the steps do
        not divide `images`.
        """
        images = require_integer("search: images", images, 1)
        steps = {step_images(settings) for settings in space.settings()}
        if max(steps) > available:
            raise DataError(
                f"search: a step takes {max(steps)} images (batch_per_worker × workers), the data "
                f"set has {available}; take smaller batches"
            )
        common = math.lcm(*steps)
        for epochs in range(max(1, math.ceil(images / available)), images + 1):
            samples, remainder = divmod(images, epochs)
            if samples < common:
                break
            if not remainder and samples % common == 0:
                return Amount(epochs, samples)
        passes = max(1, math.ceil(images / available))
        fitting = common * max(1, images // passes // common) * passes
        raise OptionError(
            f"search: {images} images cannot be divided into equal epochs of at most {available} "
            f"images for steps of {', '.join(map(str, sorted(steps)))} images; {fitting} images "
            f"can, or choose other batches"
        )
