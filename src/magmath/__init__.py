"""magmath: distributed math for deep learning, driven from one plain Python process.

Write NumPy or a few layers; it plans, moves and computes on one core or a cluster. The names of the
Python array API are here, `init` starts workers, `nn`, `optim` and `data` train networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from magmath.core.wait_policy import set_wait_policy as _set_wait_policy

_set_wait_policy()  # before any library with threads is loaded

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

# Where each public name is: modules load when a name of theirs is first used.
_NAMES = {
    "magmath.array.array": "Array",
    "magmath.array.lazy_array": "evaluate",
    "magmath.array.variable": "Variable",
    "magmath.engine.session": "init pool shutdown",
    "magmath.transform.loops": "fori_loop scan",
    "magmath.transform.control_flow": "cond while_loop",
    "magmath.transform.remat": "remat",
    "magmath.transform.compiled": "compile",
    "magmath.transform.grad": "grad value_and_grad",
    "magmath.transform.vmap": "vmap",
    "magmath.api.input_output": "load save savez",
    "magmath.diagnostics.explain": "explain profile",
    "magmath.api.creation": (
        "asarray zeros ones empty full zeros_like ones_like full_like arange linspace eye "
        "variable constant empty_like tril triu meshgrid"
    ),
    "magmath.api.data_types": "astype can_cast finfo iinfo isdtype result_type",
    "magmath.api.elementwise": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert "
        "bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign "
        "cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag "
        "isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and "
        "logical_not logical_or logical_xor maximum minimum multiply negative nextafter "
        "not_equal positive pow real reciprocal remainder round sign signbit sin sinh sqrt "
        "square subtract tan tanh trunc"
    ),
    "magmath.api.statistics": (
        "all any count_nonzero cumulative_prod cumulative_sum diff max mean min prod std sum var"
    ),
    "magmath.api.searching": "argmax argmin nonzero searchsorted where",
    "magmath.api.sorting": "argsort sort",
    "magmath.api.sets": "isin unique_all unique_counts unique_inverse unique_values",
    "magmath.api.indexing": "take take_along_axis",
    "magmath.api.manipulation": (
        "broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip moveaxis "
        "permute_dims repeat reshape roll squeeze stack tile unstack"
    ),
    "magmath.api.products": "matmul matrix_transpose outer tensordot vecdot",
    "magmath.api.einsum": "einsum",
    "magmath.api.activations": "log_softmax relu sigmoid softmax stop_gradient",
    "magmath.core.dtypes": (
        "DType int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 "
        "float64 complex64 complex128"
    ),
    "magmath.core.promotion": "get_default_dtype set_default_dtype",
    "magmath.layout": "Layout Mesh",
    "magmath.memory.manager": "MemoryKind MemoryManager",
    "magmath.api.interchange": "from_dlpack",
    "magmath.array.namespace": "__array_namespace_info__",
}
_HOME: dict[str, tuple[str, str]] = {
    name: (module, name) for module, names in _NAMES.items() for name in names.split()
} | {"bool": ("magmath.core.dtypes", "bool_")}
_MODULES = {
    "fft": "magmath.api.fft",
    "random": "magmath.api.random",
    "linalg": "magmath.api.linalg",
    "signal": "magmath.api.signal",
    "nn": "magmath.nn",
    "optim": "magmath.optim",
    "train": "magmath.train",
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
    from magmath import data as data, errors as errors, nn as nn, optim as optim, train as train
    from magmath.api import fft as fft, linalg as linalg, random as random, signal as signal
    from magmath.api.activations import (
        log_softmax as log_softmax, relu as relu, sigmoid as sigmoid, softmax as softmax,
        stop_gradient as stop_gradient,
    )  # fmt: skip
    from magmath.array.array import Array as Array
    from magmath.array.lazy_array import evaluate as evaluate
    from magmath.array.variable import Variable as Variable
    from magmath.api.creation import (
        arange as arange, asarray as asarray, constant as constant, empty as empty,
        empty_like as empty_like, eye as eye, full as full, full_like as full_like,
        linspace as linspace, meshgrid as meshgrid, ones as ones, ones_like as ones_like,
        tril as tril, triu as triu, variable as variable, zeros as zeros, zeros_like as zeros_like,
    )  # fmt: skip
    from magmath.api.elementwise import (
        abs as abs, acos as acos, acosh as acosh, add as add, asin as asin, asinh as asinh,
        atan as atan, atan2 as atan2, atanh as atanh, bitwise_and as bitwise_and,
        bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift,
        bitwise_or as bitwise_or, bitwise_right_shift as bitwise_right_shift,
        bitwise_xor as bitwise_xor, ceil as ceil, clip as clip, conj as conj, copysign as copysign,
        cos as cos, cosh as cosh, divide as divide, equal as equal, exp as exp, expm1 as expm1,
        floor as floor, floor_divide as floor_divide, greater as greater,
        greater_equal as greater_equal, hypot as hypot, imag as imag, isfinite as isfinite,
        isinf as isinf, isnan as isnan, less as less, less_equal as less_equal, log as log,
        log10 as log10, log1p as log1p, log2 as log2, logaddexp as logaddexp,
        logical_and as logical_and, logical_not as logical_not, logical_or as logical_or,
        logical_xor as logical_xor, maximum as maximum, minimum as minimum, multiply as multiply,
        negative as negative, nextafter as nextafter, not_equal as not_equal, positive as positive,
        pow as pow, real as real, reciprocal as reciprocal, remainder as remainder, round as round,
        sign as sign, signbit as signbit, sin as sin, sinh as sinh, sqrt as sqrt, square as square,
        subtract as subtract, tan as tan, tanh as tanh, trunc as trunc,
    )  # fmt: skip
    from magmath.api.indexing import take as take, take_along_axis as take_along_axis
    from magmath.api.interchange import from_dlpack as from_dlpack
    from magmath.api.manipulation import (
        broadcast_arrays as broadcast_arrays, broadcast_shapes as broadcast_shapes,
        broadcast_to as broadcast_to, concat as concat, expand_dims as expand_dims, flip as flip,
        moveaxis as moveaxis, permute_dims as permute_dims, repeat as repeat, reshape as reshape,
        roll as roll, squeeze as squeeze, stack as stack, tile as tile, unstack as unstack,
    )  # fmt: skip
    from magmath.array.namespace import __array_namespace_info__ as __array_namespace_info__
    from magmath.api.einsum import einsum as einsum
    from magmath.api.products import (
        matmul as matmul, matrix_transpose as matrix_transpose, outer as outer,
        tensordot as tensordot, vecdot as vecdot,
    )  # fmt: skip
    from magmath.api.searching import (
        argmax as argmax, argmin as argmin, nonzero as nonzero, searchsorted as searchsorted,
        where as where,
    )  # fmt: skip
    from magmath.transform.control_flow import cond as cond, while_loop as while_loop
    from magmath.transform.loops import fori_loop as fori_loop, scan as scan
    from magmath.transform.remat import remat as remat
    from magmath.engine.session import init as init, pool as pool, shutdown as shutdown
    from magmath.api.sets import (
        isin as isin, unique_all as unique_all, unique_counts as unique_counts,
        unique_inverse as unique_inverse, unique_values as unique_values,
    )  # fmt: skip
    from magmath.api.sorting import argsort as argsort, sort as sort
    from magmath.api.statistics import (
        all as all, any as any, count_nonzero as count_nonzero, cumulative_prod as cumulative_prod,
        cumulative_sum as cumulative_sum, diff as diff, max as max, mean as mean, min as min,
        prod as prod, std as std, sum as sum, var as var,
    )  # fmt: skip
    from magmath.diagnostics.explain import explain as explain, profile as profile
    from magmath.api.input_output import load as load, save as save, savez as savez
    from magmath.transform.compiled import compile as compile
    from magmath.transform.grad import grad as grad, value_and_grad as value_and_grad
    from magmath.transform.vmap import vmap as vmap
    from magmath.api.data_types import (
        astype as astype, can_cast as can_cast, finfo as finfo, iinfo as iinfo, isdtype as isdtype,
        result_type as result_type,
    )  # fmt: skip
    from magmath.core.dtypes import (
        DType as DType, bfloat16 as bfloat16, complex128 as complex128, complex64 as complex64,
        float16 as float16, float32 as float32, float64 as float64, int16 as int16, int32 as int32,
        int64 as int64, int8 as int8, uint16 as uint16, uint32 as uint32, uint64 as uint64,
        uint8 as uint8,
    )  # fmt: skip
    from magmath.core.dtypes import bool_
    from magmath.core.promotion import (
        get_default_dtype as get_default_dtype, set_default_dtype as set_default_dtype,
    )  # fmt: skip
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
            hint = import_module("magmath.core.numpy_aliases").alias_hint(name)
            raise AttributeError(f"module 'magmath' has no attribute {name!r}{hint}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*_HOME, *_MODULES, "__version__", "e", "inf", "nan", "newaxis", "pi"})
