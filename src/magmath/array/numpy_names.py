"""NumPy's other names for functions of the array API standard, which has one for each."""

from __future__ import annotations

from magmath.array.array import Array as ndarray
from magmath.array.elementwise import abs as absolute
from magmath.array.elementwise import acos as arccos
from magmath.array.elementwise import acosh as arccosh
from magmath.array.elementwise import asin as arcsin
from magmath.array.elementwise import asinh as arcsinh
from magmath.array.elementwise import atan as arctan
from magmath.array.elementwise import atan2 as arctan2
from magmath.array.elementwise import atanh as arctanh
from magmath.array.elementwise import bitwise_invert as bitwise_not
from magmath.array.elementwise import bitwise_invert as invert
from magmath.array.elementwise import bitwise_left_shift as left_shift
from magmath.array.elementwise import bitwise_right_shift as right_shift
from magmath.array.elementwise import conj as conjugate
from magmath.array.elementwise import divide as true_divide
from magmath.array.elementwise import pow as power
from magmath.array.elementwise import remainder as mod
from magmath.array.elementwise import round as around
from magmath.array.elementwise import round as rint
from magmath.array.elementwise import trunc as fix
from magmath.array.float_functions import deg2rad as radians
from magmath.array.float_functions import rad2deg as degrees
from magmath.array.manipulation import concat as concatenate
from magmath.array.stacking import vstack as row_stack
from magmath.array.statistics import max as amax
from magmath.array.statistics import min as amin
from magmath.core.dtypes import as_dtype as dtype

__all__ = [
    "absolute", "amax", "amin", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
    "arctanh", "around", "bitwise_not", "concatenate", "conjugate", "degrees", "dtype", "fix",
    "invert", "left_shift", "mod", "ndarray", "power", "radians", "right_shift", "rint",
    "row_stack", "true_divide",
]  # fmt: skip
