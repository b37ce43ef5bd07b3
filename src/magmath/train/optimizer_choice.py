"""The choice of the optimizer of training, by name or as an object."""

from __future__ import annotations

from magmath import optim
from magmath.core.foreign_names import is_of_package
from magmath.core.foreign_network_names import OPTIM_NAMES
from magmath.errors import OptionError
from magmath.optim import OPTIMIZERS, Optimizer

_OWN_OPTIMIZER = (
    "for an optimizer of your own derive a class from mm.optim.Optimizer that defines `states` and "
    "`rule`"
)


def optimizer_of(optimizer: object) -> Optimizer:
    """Return the given optimizer, or a new one of this name with its default settings.

    Raises OptionError for an unknown name, which lists the names, and for other objects.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        raise OptionError(f"optimizer: needs an object; write mm.optim.{optimizer.__name__}(…)")
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        return OPTIMIZERS[optimizer]()
    raise _unknown_optimizer(optimizer)


def _unknown_optimizer(optimizer: object) -> OptionError:
    """Return the error for an object that is neither an optimizer nor the name of one."""
    names = ", ".join(OPTIMIZERS)
    if is_of_package(optimizer, "torch.optim"):
        name = type(optimizer).__name__
        return OptionError(f"optimizer: {name} of PyTorch is none of magmath; {_counterpart(name)}")
    hint = "" if isinstance(optimizer, str) else f"; {_OWN_OPTIMIZER}"
    return OptionError(f"optimizer {optimizer!r} is not known; there are {names}{hint}")


def _counterpart(name: str) -> str:
    """Return the remedy for an optimizer of PyTorch with this class name."""
    if hasattr(optim, name):
        return f"write mm.optim.{name}(learning_rate)"
    return f"write {OPTIM_NAMES[name]}" if name in OPTIM_NAMES else _OWN_OPTIMIZER
