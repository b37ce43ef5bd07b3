"""The base of the classes whose methods are distributions of random numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import isfunction, signature
from typing import TypeVar

from magmath.api.creation import DTypeLike
from magmath.api.random_draw import DistributionParameter, Draw, DrawState, Size
from magmath.core.shared_docstrings import with_paragraph

Methods = TypeVar("Methods", bound=type)

_ARGUMENTS = {
    "size": "size    the shape of the draws; by default that to which arrays among the parameters\n"
    "        broadcast, otherwise ()",
    "dtype": "dtype   the element type; by default the default floating point type, int64 for\n"
    "        whole numbers",
    "layout": "layout  a Layout or a rule such as `Layout.split(0)`; None lets the plan choose",
    "out": "out     an array of the shape `size` that takes the result and is returned",
}
_ERRORS = """

Raises OptionError for numbers out of range, ShapeError for parameters that do not broadcast to
`size`. Arrays are checked where the values are drawn, for gamma, Poisson and binomial numbers;
elsewhere the draws of elements out of range have no meaning."""


def documents_draws(methods: Methods) -> Methods:
    """Append what the arguments of draws mean, and the errors, to the docstrings of a class's
    methods: the functions of `mm.random` are these methods."""
    for method in filter(isfunction, vars(methods).values()):
        parameters = signature(method).parameters
        if "size" in parameters:
            text = "\n".join(line for name, line in _ARGUMENTS.items() if name in parameters)
            kinds = {x.annotation for x in parameters.values()}
            with_paragraph(method, text + _ERRORS * ("DistributionParameter" in kinds))
    return methods


class DistributionMethods(ABC):
    """Methods that draw random numbers from the state of a generator."""

    __slots__ = ()

    @property
    @abstractmethod
    def _state(self) -> DrawState:
        """The generator state."""

    def _draw(
        self, name: str, size: Size, dtype: DTypeLike, **parameters: DistributionParameter
    ) -> Draw:
        return Draw(self._state, name, size, dtype, **parameters)
