"""magmath: distributed math for deep learning, driven from one plain Python process.

Write NumPy or a few layers; it plans, moves and computes on one core or a cluster. The names of the
Python array API are here, `init` starts workers, `nn`, `optim` and `data` train networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from magmath.core.cpu import choose_openblas_core

choose_openblas_core()  # before NumPy loads its library

__version__ = "0.1.0"

_CREATION = (
    "asarray zeros ones empty full zeros_like ones_like full_like arange linspace eye variable "
    "constant"
)
_FUNCTIONS = (
    "abs acos acosh add all any argmax argmin asin asinh astype atan atan2 atanh bitwise_and "
    "bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays "
    "broadcast_to ceil clip concat copysign cos cosh cumulative_sum divide equal exp expand_dims "
    "expm1 floor floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log "
    "log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or logical_xor matmul "
    "matrix_transpose max maximum mean min minimum multiply negative not_equal permute_dims "
    "positive pow prod reciprocal relu remainder reshape result_type round sigmoid sign sin sinh "
    "softmax sqrt square squeeze stack std stop_gradient subtract sum take tan tanh trunc var where"
)
_DTYPES = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 "
    "complex128"
)

# Each public name and the module that has it; modules load when a name of theirs is first used.
_HOME: dict[str, str] = {
    **dict.fromkeys(_CREATION.split(), "magmath.array.creation"),
    **dict.fromkeys(_FUNCTIONS.split(), "magmath.array.functions"),
    **dict.fromkeys(_DTYPES.split(), "magmath.core.dtypes"),
    **dict.fromkeys(("init", "shutdown", "pool"), "magmath.array.session"),
    **dict.fromkeys(("Array", "Variable", "evaluate"), "magmath.array.array"),
    **dict.fromkeys(("grad", "compile"), "magmath.array.transform"),
    **dict.fromkeys(("Layout", "Mesh"), "magmath.layout"),
    **dict.fromkeys(("MemoryManager", "MemoryKind"), "magmath.memory.manager"),
}
_MODULES = {
    "random": "magmath.array.random",
    "nn": "magmath.nn",
    "optim": "magmath.optim",
    "data": "magmath.data",
    "errors": "magmath.errors",
}
_ALIASES = {"bool": ("magmath.core.dtypes", "bool_"), "DType": ("magmath.core.dtypes", "DType")}

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _ALIASES:
        module, attribute = _ALIASES[name]
        value = getattr(import_module(module), attribute)
    else:
        raise AttributeError(f"module 'magmath' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES, *_ALIASES})


if TYPE_CHECKING:
    from magmath import data, errors, nn, optim
    from magmath.array import random
    from magmath.array.array import Array, Variable, evaluate
    from magmath.array.creation import *
    from magmath.array.functions import *
    from magmath.array.session import init, pool, shutdown
    from magmath.array.transform import compile, grad
    from magmath.core.dtypes import *
    from magmath.layout import Layout, Mesh
    from magmath.memory.manager import MemoryKind, MemoryManager
