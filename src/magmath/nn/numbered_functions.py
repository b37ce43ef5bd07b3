"""Functions of images for one, two or three dimensions of space, such as `conv2d` of `conv`.

Layers and numbered functions call the general function with two arguments that its signature and
its errors do not show: `name`, which its errors begin with, and `space`, the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc, signature
from typing import Any, TypeVar

from magmath.arrays.array import Array

_OF_LAYERS = ("name", "space")
_COUNTS = ("one dimension", "two dimensions", "three dimensions")
F = TypeVar("F", bound=Callable[..., Array])


def general(function: F) -> F:
    """Return the function, whose signature does not show the arguments for layers."""
    shown: Any = function
    own = signature(function)
    parameters = [x for x in own.parameters.values() if x.name not in _OF_LAYERS]
    shown.__signature__ = own.replace(parameters=parameters)
    return function


def numbered(module: str, function: F) -> tuple[F, F, F]:
    """Return a general function for 1, 2 and 3 dimensions of space, as functions of this module
    with help of their own."""
    one, two, three = [_with_space(module, function, space) for space in (1, 2, 3)]
    return one, two, three


def _with_space(module: str, function: Any, space: int) -> Any:
    name = f"{function.__name__}{space}d"
    of_layers = {"name": name, "space": space}

    def fixed(*args: Any, **options: Any) -> Any:
        return function(*args, **options, **of_layers)

    shown: Any = fixed
    shown.__module__, shown.__name__, shown.__qualname__ = module, name, name
    shown.__doc__ = f"{cleandoc(function.__doc__)}\n\nSpace has {_COUNTS[space - 1]}."
    shown.__signature__ = signature(function)
    return fixed
