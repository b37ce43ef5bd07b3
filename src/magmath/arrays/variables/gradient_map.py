"""Gradients by variable: what functions return that differentiate with respect to variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

if TYPE_CHECKING:
    from magmath.arrays.array import Array
    from magmath.arrays.variables.variable import Variable


@final
class GradientMap(dict["Variable", "Array"]):
    """A dictionary from variables to gradients, in the order in which the variables were given.

    PyTorch and JAX return the gradients of a list of parameters as a sequence. The keys are not
    iterated over implicitly, since `zip(parameters, gradients)` would pair parameters with
    parameters.
    """

    __slots__ = ()

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "gradients with respect to variables are a dictionary by variable, whose direct "
            "iteration would give the variables; write `for v, g in gradients.items()`, "
            "gradients.values() for the gradients alone, or gradients.keys()"
        )
