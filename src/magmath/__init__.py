"""magmath: distributed math for deep learning, driven from one plain Python process.

Write NumPy or a few layers; it plans, moves and computes on one core or a cluster. The names of the
Python array API and of NumPy are here, `init` starts workers, `nn`, `optim` and `data` train
networks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from magmath.api import elementwise_names as _elementwise_names
from magmath.core.wait_policy import set_wait_policy as _set_wait_policy

_set_wait_policy()  # before any library with threads is loaded

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

# Where each public name is: modules load when a name of theirs is first used.
_NAMES = {
    "magmath.arrays.array": "Array",
    "magmath.arrays.lazy_array": "evaluate",
    "magmath.arrays.variables.variable": "Variable",
    "magmath.engine.session": "init pool shutdown",
    "magmath.transform.loops": "fori_loop scan",
    "magmath.transform.control_flow": "cond while_loop",
    "magmath.transform.custom_gradient": "custom_gradient",
    "magmath.transform.remat": "remat",
    "magmath.transform.compiled": "compile",
    "magmath.transform.grad": "grad value_and_grad",
    "magmath.transform.jacobian": "hessian jacobian jvp vjp",
    "magmath.transform.vmap": "vmap",
    "magmath.api.input_output": "load save savez savez_compressed",
    "magmath.transform.vectorize": "vectorize",
    "magmath.diagnostics.explain": "explain profile",
    "magmath.api.creation": (
        "asarray zeros ones empty full zeros_like ones_like full_like arange eye "
        "variable constant empty_like"
    ),
    "magmath.api.data_types": (
        "astype can_cast common_type finfo iinfo isdtype isscalar issubdtype min_scalar_type ndim "
        "promote_types result_type shape size"
    ),
    "magmath.api.distances": "cdist",
    "magmath.api.elementwise": "clip logical_not polygamma positive pow reciprocal round",
    "magmath.api.reductions": "all any count_nonzero max min prod sum",
    "magmath.api.statistics": "mean std var",
    "magmath.api.cumulative": "cumprod cumsum cumulative_prod cumulative_sum diff",
    "magmath.api.searching": "argmax argmin nonzero searchsorted where",
    "magmath.api.sorting": "argsort sort",
    "magmath.api.unique": "isin unique_all unique_counts unique_inverse unique_values",
    "magmath.api.indexing": "take take_along_axis",
    "magmath.api.manipulation": (
        "broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip moveaxis "
        "permute_dims ravel repeat reshape roll rollaxis squeeze stack swapaxes tile transpose "
        "unstack"
    ),
    "magmath.api.products": "matmul matrix_transpose outer tensordot vecdot",
    "magmath.api.einsum": "einsum",
    "magmath.api.activations": (
        "log_softmax logit logsumexp relu sigmoid softmax softplus stop_gradient"
    ),
    "magmath.core.dtypes": (
        "DType int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 "
        "float64 complex64 complex128"
    ),
    "magmath.core.promotion": "get_default_dtype set_default_dtype",
    "magmath.layout": "Layout Mesh",
    "magmath.memory.manager": "MemoryKind MemoryManager",
    "magmath.api.interchange": "from_dlpack",
    "magmath.arrays.protocols.namespace": "__array_namespace_info__",
    # NumPy's names; names that do not concern arrays are NumPy's own objects.
    "magmath.api.apply_along_axes": "apply_along_axis apply_over_axes",
    "magmath.api.calculus": "convolve correlate ediff1d gradient interp trapezoid",
    "magmath.api.comparison": "allclose array_equal array_equiv isclose may_share_memory "
    "shares_memory",
    "magmath.api.complex_functions": (
        "angle iscomplex iscomplexobj isreal isrealobj real_if_close sort_complex"
    ),
    "magmath.api.correlation": "average corrcoef cov",
    "magmath.api.diagonals": (
        "diag diag_indices diag_indices_from diagflat diagonal fill_diagonal identity "
        "mask_indices trace tri tril tril_indices tril_indices_from triu triu_indices "
        "triu_indices_from vander"
    ),
    "magmath.api.float_functions": (
        "deg2rad divmod exp2 fabs float_power fmax fmin frexp heaviside i0 isneginf "
        "isposinf ldexp logaddexp2 modf nan_to_num rad2deg sinc spacing unwrap"
    ),
    "magmath.api.histograms": (
        "bincount digitize histogram histogram2d histogram_bin_edges histogramdd"
    ),
    "magmath.api.index_functions": (
        "argwhere choose compress copyto extract flatnonzero indices ix_ piecewise place put "
        "put_along_axis putmask ravel_multi_index select trim_zeros unravel_index"
    ),
    "magmath.api.index_grids": "c_ meshgrid mgrid ogrid r_",
    "magmath.api.packed_bits": "packbits unpackbits",
    "magmath.api.nan_reductions": (
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum "
        "nanvar"
    ),
    "magmath.api.numpy_creation": (
        "array asanyarray asarray_chkfinite ascontiguousarray asfortranarray copy frombuffer "
        "fromfunction fromiter fromstring"
    ),
    "magmath.api.spaced_numbers": "geomspace linspace logspace",
    "magmath.api.numpy_names": (
        "absolute amax amin arccos arccosh arcsin arcsinh arctan arctan2 arctanh around "
        "bitwise_not concatenate conjugate degrees dtype fix invert left_shift mod ndarray "
        "radians right_shift rint row_stack true_divide"
    ),
    "magmath.api.order_statistics": (
        "argpartition lexsort median nanmedian nanpercentile nanquantile partition percentile ptp "
        "quantile"
    ),
    "magmath.api.padding": "pad",
    "magmath.api.polynomials": (
        "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots"
    ),
    "magmath.api.set_operations": "intersect1d setdiff1d setxor1d union1d unique",
    "magmath.api.sliding_windows": "sliding_window_view",
    "magmath.api.stacking": (
        "append array_split atleast_1d atleast_2d atleast_3d block column_stack delete dsplit "
        "dstack fliplr flipud hsplit hstack insert resize rot90 split vsplit vstack"
    ),
    "magmath.api.text_files": "fromfile genfromtxt loadtxt savetxt",
    "magmath.api.array_strings": "array2string array_repr array_str",
    "magmath.api.vector_products": "cross dot einsum_path inner kron matvec vdot vecmat",
    "magmath.api.window_functions": "bartlett blackman hamming hanning kaiser",
    "numpy": (
        "base_repr binary_repr errstate format_float_positional format_float_scientific "
        "get_printoptions geterr index_exp ndenumerate ndindex printoptions s_ set_printoptions "
        "seterr complexfloating floating generic inexact integer iterable number signedinteger "
        "unsignedinteger True_ False_"
    ),
}
_HOME: dict[str, tuple[str, str]] = {
    name: (module, name) for module, names in _NAMES.items() for name in names.split()
}
_HOME |= {
    name: ("magmath.api.elementwise", name) for name in _elementwise_names.__annotations__
}  # the functions that follow from records
_DTYPES = {
    "bool": "bool_",
    "bool_": "bool_",
    "byte": "int8",
    "short": "int16",
    "intc": "int32",
    "int_": "int64",
    "intp": "int64",
    "long": "int64",
    "longlong": "int64",
    "ubyte": "uint8",
    "ushort": "uint16",
    "uintc": "uint32",
    "uint": "uint64",
    "uintp": "uint64",
    "ulong": "uint64",
    "ulonglong": "uint64",
    "half": "float16",
    "single": "float32",
    "double": "float64",
    "csingle": "complex64",
    "cdouble": "complex128",
}
"""NumPy's other names of element types."""
_HOME |= {name: ("magmath.core.dtypes", dtype) for name, dtype in _DTYPES.items()}
_MODULES = {
    "fft": "magmath.api.fft",
    "random": "magmath.api.random",
    "linalg": "magmath.api.linalg",
    "signal": "magmath.api.signal",
    "lib": "magmath.api.lib",
    "nn": "magmath.nn",
    "optim": "magmath.optim",
    "parallel": "magmath.parallel",
    "train": "magmath.train",
    "data": "magmath.data",
    "interop": "magmath.interop",
    "errors": "magmath.errors",
}

euler_gamma = 0.5772156649015329
pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
_CONSTANTS = ("e", "euler_gamma", "inf", "nan", "newaxis", "pi")

if TYPE_CHECKING:
    # The same names for type checkers; `x as x` is how a re-export is written.
    # isort: off
    from magmath import data as data, errors as errors, interop as interop, nn as nn, optim as optim
    from magmath import parallel as parallel, train as train
    from magmath.api import fft as fft, linalg as linalg, random as random, signal as signal
    from magmath.api import lib as lib
    from magmath.api.activations import (
        log_softmax as log_softmax, logit as logit, logsumexp as logsumexp, relu as relu,
        sigmoid as sigmoid, softmax as softmax, softplus as softplus,
        stop_gradient as stop_gradient,
    )  # fmt: skip
    from magmath.arrays.array import Array as Array
    from magmath.arrays.lazy_array import evaluate as evaluate
    from magmath.arrays.variables.variable import Variable as Variable
    from magmath.api.creation import (
        arange as arange, asarray as asarray, constant as constant, empty as empty,
        empty_like as empty_like, eye as eye, full as full, full_like as full_like,
        ones as ones, ones_like as ones_like, variable as variable,
        zeros as zeros, zeros_like as zeros_like,
    )  # fmt: skip
    from magmath.api.distances import cdist as cdist
    from magmath.api.elementwise_names import *  # noqa: F403
    from magmath.api.elementwise import (
        clip as clip, logical_not as logical_not, polygamma as polygamma, positive as positive,
        pow as pow, reciprocal as reciprocal, round as round,
    )  # fmt: skip
    from magmath.api.indexing import take as take, take_along_axis as take_along_axis
    from magmath.api.interchange import from_dlpack as from_dlpack
    from magmath.api.manipulation import (
        broadcast_arrays as broadcast_arrays, broadcast_shapes as broadcast_shapes,
        broadcast_to as broadcast_to, concat as concat, expand_dims as expand_dims, flip as flip,
        moveaxis as moveaxis, permute_dims as permute_dims, ravel as ravel, repeat as repeat,
        reshape as reshape, roll as roll, rollaxis as rollaxis, squeeze as squeeze, stack as stack,
        swapaxes as swapaxes, tile as tile, transpose as transpose, unstack as unstack,
    )  # fmt: skip
    from magmath.arrays.protocols.namespace import (
        __array_namespace_info__ as __array_namespace_info__,
    )
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
    from magmath.transform.custom_gradient import custom_gradient as custom_gradient
    from magmath.transform.loops import fori_loop as fori_loop, scan as scan
    from magmath.transform.remat import remat as remat
    from magmath.engine.session import init as init, pool as pool, shutdown as shutdown
    from magmath.api.unique import (
        isin as isin, unique_all as unique_all, unique_counts as unique_counts,
        unique_inverse as unique_inverse, unique_values as unique_values,
    )  # fmt: skip
    from magmath.api.sliding_windows import sliding_window_view as sliding_window_view
    from magmath.api.sorting import argsort as argsort, sort as sort
    from magmath.api.reductions import (
        all as all, any as any, count_nonzero as count_nonzero, max as max, min as min,
        prod as prod, sum as sum,
    )  # fmt: skip
    from magmath.api.statistics import mean as mean, std as std, var as var
    from magmath.api.cumulative import (
        cumprod as cumprod, cumsum as cumsum, cumulative_prod as cumulative_prod,
        cumulative_sum as cumulative_sum, diff as diff,
    )  # fmt: skip
    from magmath.diagnostics.explain import explain as explain, profile as profile
    from magmath.api.input_output import (
        load as load, save as save, savez as savez, savez_compressed as savez_compressed,
    )  # fmt: skip
    from magmath.transform.compiled import compile as compile
    from magmath.transform.grad import grad as grad, value_and_grad as value_and_grad
    from magmath.transform.jacobian import (
        hessian as hessian, jacobian as jacobian, jvp as jvp, vjp as vjp,
    )  # fmt: skip
    from magmath.transform.vectorize import vectorize as vectorize
    from magmath.transform.vmap import vmap as vmap
    from magmath.api.data_types import (
        astype as astype, can_cast as can_cast, common_type as common_type, finfo as finfo,
        iinfo as iinfo, isdtype as isdtype, isscalar as isscalar, issubdtype as issubdtype,
        min_scalar_type as min_scalar_type, ndim as ndim, promote_types as promote_types,
        result_type as result_type, shape as shape, size as size,
    )  # fmt: skip
    from magmath.core.dtypes import (
        DType as DType, bfloat16 as bfloat16, complex128 as complex128, complex64 as complex64,
        float16 as float16, float32 as float32, float64 as float64, int16 as int16, int32 as int32,
        int64 as int64, int8 as int8, uint16 as uint16, uint32 as uint32, uint64 as uint64,
        uint8 as uint8,
    )  # fmt: skip
    from magmath.core.promotion import (
        get_default_dtype as get_default_dtype, set_default_dtype as set_default_dtype,
    )  # fmt: skip
    from magmath.layout import Layout as Layout, Mesh as Mesh
    from magmath.memory.manager import MemoryKind as MemoryKind, MemoryManager as MemoryManager

    from magmath.api.apply_along_axes import (
        apply_along_axis as apply_along_axis, apply_over_axes as apply_over_axes,
    )  # fmt: skip
    from magmath.api.calculus import (
        convolve as convolve, correlate as correlate, ediff1d as ediff1d, gradient as gradient,
        interp as interp, trapezoid as trapezoid,
    )  # fmt: skip
    from magmath.api.comparison import (
        allclose as allclose, array_equal as array_equal, array_equiv as array_equiv,
        isclose as isclose, may_share_memory as may_share_memory, shares_memory as shares_memory,
    )  # fmt: skip
    from magmath.api.complex_functions import (
        angle as angle, iscomplex as iscomplex, iscomplexobj as iscomplexobj, isreal as isreal,
        isrealobj as isrealobj, real_if_close as real_if_close, sort_complex as sort_complex,
    )  # fmt: skip
    from magmath.api.correlation import average as average, corrcoef as corrcoef, cov as cov
    from magmath.api.diagonals import (
        diag as diag, diag_indices as diag_indices, diag_indices_from as diag_indices_from,
        diagflat as diagflat, diagonal as diagonal, fill_diagonal as fill_diagonal,
        identity as identity, mask_indices as mask_indices, trace as trace, tri as tri,
        tril as tril, tril_indices as tril_indices, tril_indices_from as tril_indices_from,
        triu as triu, triu_indices as triu_indices, triu_indices_from as triu_indices_from,
        vander as vander,
    )  # fmt: skip
    from magmath.api.float_functions import (
        deg2rad as deg2rad, divmod as divmod, exp2 as exp2, fabs as fabs,
        float_power as float_power, fmax as fmax, fmin as fmin, frexp as frexp,
        heaviside as heaviside, i0 as i0, isneginf as isneginf, isposinf as isposinf,
        ldexp as ldexp, logaddexp2 as logaddexp2, modf as modf, nan_to_num as nan_to_num,
        rad2deg as rad2deg, sinc as sinc, spacing as spacing, unwrap as unwrap,
    )  # fmt: skip
    from magmath.api.histograms import (
        bincount as bincount, digitize as digitize, histogram as histogram,
        histogram2d as histogram2d, histogram_bin_edges as histogram_bin_edges,
        histogramdd as histogramdd,
    )  # fmt: skip
    from magmath.api.index_functions import (
        argwhere as argwhere, choose as choose, compress as compress, copyto as copyto,
        extract as extract, flatnonzero as flatnonzero, indices as indices, ix_ as ix_,
        piecewise as piecewise, place as place, put as put, put_along_axis as put_along_axis,
        putmask as putmask, ravel_multi_index as ravel_multi_index, select as select,
        trim_zeros as trim_zeros, unravel_index as unravel_index,
    )  # fmt: skip
    from magmath.api.index_grids import (
        c_ as c_,
        meshgrid as meshgrid,
        mgrid as mgrid,
        ogrid as ogrid,
        r_ as r_,
    )
    from magmath.api.packed_bits import packbits as packbits, unpackbits as unpackbits
    from magmath.api.nan_reductions import (
        nanargmax as nanargmax, nanargmin as nanargmin, nancumprod as nancumprod,
        nancumsum as nancumsum, nanmax as nanmax, nanmean as nanmean, nanmin as nanmin,
        nanprod as nanprod, nanstd as nanstd, nansum as nansum, nanvar as nanvar,
    )  # fmt: skip
    from magmath.api.numpy_creation import (
        array as array, asanyarray as asanyarray, asarray_chkfinite as asarray_chkfinite,
        ascontiguousarray as ascontiguousarray, asfortranarray as asfortranarray, copy as copy,
        frombuffer as frombuffer, fromfunction as fromfunction, fromiter as fromiter,
        fromstring as fromstring,
    )  # fmt: skip
    from magmath.api.spaced_numbers import (
        geomspace as geomspace, linspace as linspace, logspace as logspace,
    )  # fmt: skip
    from magmath.api.numpy_names import (
        absolute as absolute, amax as amax, amin as amin, arccos as arccos, arccosh as arccosh,
        arcsin as arcsin, arcsinh as arcsinh, arctan as arctan, arctan2 as arctan2,
        arctanh as arctanh, around as around, bitwise_not as bitwise_not,
        concatenate as concatenate, conjugate as conjugate, degrees as degrees, dtype as dtype,
        fix as fix, invert as invert, left_shift as left_shift, mod as mod, ndarray as ndarray,
        radians as radians, right_shift as right_shift, rint as rint,
        row_stack as row_stack, true_divide as true_divide,
    )  # fmt: skip
    from magmath.api.order_statistics import (
        argpartition as argpartition, lexsort as lexsort, median as median, nanmedian as nanmedian,
        nanpercentile as nanpercentile, nanquantile as nanquantile, partition as partition,
        percentile as percentile, ptp as ptp, quantile as quantile,
    )  # fmt: skip
    from magmath.api.padding import pad as pad
    from magmath.api.polynomials import (
        poly as poly, polyadd as polyadd, polyder as polyder, polydiv as polydiv,
        polyfit as polyfit, polyint as polyint, polymul as polymul, polysub as polysub,
        polyval as polyval, roots as roots,
    )  # fmt: skip
    from magmath.api.set_operations import (
        intersect1d as intersect1d, setdiff1d as setdiff1d, setxor1d as setxor1d,
        union1d as union1d, unique as unique,
    )  # fmt: skip
    from magmath.api.stacking import (
        append as append, array_split as array_split, atleast_1d as atleast_1d,
        atleast_2d as atleast_2d, atleast_3d as atleast_3d, block as block,
        column_stack as column_stack, delete as delete, dsplit as dsplit, dstack as dstack,
        fliplr as fliplr, flipud as flipud, hsplit as hsplit, hstack as hstack, insert as insert,
        resize as resize, rot90 as rot90, split as split, vsplit as vsplit, vstack as vstack,
    )  # fmt: skip
    from magmath.api.text_files import (
        fromfile as fromfile, genfromtxt as genfromtxt, loadtxt as loadtxt, savetxt as savetxt,
    )  # fmt: skip
    from magmath.api.array_strings import (
        array2string as array2string, array_repr as array_repr, array_str as array_str,
    )  # fmt: skip
    from magmath.api.vector_products import (
        cross as cross, dot as dot, einsum_path as einsum_path, inner as inner, kron as kron,
        matvec as matvec, vdot as vdot, vecmat as vecmat,
    )  # fmt: skip
    from magmath.api.window_functions import (
        bartlett as bartlett, blackman as blackman, hamming as hamming, hanning as hanning,
        kaiser as kaiser,
    )  # fmt: skip
    from numpy import (
        False_ as False_, True_ as True_,
        base_repr as base_repr, binary_repr as binary_repr, complexfloating as complexfloating,
        errstate as errstate, floating as floating,
        format_float_positional as format_float_positional,
        format_float_scientific as format_float_scientific, generic as generic,
        get_printoptions as get_printoptions, geterr as geterr, index_exp as index_exp,
        inexact as inexact, integer as integer, iterable as iterable, ndenumerate as ndenumerate,
        ndindex as ndindex, number as number,
        printoptions as printoptions, s_ as s_, set_printoptions as set_printoptions,
        seterr as seterr, signedinteger as signedinteger, unsignedinteger as unsignedinteger,
    )  # fmt: skip
    from magmath.core.dtypes import bool_ as bool_

    # isort: on
    bool = bool_
    byte = int8
    short = int16
    intc = int32
    int_ = int64
    intp = int64
    long = int64
    longlong = int64
    ubyte = uint8
    ushort = uint16
    uintc = uint32
    uint = uint64
    uintp = uint64
    ulong = uint64
    ulonglong = uint64
    half = float16
    single = float32
    double = float64
    csingle = complex64
    cdouble = complex128

else:  # hidden from type checkers: with a `__getattr__`, any name would pass

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            value = import_module(_MODULES[name])
        elif name in _HOME:
            module, attribute = _HOME[name]
            value = getattr(import_module(module), attribute)
        else:
            foreign, hint = import_module("magmath.core.foreign_names"), ""
            if not name.startswith("_"):  # Python itself asks for these, and loads nothing
                hints = import_module("magmath.arrays.protocols.missing_attributes")
                hint = hints.hint_of_function(name)
            raise foreign.missing_in_module("magmath", __dir__(), name, hint)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*_HOME, *_MODULES, "__version__", *_CONSTANTS})
