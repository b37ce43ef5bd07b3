"""The training problem of `bench sequences`: an LSTM and a linear layer on its last output.

Cross-entropy, plain SGD, one batch. All systems start from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
import numpy.typing as npt

INPUTS, CLASSES = 16, 10
Floats = npt.NDArray[np.float32]


@final
@dataclass(frozen=True)
class SequenceProblem:
    """One batch of `batch` sequences; `epochs` steps on it are one round."""

    length: int
    units: int
    batch: int
    epochs: int
    learning_rate: float = 0.05

    @classmethod
    def of(cls, case: dict[str, Any]) -> SequenceProblem:
        """Return the problem of a case's parameters, ignoring other parameters."""
        return cls(**{field.name: case[field.name] for field in fields(cls) if field.name in case})

    def data(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return sequences (batch, length, inputs) and labels (batch,)."""
        random = np.random.default_rng(1)
        shape = (self.batch, self.length, INPUTS)
        return random.standard_normal(shape, np.float32), random.integers(0, CLASSES, self.batch)

    def weights(self) -> list[Floats]:
        """Return the weights of the LSTM (inputs, 4 · units) and (units, 4 · units), its two
        biases, and weight and bias of the linear layer."""
        random, units = np.random.default_rng(2), self.units
        shapes = ((INPUTS, 4 * units), (units, 4 * units), (4 * units,), (4 * units,))
        bound = units**-0.5
        return [
            random.uniform(-bound, bound, shape).astype(np.float32)
            for shape in (*shapes, (units, CLASSES), (CLASSES,))
        ]
