"""Arrays: the handle, its namespace, and the engine that evaluates it.

The package has the name of NumPy's function `array`, so calling it calls that function.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package that is also the function `mm.array`."""

    def __call__(self, object: Any, dtype: Any = None, **options: Any) -> Any:
        """An array with the values of `object`; see `numpy_creation.array`."""
        return import_module("magmath.api.numpy_creation").array(object, dtype, **options)


sys.modules[__name__].__class__ = _Package
