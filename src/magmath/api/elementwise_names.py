"""Declares the element-wise functions that follow from records, for type checkers and lazy names.

`api/elementwise.py` makes them of the records in `ops/elementwise/`: type checkers cannot follow
that, and `import magmath` lists these names without loading the records. A test compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from magmath.arrays.array import Array
    from magmath.arrays.ufuncs.ufunc_methods import BinaryFunction, UnaryFunction

abs: UnaryFunction
acos: UnaryFunction
acosh: UnaryFunction
add: BinaryFunction
asin: UnaryFunction
asinh: UnaryFunction
atan2: BinaryFunction
atan: UnaryFunction
atanh: UnaryFunction
bitwise_and: BinaryFunction
bitwise_count: UnaryFunction
bitwise_invert: UnaryFunction
bitwise_left_shift: BinaryFunction
bitwise_or: BinaryFunction
bitwise_right_shift: BinaryFunction
bitwise_xor: BinaryFunction
cbrt: UnaryFunction
ceil: UnaryFunction
conj: UnaryFunction
copysign: BinaryFunction
cos: UnaryFunction
cosh: UnaryFunction
digamma: UnaryFunction
divide: BinaryFunction
equal: BinaryFunction
erf: UnaryFunction
erfc: UnaryFunction
exp: UnaryFunction
expm1: UnaryFunction
floor: UnaryFunction
floor_divide: BinaryFunction
fmod: BinaryFunction
gcd: BinaryFunction
greater: BinaryFunction
greater_equal: BinaryFunction
hypot: BinaryFunction
imag: Callable[..., Array]
isfinite: UnaryFunction
isinf: UnaryFunction
isnan: UnaryFunction
lcm: BinaryFunction
less: BinaryFunction
less_equal: BinaryFunction
lgamma: UnaryFunction
log10: UnaryFunction
log1p: UnaryFunction
log2: UnaryFunction
log: UnaryFunction
logaddexp: BinaryFunction
logical_and: BinaryFunction
logical_or: BinaryFunction
logical_xor: BinaryFunction
maximum: BinaryFunction
minimum: BinaryFunction
multiply: BinaryFunction
negative: UnaryFunction
nextafter: BinaryFunction
not_equal: BinaryFunction
power: BinaryFunction
real: Callable[..., Array]
remainder: BinaryFunction
sign: UnaryFunction
signbit: UnaryFunction
sin: UnaryFunction
sinh: UnaryFunction
sqrt: UnaryFunction
square: UnaryFunction
subtract: BinaryFunction
tan: UnaryFunction
tanh: UnaryFunction
trunc: UnaryFunction
