"""Freezing: the choice of the parameters that training updates, by path or by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from magmath.arrays.variables.variable import Variable
from magmath.errors import OptionError
from magmath.nn.variables import Parameter

Filter = str | Callable[[str, Variable], bool] | None
"""A path, a function of path and parameter, or None for all parameters; see `Module.freeze`."""


def set_trainable(
    operation: str, parameters: Sequence[tuple[str, Variable]], selection: Filter, trainable: bool
) -> None:
    """Set the trainable flags of those of the parameters, given with their paths, that a filter
    selects.

    Raises OptionError, which names the operation, for a path that matches none of them, and for a
    variable that is always trained.
    """
    if not (selection is None or callable(selection) or isinstance(selection, str)):
        raise TypeError(
            f"{operation}: needs a path, a function of path and parameter, or None for all "
            f"parameters, was given {selection!r}"
        )
    selected = [(path, p) for path, p in parameters if _is_selected(selection, path, p)]
    if isinstance(selection, str) and not selected:
        raise OptionError(
            f"{operation}: no parameter has the path {selection!r} or one below it; the paths are "
            f"{', '.join([path for path, _ in parameters])}"
        )
    chosen: list[Parameter] = []
    for path, parameter in selected:
        if not isinstance(parameter, Parameter):
            raise OptionError(
                f"{operation}: {path} is a variable and always trained; make it an "
                f"mm.nn.Parameter(value)"
            )
        chosen.append(parameter)
    for parameter in chosen:
        parameter.trainable = trainable


def can_select(selection: Filter, path: str) -> bool:
    """Return True if a filter selects a parameter with this path, or decides by the parameter."""
    return not isinstance(selection, str) or _is_match(selection, path)


def _is_selected(selection: Filter, path: str, parameter: Variable) -> bool:
    """Return True if a filter selects the parameter with this path."""
    if callable(selection):
        return bool(selection(path, parameter))
    return selection is None or _is_match(selection, path)


def _is_match(pattern: str, path: str) -> bool:
    """Return True if a pattern is that of the path, or of a path above it."""
    names, patterns = path.split("."), pattern.split(".")
    return len(patterns) <= len(names) and all(map(fnmatchcase, names, patterns))
