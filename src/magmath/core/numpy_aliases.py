"""NumPy names and their equivalents in the array API standard, for error messages."""

from __future__ import annotations

STANDARD = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "concatenate": "concat",
    "conjugate": "conj",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "dot": "matmul",
    "fabs": "abs",
    "flatten": "reshape(x, (-1,))",
    "hstack": "concat",
    "identity": "eye",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "ndarray": "Array",
    "power": "pow",
    "ravel": "reshape(x, (-1,))",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "swapaxes": "moveaxis",
    "transpose": "permute_dims",
    "true_divide": "divide",
    "unique": "unique_values",
    "vstack": "concat",
}
LINALG = {"norm": "linalg.vector_norm and mm.linalg.matrix_norm"}
FFT = {name: f"fft.{name[:-1]}n(x, axes=(-2, -1))" for name in ("fft2", "ifft2", "rfft2", "irfft2")}


def alias_hint(name: str) -> str:
    """Return the end of a message about a missing name: its equivalent here, or an empty string."""
    here = STANDARD.get(name) or LINALG.get(name) or FFT.get(name)
    return f"; the array API standard, whose names these are, has mm.{here}" if here else ""
