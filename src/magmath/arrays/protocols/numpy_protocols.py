"""NumPy's functions called with arrays of magmath: `np.sqrt(x)`, `np.concatenate([x, y])`.

They call the function of the same name here, so results are arrays of magmath and values stay with
the workers. If an array of NumPy takes the result, as in `np.copyto(a, x)`, NumPy computes it from
copies in this process. A function without a counterpart raises TypeError: to compute it, NumPy
would need a copy of the whole array, which only `np.asarray(x)` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.missing_numpy_names import numpy_hint

_MODULES = {
    "numpy": "",
    "numpy.linalg": "linalg",
    "numpy.fft": "fft",
    "numpy.lib.stride_tricks": "",
}
_DEFAULTS = {"casting": "same_kind", "order": "K", "subok": True, "where": True, "dtype": None}
"""Options of universal functions that have no effect with these values."""
_WRITING = ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")
"""Functions that write into their first argument."""


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Return the result of a universal function of NumPy, or of its method, on our arrays."""
    if not options and method == "__call__":
        return _ufunc_counterpart(ufunc)(*inputs)
    written = inputs[:1] if method == "at" else options.get("out", ())
    if any(isinstance(one, np.ndarray) for one in written):
        return getattr(ufunc, method)(*_copied(inputs), **_copied_options(options))
    function = _ufunc_counterpart(ufunc)
    if method != "__call__":
        if not hasattr(function, method):
            raise TypeError(
                f"numpy.{ufunc.__name__}.{method}: magmath has no such method; convert the array "
                f"with np.asarray(x), which copies it to this process"
            )
        function = getattr(function, method)
    changed = {k: v for k, v in options.items() if k not in _DEFAULTS or v is not _DEFAULTS[k]}
    if all(one is None for one in changed.get("out", ())):
        changed.pop("out", None)
    return function(*inputs, **changed)


def _copied(x: Any) -> Any:
    """Return copies of arrays of magmath as arrays of NumPy, also in lists and tuples; other
    operands as they are."""
    if type(x) in (list, tuple):
        return type(x)(map(_copied, x))
    return x.numpy() if isinstance(x, LazyArray) else x


def _copied_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) for name, value in options.items()}


def call_function(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Return the result of a function of NumPy on arrays of magmath."""
    written = args[0] if args and function.__name__ in _WRITING else options.get("out")
    if isinstance(written, np.ndarray):
        return function(*_copied(tuple(args)), **_copied_options(options))
    return _function_counterpart(function)(*args, **options)


@cache
def _ufunc_counterpart(ufunc: np.ufunc) -> Callable[..., Any]:
    return _counterpart(ufunc.__name__, "", f"numpy.{ufunc.__name__}")


@cache
def _function_counterpart(function: Callable[..., Any]) -> Callable[..., Any]:
    home = function.__module__
    name = f"{home}.{function.__name__}"
    if home not in _MODULES:
        raise TypeError(_refusal(name, function.__name__))
    return _counterpart(function.__name__, _MODULES[home], name)


def _counterpart(name: str, module: str, full_name: str) -> Callable[..., Any]:
    namespace = array_namespace()
    if module:
        namespace = getattr(namespace, module)
    function = getattr(namespace, name, None)
    if not callable(function):
        raise TypeError(_refusal(full_name, name))
    counterpart: Callable[..., Any] = function
    return counterpart


def _refusal(full_name: str, name: str) -> str:
    return (
        f"{full_name}: magmath has no such function{numpy_hint(name)}; convert the array with "
        f"np.asarray(x), which copies it to this process"
    )
