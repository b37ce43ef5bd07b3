"""NumPy's functions called with arrays of magmath: `np.sqrt(x)`, `np.concatenate([x, y])`.

They call the function of the same name here, so results are arrays of magmath and values stay with
the workers. If an array of NumPy takes the result, as in `np.copyto(a, x)`, NumPy computes it from
copies in this process. A function without a counterpart raises TypeError: to compute it, NumPy
would need a copy of the whole array, which only `np.asarray(x)` makes. The same holds for the
universal functions of SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from sys import modules
from typing import Any, Final

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
_OF_SCIPY: Final[Mapping[str, str]] = {
    "scipy.special.cbrt": "cbrt",
    "scipy.special.erf": "erf",
    "scipy.special.erfc": "erfc",
    "scipy.special.exp2": "exp2",
    "scipy.special.expit": "sigmoid",
    "scipy.special.expm1": "expm1",
    "scipy.special.gammaln": "lgamma",
    "scipy.special.i0": "i0",
    "scipy.special.log1p": "log1p",
    "scipy.special.log_expit": "nn.functional.log_sigmoid",
    "scipy.special.logit": "logit",
    "scipy.special.psi": "digamma",
    "scipy.special.round": "round",
}
"""The universal functions of `scipy.special` that have a counterpart, and its name."""
_DEFAULTS = {"casting": "same_kind", "order": "K", "subok": True, "where": True, "dtype": None}
"""Options of universal functions that have no effect with these values."""
_WRITTEN = {
    "copyto": "dst", "fill_diagonal": "a", "place": "arr", "put": "a", "put_along_axis": "arr",
    "putmask": "a",
}  # fmt: skip
"""The names of the first arguments of functions that write into them."""


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Return the result of a universal function of NumPy, or of its method, on our arrays."""
    if not options and method == "__call__":
        return _ufunc_counterpart(ufunc)(*inputs)
    written = inputs[:1] if method == "at" else options.get("out", ())
    if any(isinstance(x, np.ndarray) for x in written):
        return getattr(ufunc, method)(*_copied(inputs), **_copied_options(options))
    function = _ufunc_counterpart(ufunc)
    if method != "__call__":
        if not hasattr(function, method):
            raise TypeError(
                f"{_full_name(ufunc)}.{method}: magmath has no such method; convert the array "
                f"with np.asarray(x), which copies it to this process"
            )
        function = getattr(function, method)
    changed = {k: v for k, v in options.items() if k not in _DEFAULTS or v is not _DEFAULTS[k]}
    if all(x is None for x in changed.get("out", ())):
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
    name = _WRITTEN.get(function.__name__)
    written = args[0] if args and name is not None else options.get(name or "out")
    if isinstance(written, np.ndarray):
        return function(*_copied(tuple(args)), **_copied_options(options))
    if function is np.broadcast_arrays:
        return _broadcast_arrays(args)
    return _function_counterpart(function)(*args, **options)


def _broadcast_arrays(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return operands stretched to their common shape: None, texts and other objects, which NumPy
    takes too, as arrays of NumPy."""
    namespace = array_namespace()
    operands: list[Any] = [x if isinstance(x, LazyArray) else np.asarray(x) for x in args]
    shape = namespace.broadcast_shapes(*[x.shape for x in operands])
    are_numbers = [isinstance(x, LazyArray) or x.dtype.kind in "biufc" for x in operands]
    return tuple(
        [
            namespace.broadcast_to(x, shape) if is_number else np.broadcast_to(x, shape)
            for x, is_number in zip(operands, are_numbers, strict=True)
        ]
    )


@cache
def _ufunc_counterpart(ufunc: np.ufunc) -> Callable[..., Any]:
    name, full_name = ufunc.__name__, _full_name(ufunc)
    if full_name.startswith("numpy."):
        return _counterpart(name, "", full_name)
    if full_name not in _OF_SCIPY:
        raise TypeError(_refusal(full_name))
    *module, function = _OF_SCIPY[full_name].split(".")
    return _counterpart(function, ".".join(module), full_name)


def _full_name(ufunc: np.ufunc) -> str:
    """Return the name of a universal function with its library, if that is NumPy or SciPy."""
    name = ufunc.__name__
    for library in ("numpy", "scipy.special"):
        if getattr(modules.get(library), name, None) is ufunc:
            return f"{library}.{name}"
    return name


@cache
def _function_counterpart(function: Callable[..., Any]) -> Callable[..., Any]:
    home = function.__module__
    name = f"{home}.{function.__name__}"
    if home not in _MODULES:
        raise TypeError(_refusal(name, numpy_hint(function.__name__)))
    return _counterpart(function.__name__, _MODULES[home], name)


def _counterpart(name: str, module: str, full_name: str) -> Callable[..., Any]:
    namespace = array_namespace()
    if module:
        namespace = attrgetter(module)(namespace)
    function = getattr(namespace, name, None)
    if not callable(function):
        raise TypeError(_refusal(full_name, numpy_hint(name)))
    counterpart: Callable[..., Any] = function
    return counterpart


def _refusal(full_name: str, hint: str = "") -> str:
    return (
        f"{full_name}: magmath has no such function{hint}; convert the array with "
        f"np.asarray(x), which copies it to this process"
    )
