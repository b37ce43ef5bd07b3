"""The multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magmath.arrays.array import Array
from magmath.nn.layers import Dense, Dropout, Flatten, Sequential
from magmath.nn.module import Module


def mlp(
    classes: int = 10,
    *,
    units: Sequence[int] = (128, 128),
    activation: str | Callable[[Array], Array] = "relu",
    dropout: float = 0.0,
) -> Sequential:
    """Return dense layers with `units` outputs each, and one with the scores of the classes.

    Takes arrays (N, …) of any shape; returns (N, classes).
    """
    layers: list[Module] = [Flatten()]
    for count in units:
        layers.append(Dense(count, activation=activation))
        if dropout:
            layers.append(Dropout(dropout))
    return Sequential(*layers, Dense(classes))
