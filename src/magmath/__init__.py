"""magmath: distributed math for deep learning, driven from one plain Python process.

Write NumPy or a few layers; it plans, moves and computes on one core or a cluster. The names of the
Python array API are here, `init` starts workers, `nn`, `optim` and `data` train networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    "DType int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
)

# Where each public name is: modules load when a name of theirs is first used.
_HOME: dict[str, tuple[str, str]] = {
    name: (module, name)
    for names, module in (
        (_CREATION, "magmath.array.creation"),
        (_FUNCTIONS, "magmath.array.functions"),
        (_DTYPES, "magmath.core.dtypes"),
        ("Array Variable evaluate", "magmath.array.array"),
        ("init pool shutdown", "magmath.array.session"),
        ("compile grad", "magmath.array.transform"),
        ("Layout Mesh", "magmath.layout"),
        ("MemoryKind MemoryManager", "magmath.memory.manager"),
    )
    for name in names.split()
} | {"bool": ("magmath.core.dtypes", "bool_")}
_MODULES = {
    "random": "magmath.array.random",
    "nn": "magmath.nn",
    "optim": "magmath.optim",
    "data": "magmath.data",
    "errors": "magmath.errors",
}

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None

if TYPE_CHECKING:
    # The same names for type checkers; `x as x` is how a re-export is written.
    # isort: off
    from magmath import data as data, errors as errors, nn as nn, optim as optim
    from magmath.array import random as random
    from magmath.array.array import Array as Array, Variable as Variable, evaluate as evaluate
    from magmath.array.creation import (
        asarray as asarray, zeros as zeros, ones as ones, empty as empty, full as full,
        zeros_like as zeros_like, ones_like as ones_like, full_like as full_like, arange as arange,
        linspace as linspace, eye as eye, variable as variable, constant as constant,
    )  # fmt: skip
    from magmath.array.functions import (
        abs as abs, acos as acos, acosh as acosh, add as add, all as all, any as any,
        argmax as argmax, argmin as argmin, asin as asin, asinh as asinh, astype as astype,
        atan as atan, atan2 as atan2, atanh as atanh, bitwise_and as bitwise_and,
        bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift,
        bitwise_or as bitwise_or, bitwise_right_shift as bitwise_right_shift,
        bitwise_xor as bitwise_xor, broadcast_arrays as broadcast_arrays,
        broadcast_to as broadcast_to, ceil as ceil, clip as clip, concat as concat,
        copysign as copysign, cos as cos, cosh as cosh, cumulative_sum as cumulative_sum,
        divide as divide, equal as equal, exp as exp, expand_dims as expand_dims, expm1 as expm1,
        floor as floor, floor_divide as floor_divide, greater as greater,
        greater_equal as greater_equal, hypot as hypot, isfinite as isfinite, isinf as isinf,
        isnan as isnan, less as less, less_equal as less_equal, log as log, log10 as log10,
        log1p as log1p, log2 as log2, log_softmax as log_softmax, logaddexp as logaddexp,
        logical_and as logical_and, logical_not as logical_not, logical_or as logical_or,
        logical_xor as logical_xor, matmul as matmul, matrix_transpose as matrix_transpose,
        max as max, maximum as maximum, mean as mean, min as min, minimum as minimum,
        multiply as multiply, negative as negative, not_equal as not_equal,
        permute_dims as permute_dims, positive as positive, pow as pow, prod as prod,
        reciprocal as reciprocal, relu as relu, remainder as remainder, reshape as reshape,
        result_type as result_type, round as round, sigmoid as sigmoid, sign as sign, sin as sin,
        sinh as sinh, softmax as softmax, sqrt as sqrt, square as square, squeeze as squeeze,
        stack as stack, std as std, stop_gradient as stop_gradient, subtract as subtract,
        sum as sum, take as take, tan as tan, tanh as tanh, trunc as trunc, var as var,
        where as where,
    )  # fmt: skip
    from magmath.array.session import init as init, pool as pool, shutdown as shutdown
    from magmath.array.transform import compile as compile, grad as grad
    from magmath.core.dtypes import (
        DType as DType, int8 as int8, int16 as int16, int32 as int32, int64 as int64,
        uint8 as uint8, uint16 as uint16, uint32 as uint32, uint64 as uint64, float16 as float16,
        bfloat16 as bfloat16, float32 as float32, float64 as float64, complex64 as complex64,
        complex128 as complex128,
    )  # fmt: skip
    from magmath.core.dtypes import bool_
    from magmath.layout import Layout as Layout, Mesh as Mesh
    from magmath.memory.manager import MemoryKind as MemoryKind, MemoryManager as MemoryManager

    # isort: on
    bool = bool_

else:  # hidden from type checkers: with a `__getattr__`, any name would pass

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            value = import_module(_MODULES[name])
        elif name in _HOME:
            module, attribute = _HOME[name]
            value = getattr(import_module(module), attribute)
        else:
            raise AttributeError(f"module 'magmath' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME, *_MODULES})
