"""Facts about Python's objects, found without running code of their classes: attributes, functions,
the packages that they belong to."""

from __future__ import annotations

import sys
from functools import cached_property, lru_cache, partialmethod
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import numpy as np

from magmath.transform.observed_entries import MISSING

OWN = __name__.split(".", maxsplit=1)[0]
_OWN = frozenset({OWN})
LIBRARIES = frozenset({OWN, "builtins", "numpy", "torch", "scipy"})
"""Packages whose functions read nothing that a user binds again. The arrays and modules of magmath
record it; attributes of its other objects are compared."""


def global_generators() -> dict[str, Any]:
    """Return the generators behind the functions of `random` and `numpy.random`, by label."""
    generators: dict[str, Any] = {"np.random": np.random.mtrand._rand}
    if "random" in sys.modules:
        generators["random"] = sys.modules["random"]._inst
    return generators


def function_of(value: Any) -> Any:
    """Return the function that an attribute of a class calls."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, cached_property | partialmethod) else value


def is_generated(method: FunctionType) -> bool:
    """Return True for a method that a decorator such as `dataclass` has written, of no file."""
    code, is_decorated = method.__code__, "__wrapped__" in vars(method)
    has_other_name = method.__qualname__ != code.co_qualname
    return has_other_name and not is_decorated and code.co_filename.startswith("<")


def own_classes(kind: type) -> list[type]:
    """Return a class and its bases, as far as users have written them, in the order of look-up."""
    return [base for base in kind.__mro__ if not is_library(base.__module__)]


def attributes_or_none(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's own attributes; runs no code of its class."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if isinstance(attributes, dict) else None


def own_attributes(value: Any) -> dict[str, Any]:
    """Return the dictionary of an object's own attributes, empty if it has none."""
    attributes = attributes_or_none(value)
    return {} if attributes is None else attributes


def is_iterator(value: Any) -> bool:
    """Return True for Python's iterators, which each use moves."""
    kind = type(value)
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


def cell_content(cell: CellType) -> Any:
    """Return the content of a variable of an enclosing function; MISSING if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


@lru_cache(maxsize=4096)
def is_library(module: str | None) -> bool:
    """Return True for modules whose functions read nothing that a user binds again."""
    return _is_package(module, LIBRARIES | sys.stdlib_module_names)


@lru_cache(maxsize=1024)
def is_installed(module: str | None) -> bool:
    """Return True for a module of an installed package, whose functions are not examined."""
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def is_of_library_class(value: Any) -> bool:
    """Return True for an object of a class of magmath, NumPy or another library."""
    return _is_package(type(value).__module__, LIBRARIES)


def is_of_own_class(value: Any) -> bool:
    """Return True for an object of a class of magmath."""
    return _is_package(type(value).__module__, _OWN)


def _is_package(module: str | None, packages: frozenset[str]) -> bool:
    name = (module or "").split(".", maxsplit=1)[0]
    return name in packages and name != "__main__"
