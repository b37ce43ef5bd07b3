"""The training problem of all systems: an MLP of ReLU layers on random images.

784-H×L-10, cross-entropy, plain SGD. The data and the initial weights (He et al. 2015, eq. 10)
are drawn by NumPy from a fixed seed, so all systems start from the same numbers and their losses
can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt

INPUTS, CLASSES = 784, 10
Floats = npt.NDArray[np.float32]


@final
@dataclass(frozen=True)
class Problem:
    """`images` images in batches of `batch`; `epochs` passes over them are one round."""

    batch: int
    width: int
    layers: int
    images: int
    epochs: int
    learning_rate: float = 0.05
    device: str = "cpu"

    @classmethod
    def of(cls, case: dict[str, Any]) -> Problem:
        """Return the problem of a case's parameters, ignoring other parameters."""
        return cls(**{field.name: case[field.name] for field in fields(cls) if field.name in case})

    @property
    def sizes(self) -> list[int]:
        """Neurons of each layer, input and output included."""
        return [INPUTS, *[self.width] * self.layers, CLASSES]

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        return self.images // self.batch

    @property
    def flops_per_epoch(self) -> float:
        """The flops of the GEMMs: three per layer, but the first layer needs no gradient of its
        input."""
        weights = [a * b for a, b in pairwise(self.sizes)]
        return 2.0 * self.images * (3 * sum(weights) - weights[0])

    def data(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Images of shape (images, 784) in [0, 1) and labels of shape (images,)."""
        random = np.random.default_rng(1)
        images = random.random((self.images, INPUTS), dtype=np.float32)
        return images, random.integers(0, CLASSES, self.images)

    def weights(self) -> list[tuple[Floats, Floats]]:
        """(matrix of shape (inputs, outputs), zero bias) of each layer."""
        random = np.random.default_rng(2)
        return [
            (
                random.standard_normal((a, b), dtype=np.float32) * np.float32(np.sqrt(2 / a)),
                np.zeros(b, np.float32),
            )
            for a, b in pairwise(self.sizes)
        ]
