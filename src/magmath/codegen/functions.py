"""Operators and functions of the compiler's language, on scalars, with NumPy's results."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from magmath.codegen.values import (
    WORD,
    Builder,
    Literal,
    Value,
    convert,
    is_float,
    is_signed,
    llvm_type,
)

TYPES = frozenset(
    [
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float32", "float64",
    ]
)  # fmt: skip

SOURCES = {
    "mod": """
def {name}(x: {T}, y: {T}) -> {T}:
    rest = fmod(x, y)
    return copysign(rest + y if rest != 0 and (rest < 0) != (y < 0) else rest, y)
""",
    "mod_whole": """
def {name}(x: {T}, y: {T}) -> {T}:
    rest = fmod(x, y)
    return rest + y if rest != 0 and (rest < 0) != (y < 0) else rest
""",
    "floor_divide": """
def {name}(x: {T}, y: {T}) -> {T}:
    rest = fmod(x, y)
    below = {T}(rest != 0 and (rest < 0) != (y < 0))
    quotient = rint((x - rest) / y - below)
    return x / y if y == 0 else quotient if quotient != 0 else copysign(quotient, x / y)
""",
    "floor_divide_whole": """
def {name}(x: {T}, y: {T}) -> {T}:
    rest = fmod(x, y)
    return quotient(x, y) - {T}(rest != 0 and (rest < 0) != (y < 0))
""",
    "power_whole": """
def {name}(x: {T}, y: {T}) -> {T}:
    result = {T}(1)
    factor = x
    left = y
    if y < 0:
        left = y & 1 if x + 1 == 0 else 0
        result = {T}(x == 1 or x + 1 == 0)
    while left > 0:
        if (left & 1) != 0:
            result = result * factor
        factor = factor * factor
        left = left >> 1
    return result
""",
    "logaddexp": """
def {name}(x: {T}, y: {T}) -> {T}:
    larger = x if x > y else y
    apart = abs(x - y)
    sum = larger + log1p(exp(-apart)) if apart == apart else x + y
    return x + 0.6931471805599453 if x == y else sum
""",
    "exp_float32": """
def {name}(x: {T}) -> {T}:
    inside = 89 if x > 89 else x if x > -104 else -104
    n = rint(inside * 1.44269504088896341)
    r = inside - n * 0.693359375 - n * -2.12194440e-4
    p = 1.9875691500e-4 * r + 1.3981999507e-3
    p = ((p * r + 8.3334519073e-3) * r + 4.1665795894e-2) * r + 1.6666665459e-1
    p = (p * r + 5.0000001201e-1) * r * r + r + 1
    whole = int32(n)
    half = whole >> 1
    power = p * ((half + 127) << 23).view(float32)
    return x if x != x else power * ((whole - half + 127) << 23).view(float32)
""",
    "exp_float64": """
def {name}(x: {T}) -> {T}:
    inside = 710 if x > 710 else x if x > -746 else -746
    n = rint(inside * 1.4426950408889634074)
    r = inside - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
    z = r * r
    p = r * ((1.2617719307481059e-4 * z + 3.0299440770744196e-2) * z + 1)
    q = ((3.0019850513866446e-6 * z + 2.5244834034968410e-3) * z + 2.2726554820815503e-1) * z + 2
    whole = int64(n)
    half = whole >> 1
    power = (1 + 2 * (p / (q - p))) * ((half + 1023) << 52).view(float64)
    return x if x != x else power * ((whole - half + 1023) << 52).view(float64)
""",
    "tanh_float32": """
def {name}(x: {T}) -> {T}:
    size = abs(x)
    z = x * x
    p = (-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2
    p = (p * z + 1.33314422036e-1) * z - 3.33332819422e-1
    return copysign(p * z * size + size if size < 0.625 else 1 - 2 / (exp(2 * size) + 1), x)
""",
    "tanh_float64": """
def {name}(x: {T}) -> {T}:
    size = abs(x)
    z = x * x
    p = (-9.6439917942505224e-1 * z - 9.9287723100191859e1) * z - 1.6146876844170845e3
    q = ((z + 1.1281167849163293e2) * z + 2.2354883906010045e3) * z + 4.8440630532512549e3
    small = size + size * z * (p / q)
    return copysign(small if size < 0.625 else 1 - 2 / (exp(2 * size) + 1), x)
""",
    "erf_float32": """
def {name}(x: {T}) -> {T}:
    size = abs(x)
    inside = 4 if size > 4 else size
    z = x * x
    t = (7.853861353153693e-5 * z - 8.010193625184903e-4) * z + 5.188327685732524e-3
    t = ((t * z - 2.685381193529856e-2) * z + 1.128358514861418e-1) * z - 3.761262582423300e-1
    small = (t * z + 1.128379165726710) * size
    r = 1 / inside
    y = r * r
    p = (2.326819970068386e-2 * y - 1.387039388740657e-1) * y + 3.687424674597105e-1
    p = ((p * y - 5.824733027278666e-1) * y + 6.210004621745983e-1) * y - 4.944515323274145e-1
    p = ((p * y + 3.404879937665872e-1) * y - 2.741127028184656e-1) * y + 5.638259427386472e-1
    q = (-1.047766399936249e1 * y + 1.297719955372516e1) * y - 7.495518717768503
    q = ((q * y + 2.921019019210786) * y - 1.015265279202700) * y + 4.218463358204948e-1
    q = (q * y - 2.820767439740514e-1) * y + 5.641895067754075e-1
    tail = exp(-inside * inside) * r * (p if inside < 2 else q)
    return copysign(small if size < 1 else 1 - tail, x)
""",
    "erf_float64": """
def {name}(x: {T}) -> {T}:
    size = abs(x)
    inside = 6 if size > 6 else size
    z = x * x
    t = (9.60497373987051638749 * z + 9.00260197203842689217e1) * z + 2.23200534594684319226e3
    t = (t * z + 7.00332514112805075473e3) * z + 5.55923013010394962768e4
    u = (z + 3.35617141647503099647e1) * z + 5.21357949780152679795e2
    u = (u * z + 4.59432382970980127987e3) * z + 2.26290000613890934246e4
    small = size * t / (u * z + 4.92673942608635921086e4)
    p = (2.46196981473530512524e-10 * inside + 5.64189564831068821977e-1) * inside
    p = ((p + 7.46321056442269912687) * inside + 4.86371970985681366614e1) * inside
    p = ((p + 1.96520832956077098242e2) * inside + 5.26445194995477358631e2) * inside
    p = ((p + 9.34528527171957607540e2) * inside + 1.02755188689515710272e3) * inside
    q = ((inside + 1.32281951154744992508e1) * inside + 8.67072140885989742329e1) * inside
    q = ((q + 3.54937778887819891062e2) * inside + 9.75708501743205489753e2) * inside
    q = ((q + 1.82390916687909736289e3) * inside + 2.24633760818710981792e3) * inside
    q = (q + 1.65666309194161350182e3) * inside + 5.57535340817727675546e2
    tail = exp(-inside * inside) * (p + 5.57535335369399327526e2) / q
    return copysign(small if size < 1 else 1 - tail, x)
""",
}
"""Functions in the compiler's language, compiled for each argument type T.

Exponential, hyperbolic tangent and error function are from the Cephes library (Moshier 1989), with
errors below two units in the last place (error function: three); they consist of arithmetic only,
so LLVM vectorizes them.
"""

FUNCTION_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.FloorDiv: "floor_divide",
    ast.Mod: "mod",
    ast.Pow: "power",
}
"""The operators that are compiled to function calls."""

_INTRINSICS = {"sqrt", "log", "log2", "log10", "sin", "cos", "copysign"}
_ROUNDINGS = {"floor", "ceil", "trunc", "rint"}
_C_NAMES = {
    **{name: name for name in ("cbrt", "expm1", "log1p", "tan", "sinh", "cosh", "erfc")},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    "hypot": "hypot",
    "nextafter": "nextafter",
}


def source_key(name: str, dtype: str) -> str | None:
    """Return the key in `SOURCES` of a function for a type; None if it has no source."""
    kinds = [dtype] if is_float(dtype) else [dtype, "whole"]
    names = [*(f"{name}_{kind}" for kind in kinds), name]
    return next((n for n in names if n in SOURCES), None)


def to_common_type(at: Builder, *values: Value | Literal) -> tuple[list[Any], str]:
    """Convert values to NumPy's common type; return them and the type. Literals adapt to the
    others."""
    typed = [v.dtype for v in values if isinstance(v, Value)] or [v.dtype for v in values]
    dtype = np.result_type(*typed).name
    if any(v.dtype == "float64" for v in values if isinstance(v, Literal)) and not is_float(dtype):
        dtype = "float64"
    return [convert(at, v, dtype).ir for v in values], dtype


# operators ----------------------------------------------------------------------------------------

_CONSTANT_FOLDING: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_BITWISE = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_COMPARISONS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def emit_unary(at: Builder, sign: ast.unaryop, x: Value | Literal) -> Value | Literal:
    """Emit -x, not x, or ~x."""
    if isinstance(x, Literal) and isinstance(sign, ast.USub):
        return Literal(-x.value)
    value = convert(at, x, "bool" if isinstance(sign, ast.Not) else x.dtype)
    if isinstance(sign, ast.USub):
        negated = at.fneg(value.ir) if is_float(value.dtype) else at.neg(value.ir)
        return Value(negated, value.dtype)
    return Value(at.not_(value.ir), value.dtype)


def emit_binary(
    at: Builder, sign: ast.operator, x: Value | Literal, y: Value | Literal
) -> Value | Literal:
    """Emit a binary operator."""
    if isinstance(x, Literal) and isinstance(y, Literal) and type(sign) in _CONSTANT_FOLDING:
        return Literal(_CONSTANT_FOLDING[type(sign)](x.value, y.value))
    (a, b), dtype = to_common_type(at, x, y)
    if type(sign) in _BITWISE:
        return Value(getattr(at, _BITWISE[type(sign)])(a, b), dtype)
    if isinstance(sign, (ast.LShift, ast.RShift)):
        return Value(_shift(at, sign, a, b, dtype), dtype)
    if (isinstance(sign, ast.Div) and not is_float(dtype)) or dtype == "bool":
        wide = "float64" if isinstance(sign, ast.Div) else "int64"
        a, b = (convert(at, Value(v, dtype), wide).ir for v in (a, b))
        dtype = wide
    if isinstance(sign, ast.Div):
        return Value(at.floating("fdiv", a, b), dtype)
    name = _ARITHMETIC[type(sign)]
    return Value(
        at.floating(f"f{name}", a, b) if is_float(dtype) else getattr(at, name)(a, b), dtype
    )


def _shift(at: Builder, sign: ast.operator, x: Any, places: Any, dtype: str) -> Any:
    """Emit a shift of x; shifts by more bits than x has shift out all bits."""
    width = x.type(x.type.width)
    inside = at.icmp_unsigned("<", places, width)
    if isinstance(sign, ast.RShift) and is_signed(dtype):
        return at.ashr(x, at.select(inside, places, x.type(x.type.width - 1)))
    shift = at.shl if isinstance(sign, ast.LShift) else at.lshr
    return at.select(inside, shift(x, at.select(inside, places, x.type(0))), x.type(0))


def emit_comparison(at: Builder, sign: ast.cmpop, x: Value | Literal, y: Value | Literal) -> Value:
    """Emit a comparison: False with a NaN, but != is True."""
    (a, b), dtype = to_common_type(at, x, y)
    text = _COMPARISONS[type(sign)]
    if is_float(dtype):
        compare = at.fcmp_unordered if text == "!=" else at.fcmp_ordered
    else:
        compare = at.icmp_signed if is_signed(dtype) else at.icmp_unsigned
    return Value(compare(text, a, b), "bool")


# functions ----------------------------------------------------------------------------------------


def emit_call(at: Builder, name: str, values: Sequence[Value | Literal]) -> Value:
    """Emit a function by its NumPy name. Raises SyntaxError for an unknown function."""
    operands, dtype = to_common_type(at, *values)
    if name in _EMITTERS:
        return _EMITTERS[name](at, dtype, *operands)
    if name in _ROUNDINGS and not is_float(dtype):
        return Value(operands[0], dtype)
    if not is_float(dtype):
        operands, dtype = [convert(at, Value(x, dtype), "float64").ir for x in operands], "float64"
    if name in _INTRINSICS or name in _ROUNDINGS:
        return Value(at.intrinsic(name, *operands), dtype)
    if name == "power":
        return Value(at.intrinsic("pow", *operands), dtype)
    if name in _C_NAMES:
        suffix = "f" if dtype == "float32" else ""
        return Value(at.c_function(_C_NAMES[name] + suffix, *operands), dtype)
    raise SyntaxError(f"no function {name} in the language")


def _abs(at: Builder, dtype: str, x: Any) -> Value:
    if is_float(dtype):
        return Value(at.intrinsic("fabs", x), dtype)
    if not is_signed(dtype):
        return Value(x, dtype)
    return Value(at.select(at.icmp_signed("<", x, x.type(0)), at.neg(x), x), dtype)


def _extremum(name: str, sign: str) -> Callable[..., Value]:
    def emit(at: Builder, dtype: str, x: Any, y: Any) -> Value:
        if is_float(dtype):
            return Value(at.intrinsic(name, x, y), dtype)
        compare = at.icmp_signed if is_signed(dtype) else at.icmp_unsigned
        return Value(at.select(compare(sign, x, y), x, y), dtype)

    return emit


def _fmod(at: Builder, dtype: str, x: Any, y: Any) -> Value:
    """Emit the remainder with the sign of x; 0 for integers divided by 0."""
    if is_float(dtype):
        return Value(at.floating("frem", x, y), dtype)
    remainder = at.srem if is_signed(dtype) else at.urem
    return Value(remainder(x, _divisor(at, dtype, y)), dtype)


def _quotient(at: Builder, dtype: str, x: Any, y: Any) -> Value:
    """Emit the quotient of integers, rounded towards zero; 0 if y is 0."""
    divide = at.sdiv if is_signed(dtype) else at.udiv
    result = divide(x, _divisor(at, dtype, y))
    if is_signed(dtype):
        result = at.select(at.icmp_signed("==", y, y.type(-1)), at.neg(x), result)
    return Value(at.select(at.icmp_signed("==", y, y.type(0)), y.type(0), result), dtype)


def _divisor(at: Builder, dtype: str, y: Any) -> Any:
    """Replace divisors that trap by 1: 0, and -1, for which the smallest number overflows."""
    wrong = at.icmp_signed("==", y, y.type(0))
    if is_signed(dtype):
        wrong = at.or_(wrong, at.icmp_signed("==", y, y.type(-1)))
    return at.select(wrong, y.type(1), y)


def _isnan(at: Builder, dtype: str, x: Any) -> Value:
    different = at.fcmp_unordered("uno", x, x) if is_float(dtype) else llvm_type("bool")(0)
    return Value(different, "bool")


def _compared_with_infinity(sign: str) -> Callable[..., Value]:
    def emit(at: Builder, dtype: str, x: Any) -> Value:
        if not is_float(dtype):
            return Value(llvm_type("bool")(int(sign == "<")), "bool")
        size = at.intrinsic("fabs", x)
        return Value(at.fcmp_ordered(sign, size, x.type(float("inf"))), "bool")

    return emit


def _signbit(at: Builder, dtype: str, x: Any) -> Value:
    if is_float(dtype):
        x = at.bitcast(x, WORD if dtype == "float64" else llvm_type("int32"))
    return Value(at.icmp_signed("<", x, x.type(0)), "bool")


def _in_any_order(name: str) -> Callable[..., Value]:
    """Return the emitter of an operator that accumulates: the order of its operands is free unless
    each operation is rounded individually."""

    def emit(at: Builder, dtype: str, x: Any, y: Any) -> Value:
        if not is_float(dtype):
            return Value(getattr(at, name)(x, y), dtype)
        return Value(at.floating(f"f{name}", x, y, flags=["reassoc"] if at.flags else ()), dtype)

    return emit


_EMITTERS: Mapping[str, Callable[..., Value]] = {
    "abs": _abs,
    "add_in_any_order": _in_any_order("add"),
    "multiply_in_any_order": _in_any_order("mul"),
    "maximum": _extremum("maximum", ">"),
    "minimum": _extremum("minimum", "<"),
    "min": _extremum("minimum", "<"),
    "max": _extremum("maximum", ">"),
    "fmod": _fmod,
    "quotient": _quotient,
    "isnan": _isnan,
    "isinf": _compared_with_infinity("=="),
    "isfinite": _compared_with_infinity("<"),
    "signbit": _signbit,
}
