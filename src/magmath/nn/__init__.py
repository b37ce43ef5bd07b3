"""Modules, layers, their functions, losses, metrics and initializers.

| in PyTorch | here |
|---|---|
| `nn.Module` | `module.py`; its parts by path are in `inventory.py`, its files in `state_file.py` |
| `nn.Parameter`, buffers | `variables.py` |
| `nn.Linear`, `nn.Conv2d`, … | `layers/`, one file for each family |
| `nn.functional` | `functional.py`, which collects those of `convolution.py`, `pooling.py`, … |
| losses | `losses/`: of classes, of bits, and element by element |
| `nn.init` | `initializers.py` |
| `torch.autocast` | `mixed_precision.py` |
| `torchvision.models` | `zoo/` |

This package also exports `NeuralNetwork`, which is defined in `train/`, above this package, and is
loaded on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magmath.core.foreign_names import hint, missing_in_module
from magmath.core.foreign_network_names import NN_NAMES
from magmath.nn import functional, initializers, layers, losses, metrics, zoo
from magmath.nn.layers import *  # noqa: F403
from magmath.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    hinge,
    huber,
    kl_divergence,
    mean_absolute_error,
    mean_squared_error,
)
from magmath.nn.mixed_precision import precision
from magmath.nn.module import Module
from magmath.nn.replaced_variables import functional_call
from magmath.nn.variables import Buffer, Deferred, Parameter, RngState, deferred

__all__ = [
    *layers.__all__,
    "Buffer",
    "Deferred",
    "Module",
    "NeuralNetwork",
    "Parameter",
    "RngState",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "deferred",
    "functional",
    "functional_call",
    "hinge",
    "huber",
    "initializers",
    "kl_divergence",
    "losses",
    "mean_absolute_error",
    "mean_squared_error",
    "metrics",
    "precision",
    "zoo",
]

if TYPE_CHECKING:
    from magmath.train.network import NeuralNetwork
else:  # hidden from type checkers, which would accept any name because of `__getattr__`

    def __getattr__(name: str) -> type[NeuralNetwork]:
        if name == "NeuralNetwork":
            from magmath.train.network import NeuralNetwork

            return NeuralNetwork
        raise missing_in_module("magmath.nn", __all__, name, hint(NN_NAMES, name))

    def __dir__() -> list[str]:
        return __all__
