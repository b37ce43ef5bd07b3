"""Activation functions as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from magmath.arrays.array import Array
from magmath.core.integers import require_integer
from magmath.nn import functional
from magmath.nn.activation_functions import activation_function
from magmath.nn.module import Module
from magmath.nn.variables import Parameter


@final
class Activation(Module):
    """An activation function by name: relu, sigmoid, tanh, softmax, gelu, silu, …; see
    `nn.functional.ACTIVATIONS`."""

    def __init__(self, name: str | Callable[[Array], Array]) -> None:
        self.name = name
        self._function = activation_function(name)

    def __call__(self, x: Array) -> Array:
        """(…) → (…)."""
        return self._function(x)


def _activation_class(name: str, function: Callable[..., Array], **defaults: Any) -> type[Module]:
    """Return a module class for an activation function, with the defaults of its settings."""

    def __init__(self: Module, *values: Any, **settings: Any) -> None:
        known = list(defaults)
        if len(values) > len(known) or set(settings) - set(known[len(values) :]):
            raise TypeError(f"{name}: takes {', '.join(known) or 'no settings'}")
        settings = {**defaults, **dict(zip(known, values, strict=False)), **settings}
        for setting, value in settings.items():
            setattr(self, setting, value)

    def __call__(self: Module, x: Array) -> Array:
        return function(x, **{setting: getattr(self, setting) for setting in defaults})

    first = (function.__doc__ or "").split("\n")[0]
    body = {"__init__": __init__, "__call__": __call__, "__doc__": first, "__module__": __name__}
    return type(name, (Module,), body)


@final
class PReLU(Module):
    """x where x > 0, otherwise weight · x, with a weight that is trained.

    count    1, or the number of channels of the input (N, channels, …)
    initial  the first value of the weights

    Source: He et al. (2015).
    """

    def __init__(self, count: int = 1, initial: float = 0.25) -> None:
        self.weight = Parameter(initial, (require_integer("PReLU: count", count, 1),))

    def __call__(self, x: Array) -> Array:
        """(…) → (…)."""
        return functional.prelu(x, self.weight)


ReLU = _activation_class("ReLU", functional.relu)
ReLU6 = _activation_class("ReLU6", functional.relu6)
LeakyReLU = _activation_class("LeakyReLU", functional.leaky_relu, negative_slope=0.01)
ELU = _activation_class("ELU", functional.elu, alpha=1.0)
CELU = _activation_class("CELU", functional.celu, alpha=1.0)
SELU = _activation_class("SELU", functional.selu)
GELU = _activation_class("GELU", functional.gelu, approximate="none")
SiLU = _activation_class("SiLU", functional.silu)
Mish = _activation_class("Mish", functional.mish)
Softplus = _activation_class("Softplus", functional.softplus, beta=1.0, threshold=20.0)
Softsign = _activation_class("Softsign", functional.softsign)
Sigmoid = _activation_class("Sigmoid", functional.sigmoid)
LogSigmoid = _activation_class("LogSigmoid", functional.log_sigmoid)
Hardsigmoid = _activation_class("Hardsigmoid", functional.hard_sigmoid)
Hardswish = _activation_class("Hardswish", functional.hard_swish)
Hardtanh = _activation_class("Hardtanh", functional.hardtanh, minimum=-1.0, maximum=1.0)
Tanh = _activation_class("Tanh", functional.tanh)
Softshrink = _activation_class("Softshrink", functional.softshrink, threshold=0.5)
Hardshrink = _activation_class("Hardshrink", functional.hardshrink, threshold=0.5)
Tanhshrink = _activation_class("Tanhshrink", functional.tanhshrink)
GLU = _activation_class("GLU", functional.glu, axis=-1)
Softmin = _activation_class("Softmin", functional.softmin, axis=-1)
Softmax = _activation_class("Softmax", functional.softmax, axis=-1)
LogSoftmax = _activation_class("LogSoftmax", functional.log_softmax, axis=-1)
