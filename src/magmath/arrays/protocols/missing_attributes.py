"""The errors for names that arrays and `mm` lack, which say what to write in their place."""

from __future__ import annotations

from operator import attrgetter

from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.foreign_names import ARRAY_ATTRIBUTES, MM_NAMES, hint, missing_attribute
from magmath.core.missing_numpy_names import numpy_hint

_MODULES_OF_FUNCTIONS = ("linalg", "fft", "nn.functional")
"""Modules with functions that other libraries have in their main namespace, or as methods."""


def missing_array_attribute(name: str) -> AttributeError:
    """Return the error for an attribute that `Array` lacks. Private names and those of protocols,
    which are looked up often, have no remedy, except for those that the table has."""
    remedy = hint(ARRAY_ATTRIBUTES, name)
    if not remedy and name.startswith("_"):
        return AttributeError(name)
    remedy = remedy or numpy_hint(name) or _hint_of_method(name) or hint_of_function(name)
    return missing_attribute("'Array' object", name, remedy)


def _hint_of_method(name: str) -> str:
    """Return the function of `mm` in place of a method. PyTorch's methods whose names end with "_"
    change the elements."""
    namespace, function = array_namespace(), name.removesuffix("_")
    if function not in dir(namespace) or not callable(getattr(namespace, function)):
        return ""
    target = "" if function == name else "x[...] = "
    return f"; write {target}mm.{function}(x)"


def hint_of_function(name: str) -> str:
    """Return what to write in place of a function that `mm` lacks; nothing if that is unknown."""
    remedy = numpy_hint(name) or hint(MM_NAMES, name)
    if remedy:
        return remedy
    for module in _MODULES_OF_FUNCTIONS:
        if name in attrgetter(module)(array_namespace()).__all__:
            return f"; write mm.{module}.{name}"
    return ""
