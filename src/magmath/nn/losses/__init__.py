"""Losses: differences of outputs from targets, as functions of (outputs, targets).

Values and gradients are those of the corresponding PyTorch functions. `reduction` is "mean", "sum"
or "none", which returns the loss of each sample (or element). `fit` accepts a loss by its name in
`LOSSES` or as a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magmath.arrays.array import Array
from magmath.core.foreign_network_names import LOSS_NAMES
from magmath.errors import OptionError
from magmath.nn.losses.binary_losses import binary_cross_entropy, binary_cross_entropy_with_logits
from magmath.nn.losses.class_losses import cross_entropy, hinge
from magmath.nn.losses.elementwise_losses import (
    huber,
    kl_divergence,
    mean_absolute_error,
    mean_squared_error,
)

__all__ = [
    "LOSSES",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "hinge",
    "huber",
    "kl_divergence",
    "mean_absolute_error",
    "mean_squared_error",
]


def __dir__() -> list[str]:
    return __all__


LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "mean_squared_error": mean_squared_error,
    "mean_absolute_error": mean_absolute_error,
    "huber": huber,
    "hinge": hinge,
    "kl_divergence": kl_divergence,
}
"""The losses that `fit` accepts by name."""


def loss_function(loss: Any) -> Callable[[Array, Array], Array]:
    """Return the loss of this name, or the given function."""
    if callable(loss):
        function: Callable[[Array, Array], Array] = loss
        return function
    if loss not in LOSSES:
        equivalent = LOSS_NAMES.get(loss) if isinstance(loss, str) else None
        hint = f'; write "{equivalent}"' if equivalent else ""
        raise OptionError(f"loss {loss!r} is not known; there are {', '.join(LOSSES)}{hint}")
    return LOSSES[loss]
