"""The problem of the benchmarks of convolutional networks: a network, its data and its weights."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from magmath.bench.peers.network_layers import Dense, Floats, Layers, draw_weights
from magmath.bench.peers.networks import NETWORKS


@final
@dataclass(frozen=True)
class NetworkProblem:
    """A network, a batch of random images (batch, 3, size, size), and `epochs` steps of SGD on that
    batch, or so many computations of its outputs.

    precision  "float32", "mixed-bfloat16" or "mixed-float16"; for outputs also "bfloat16" or
               "float16", the type of the weights
    """

    network: str
    batch: int
    size: int
    epochs: int
    purpose: Literal["train", "infer"] = "train"
    precision: str = "float32"
    learning_rate: float = 1e-3
    device: str = "cpu"

    @classmethod
    def of(cls, case: dict[str, Any]) -> NetworkProblem:
        """Return the problem of a case's parameters, ignoring other parameters."""
        return cls(**{field.name: case[field.name] for field in fields(cls) if field.name in case})

    @property
    def is_half(self) -> bool:
        """Whether the weights are of a half type."""
        return self.precision in ("bfloat16", "float16")

    @property
    def layers(self) -> Layers:
        """The layers of the network."""
        return NETWORKS[self.network]

    @property
    def classes(self) -> int:
        """The number of classes."""
        last = self.layers[-1]
        assert isinstance(last, Dense)
        return last.units

    def data(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return images (batch, 3, size, size), standard normal, and labels (batch,)."""
        random = np.random.default_rng(1)
        images = random.standard_normal((self.batch, 3, self.size, self.size), dtype=np.float32)
        return images, random.integers(0, self.classes, self.batch)

    def weights(self) -> list[Floats]:
        """Return the initial weights, in the order of `forward`."""
        return draw_weights(self.layers, (3, self.size, self.size))
