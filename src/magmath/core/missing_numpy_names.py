"""Names of NumPy that magmath does not have, with the reasons, for error messages."""

from __future__ import annotations

_DATES = "dates are not numbers; keep them in NumPy"
_MATRIX = "matrices are arrays of two dimensions; write x @ y"
_MEMORY = "the memory of an array is with the workers"
_BUILD = "it describes NumPy itself; see `magmath info`"
_PYTHON = "a Python function of single elements cannot run on the workers; write it with arrays"
_TEXT = "text is not numbers; read it with NumPy, then mm.asarray(x)"

EXCLUDED = {
    "asmatrix": _MATRIX,
    "bmat": _MATRIX,
    "busday_count": _DATES,
    "busday_offset": _DATES,
    "datetime_as_string": _DATES,
    "datetime_data": _DATES,
    "frompyfunc": _PYTHON,
    "fromregex": _TEXT,
    "get_include": _BUILD,
    "getbufsize": _BUILD,
    "geterrcall": "workers report no floating point errors; test with mm.isfinite(x)",
    "info": _BUILD,
    "is_busday": _DATES,
    "isfortran": _MEMORY,
    "isnat": _DATES,
    "mintypecode": "types have names, such as mm.float32; see mm.result_type",
    "nested_iters": _PYTHON,
    "require": _MEMORY,
    "setbufsize": _BUILD,
    "seterrcall": "workers report no floating point errors; test with mm.isfinite(x)",
    "show_config": _BUILD,
    "show_runtime": _BUILD,
    "test": _BUILD,
    "typename": "types have names: x.dtype.name",
}
"""Public functions of NumPy without a counterpart."""

EXCLUDED_OBJECTS = {
    **dict.fromkeys(
        ("nditer", "flatiter"),
        "elements are not read one by one; read np.ndenumerate(x.numpy())",
    ),
    **dict.fromkeys(("matrix",), _MATRIX),
    **dict.fromkeys(("datetime64", "timedelta64", "busdaycalendar"), _DATES),
    **dict.fromkeys(
        ("object_", "bytes_", "str_", "void", "character", "flexible", "char", "strings", "rec",
         "recarray", "record"), "arrays contain numbers and truth values only",
    ),
    **dict.fromkeys(
        ("longdouble", "clongdouble"), "the widest types are mm.float64 and mm.complex128",
    ),
    **dict.fromkeys(
        ("poly1d", "polynomial"), "polynomials are arrays of coefficients: mm.polyval, mm.roots, …",
    ),
    "ma": "mark missing numbers by nan and use mm.nanmean, …, or choose with mm.where(mask, x, y)",
    "memmap": "mm.load maps files into the memory of the workers",
    "broadcast": "write mm.broadcast_arrays(x, y) or mm.broadcast_shapes(x.shape, y.shape)",
    "emath": "convert to mm.complex128 first, as in mm.sqrt(x.astype(mm.complex128))",
    "ufunc": "functions such as mm.add have reduce, accumulate, outer and at",
    **dict.fromkeys(
        ("testing", "exceptions", "typing", "ctypeslib", "f2py", "ScalarType", "typecodes",
         "sctypeDict", "little_endian", "dtypes"),
        "it does not concern arrays of magmath; import it from numpy",
    ),
}  # fmt: skip
"""Other public objects of NumPy without a counterpart."""

EXCLUDED_METHODS = {
    **dict.fromkeys(
        ("byteswap", "ctypes", "data", "flags", "getfield", "setfield", "setflags",
         "strides"), _MEMORY,
    ),
    **dict.fromkeys(("dump", "dumps"), "write pickle.dumps(x)"),
    "resize": "an array keeps its shape; write x = x.reshape(shape), or x = mm.resize(x, shape), a "
    "copy that repeats the elements",
    "view": "write x.reshape(shape)",
}  # fmt: skip
"""Attributes of NumPy's arrays without a counterpart."""


def numpy_hint(name: str) -> str:
    """Return the end of a message about a missing name: the reason, if there is one."""
    reason = EXCLUDED.get(name) or EXCLUDED_OBJECTS.get(name) or EXCLUDED_METHODS.get(name)
    return f": {reason}" if reason else ""
