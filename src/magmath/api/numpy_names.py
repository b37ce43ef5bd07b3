"""NumPy's other names for functions of the array API standard, which has one for each."""

from __future__ import annotations

from magmath.api.elementwise import abs as absolute
from magmath.api.elementwise import acos as arccos
from magmath.api.elementwise import acosh as arccosh
from magmath.api.elementwise import asin as arcsin
from magmath.api.elementwise import asinh as arcsinh
from magmath.api.elementwise import atan as arctan
from magmath.api.elementwise import atan2 as arctan2
from magmath.api.elementwise import atanh as arctanh
from magmath.api.elementwise import bitwise_invert as bitwise_not
from magmath.api.elementwise import bitwise_invert as invert
from magmath.api.elementwise import bitwise_left_shift as left_shift
from magmath.api.elementwise import bitwise_right_shift as right_shift
from magmath.api.elementwise import conj as conjugate
from magmath.api.elementwise import divide as true_divide
from magmath.api.elementwise import remainder as mod
from magmath.api.elementwise import round as around
from magmath.api.elementwise import trunc as fix
from magmath.api.float_functions import deg2rad as radians
from magmath.api.float_functions import rad2deg as degrees
from magmath.api.float_functions import rint as rint
from magmath.api.manipulation import concat as concatenate
from magmath.api.reductions import max as amax
from magmath.api.reductions import min as amin
from magmath.api.stacking import vstack as row_stack
from magmath.arrays.array import Array as ndarray
from magmath.core.dtypes import as_dtype as dtype

__all__ = [
    "absolute", "amax", "amin", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
    "arctanh", "around", "bitwise_not", "concatenate", "conjugate", "degrees", "dtype", "fix",
    "invert", "left_shift", "mod", "ndarray", "radians", "right_shift", "rint",
    "row_stack", "true_divide",
]  # fmt: skip
