"""Optimizers for `minimize` and for training, and schedules of their learning rates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from magmath.core import foreign_names, foreign_network_names
from magmath.optim import schedules
from magmath.optim.adadelta import Adadelta
from magmath.optim.adagrad import Adagrad
from magmath.optim.adam import Adam, AdamW
from magmath.optim.base import Optimizer
from magmath.optim.lars import LARS
from magmath.optim.loss_scale import LossScale
from magmath.optim.rmsprop import RMSprop
from magmath.optim.sgd import GradientDescent, Momentum

__all__ = [
    "LARS",
    "OPTIMIZERS",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "GradientDescent",
    "LossScale",
    "Momentum",
    "Optimizer",
    "RMSprop",
    "schedules",
]


def __dir__() -> list[str]:
    return __all__


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": GradientDescent,
    "momentum": Momentum,
    "nesterov": partial(Momentum, nesterov=True),
    "adadelta": Adadelta,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
    "lars": LARS,
}
"""The optimizers, with their default settings, by the names that networks accept."""

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        hint = foreign_names.hint(foreign_network_names.OPTIM_NAMES, name)
        raise foreign_names.missing_in_module("magmath.optim", __all__, name, hint)
