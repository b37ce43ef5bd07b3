"""Mixed precision: modules compute in a half type, from parameters that are stored in float32.

Within `precision`, a parameter that a module reads is converted to the half type, so layers need no
rules of their own. The inputs of the outermost module are converted to it, and its outputs to
float32, in which losses are computed. Gradients pass through these conversions, so those of
parameters are float32. Source: Micikevicius et al. (2018), Mixed precision training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.api.creation import asarray
from magmath.api.data_types import astype
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.core.dtypes import DType, bfloat16, compute_dtype, float16, float32
from magmath.core.precision_state import PRECISION, PrecisionState
from magmath.errors import DTypeError, OptionError

if TYPE_CHECKING:
    from magmath.arrays.variables.variable import Variable

PRECISIONS: Mapping[str, DType | None] = {
    "float32": None,
    "mixed-bfloat16": bfloat16,
    "mixed-float16": float16,
}
"""The half type in which modules compute for each precision, or None."""


def check_precision(operation: str, name: object) -> str | None:
    """Return the name of a precision, or None. Raises OptionError, which lists the names, for an
    unknown one."""
    if name is None:
        return None
    if not isinstance(name, str) or name not in PRECISIONS:
        raise OptionError(
            f"{operation}: precision {name!r} is not known; there are {', '.join(PRECISIONS)}"
        )
    return name


@contextmanager
def precision(name: str | None) -> Iterator[None]:
    """Make modules compute in this precision within the block, in the current thread.

    name   "mixed-bfloat16", "mixed-float16", or "float32" and None, the type of the parameters

    In mixed precision, modules compute in the half type: parameters are converted to it when they
    are read, inputs of the outermost module when it is called, and its outputs are float32. The
    parameters must be float32. Normalization layers, and other modules with `keeps_float32`,
    compute in float32 and return the half type; an outermost one, such as a loss that is a module,
    receives its inputs unchanged. Gradients of parameters are float32; those of "mixed-float16"
    need an `optim.LossScale`.

    Raises OptionError for an unknown name.
    """
    known = check_precision("precision", name)
    with PRECISION.replaced(PrecisionState(None if known is None else PRECISIONS[known])):
        yield


def check_parameters(
    operation: str, name: str | None, parameters: Iterable[tuple[str, Variable]]
) -> None:
    """Raise DTypeError if a parameter is not float32, from which a named precision computes."""
    if name is None:
        return
    for path, parameter in parameters:
        if parameter.dtype.is_floating and parameter.dtype is not float32:
            raise wrong_parameter(operation, name, path, parameter.dtype)


def wrong_parameter(operation: str, name: str, path: str, dtype: DType) -> DTypeError:
    """Return the error for a parameter that is not float32."""
    return DTypeError(
        f"{operation}: precision {name!r} computes from float32 parameters, {path} is {dtype}; "
        f"convert the module with module.astype(mm.float32), or use precision None, which computes "
        f"in the type of the parameters"
    )


def call_in_half_type(
    call: Callable[..., Any], keeps_float32: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a module in mixed precision, within `precision`; return its outputs.

    An outermost module that keeps float32 is called as a function is: the modules in it are then
    outermost ones.
    """
    compute, _, is_in_module = PRECISION.value
    assert compute is not None
    if keeps_float32 and not is_in_module:
        return _converted(call(*args, **kwargs), float32)
    if not is_in_module:
        args, kwargs = _converted((args, kwargs), compute)
    with PRECISION.replaced(PrecisionState(compute, None if keeps_float32 else compute, True)):
        outputs = call(*args, **kwargs)
    return outputs if is_in_module else _converted(outputs, float32)


def in_compute_type(values: Any) -> Any:
    """Return nested values with arrays of half types in float32, in which losses are computed."""
    leaves, tree = flatten(values)
    half = [isinstance(x, Array) and x.dtype is not compute_dtype(x.dtype) for x in leaves]
    if not any(half):
        return values
    wide = [astype(x, float32) if is_half else x for x, is_half in zip(leaves, half, strict=True)]
    return unflatten(tree, wide)


def _converted(values: Any, dtype: DType) -> Any:
    """Return nested values with floating point arrays in this type."""
    leaves, tree = flatten(values)
    return unflatten(tree, [_in_type(x, dtype) for x in leaves])


def _in_type(x: Any, dtype: DType) -> Any:
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        x = asarray(x)
    if isinstance(x, Array) and x.dtype.is_floating:
        return astype(x, dtype, copy=False)
    return x
