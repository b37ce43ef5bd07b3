"""The error for an attribute that arrays lack, which says what to write in its place."""

from __future__ import annotations

from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.foreign_names import ARRAY_ATTRIBUTES, hint, missing_attribute
from magmath.core.missing_numpy_names import numpy_hint


def missing_array_attribute(name: str) -> AttributeError:
    """Return the error for an attribute that `Array` lacks. Private names and those of protocols,
    which are looked up often, have no remedy, except for those that the table has."""
    remedy = hint(ARRAY_ATTRIBUTES, name)
    if not remedy and name.startswith("_"):
        return AttributeError(name)
    if remedy:
        return missing_attribute("'Array' object", name, remedy)
    namespace = array_namespace()
    is_function = name in dir(namespace) and callable(getattr(namespace, name))
    function_hint = f"; write mm.{name}(x)" if is_function else ""
    return missing_attribute("'Array' object", name, function_hint or numpy_hint(name))
