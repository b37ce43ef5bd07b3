"""The element-wise operations, one table row each.

A row gives the name, the accepted operand types, the torch and NumPy functions, the scalar
expression for native code, and the cotangents of the operands. Cotangents may have the broadcast
shape: `autodiff` sums them back to the operand's shape. From a row with a summary follows the
public function (`api/elementwise.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, bool_, complex_dtype, compute_dtype, real_dtype, uint8
from magmath.core.shapes import broadcast
from magmath.core.type_aliases import Number, ReadyCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, applied, apply
from magmath.graph.arithmetic import define_operators
from magmath.graph.operation import Gradients, Vjp
from magmath.ops.elementwise_rows import row
from magmath.ops.infer_rules import (
    flops_per_element,
    no_gradient,
    numpy_name,
    pointwise_axes,
    pointwise_infer,
    require_kind,
    same_bits_always,
    same_bits_of_full_floats,
    same_bits_of_integers,
    torch_kernel,
)
from magmath.ops.leaves import constant
from magmath.ops.numpy_gaps import (
    complex_of,
    digamma_of,
    erf_of,
    erfc_of,
    expit_of,
    lgamma_of,
    zeta_of,
)
from magmath.ops.torch_gaps import (
    absolute_kernel,
    exact_complex_kernel,
    expm1,
    flag_kernel,
    host_kernel,
    nextafter_kernel,
    part_kernel,
    parts_kernel,
    power_kernel,
    quotient_kernel,
    relu_kernel,
    remainder_kernel,
    root_kernel,
    round_kernel,
    sign_kernel,
    square_kernel,
    where_positive_kernel,
    wide_kernel,
)


def _constant(value: complex, like: Node) -> Node:
    """Return a constant of the type of a node."""
    return constant(value, like.dtype)


# Functions that build graphs; they look up their records in the tables below.
def add(x: Node, y: Node) -> Node:
    """Return x + y."""
    return apply(OPERATIONS["add"], x, y)


def subtract(x: Node, y: Node) -> Node:
    """Return x - y."""
    return apply(OPERATIONS["subtract"], x, y)


def multiply(x: Node, y: Node) -> Node:
    """Return x * y."""
    return apply(OPERATIONS["multiply"], x, y)


def divide(x: Node, y: Node) -> Node:
    """Return x / y."""
    return apply(OPERATIONS["divide"], x, y)


def negative(x: Node) -> Node:
    """Return -x."""
    return apply(OPERATIONS["negative"], x)


def sqrt(x: Node) -> Node:
    """Return the square root of x."""
    return apply(OPERATIONS["sqrt"], x)


def where(condition: Node, x: Node, y: Node) -> Node:
    """Return x where the condition is true, otherwise y."""
    return apply(WHERE, condition, x, y)


def call(name: str, *inputs: Node) -> Node:
    """Apply the element-wise operation of this name."""
    return apply(OPERATIONS[name], *inputs)


def _derivative(factor: Callable[[Node], Node]) -> Vjp:
    """Return the vjp of a unary function with derivative `factor(node)`."""
    return lambda node, g: (g * factor(node),)


# Convention for complex cotangents: a change dz of z changes the result by Re(g·dz).
def conj(x: Node) -> Node:
    """Return the complex conjugate; x itself if its type is real."""
    return call("conj", x) if x.dtype.kind == "complex" else x


def real(x: Node) -> Node:
    """Return the real part; x itself if its type is real."""
    return call("real", x) if x.dtype.kind == "complex" else x


def _abs_vjp(node: Node, g: Node) -> Gradients:
    direction = call("sign", _x(node))
    return (astype(g, direction.dtype) * conj(direction),)


def _imag_vjp(node: Node, g: Node) -> Gradients:
    if _x(node).dtype.kind != "complex":
        return (None,)
    return (astype(g, _x(node).dtype) * -1j,)


def _x(node: Node) -> Node:
    """Return the operand of a unary operation."""
    return node.inputs[0]


def _is_number(node: Node) -> bool:
    return node.name in ("constant", "scalar")


def _sign_vjp(node: Node, g: Node) -> Gradients:
    """Return no cotangent for real types; z / |z| depends on the part of dz perpendicular to z."""
    if node.dtype.kind != "complex":
        return (None,)
    x, zero = _x(node), _constant(0, g)
    along = astype(real(g * node), g.dtype) * conj(node)
    length = astype(call("abs", x), g.dtype)
    return (where(call("equal", x, zero), zero, (g - along) / length),)


def _square(x: Node) -> Node:
    return x * x


def _one_minus_square(x: Node) -> Node:
    return 1 - _square(x)


def _one_plus_square(x: Node) -> Node:
    return 1 + _square(x)


def _power_vjp(node: Node, g: Node) -> Gradients:
    x, y = node.inputs
    one, zero = _constant(1, x), _constant(0, x)
    exponent = where(
        call("equal", y, _constant(0, y)), _constant(0, y), y - 1
    )  # x**0 is 1 even at x = 0
    by_x = g * (y * x**exponent)
    if _is_number(y):
        return by_x, None
    safe = where(call("equal", x, zero), one, x)  # d/dy has the limit 0 at x = 0, as in PyTorch
    return by_x, g * (node * call("log", safe))


def _extremum_vjp(comparison: str) -> Vjp:
    """Return the vjp of an extremum: at ties each operand gets half of the cotangent.

    The gradient of relu, the maximum with the constant 0, is 0 at 0. It reads the result, which
    later layers need anyway.
    """
    opposite = "less" if comparison == "greater" else "greater"

    def vjp(node: Node, g: Node) -> Gradients:
        x, y = node.inputs
        is_relu = comparison == "greater" and y.name == "constant" and y.attributes["value"] == 0
        if is_relu and x.shape == node.shape and x.dtype.kind == "float":
            return call("where_positive", g, node), None
        zero, shared = _constant(0, g), where(call("equal", x, y), g / 2, g)
        first = None if _is_number(x) else where(call(opposite, x, y), zero, shared)
        second = None if _is_number(y) else where(call(comparison, x, y), zero, shared)
        return first, second

    return vjp


def _clamp_vjp(within: str, beyond: str) -> Vjp:
    """Return the vjp of a bound on one side: an element at the bound gets all of the cotangent."""

    def vjp(node: Node, g: Node) -> Gradients:
        x, bound = node.inputs
        zero = _constant(0, g)
        first = None if _is_number(x) else where(call(within, x, bound), g, zero)
        return first, None if _is_number(bound) else where(call(beyond, x, bound), g, zero)

    return vjp


def _atan2_vjp(node: Node, g: Node) -> Gradients:
    y, x = node.inputs
    scale = g / _nonzero(_square(x) + _square(y))
    return scale * x, -(scale * y)


def _hypot_vjp(node: Node, g: Node) -> Gradients:
    x, y = node.inputs
    scale = g / _nonzero(node)
    return scale * x, scale * y


def _nonzero(x: Node) -> Node:
    """Return x with 1 for 0, as a divisor of numbers that are 0 there."""
    return where(call("equal", x, constant(0, x.dtype)), constant(1, x.dtype), x)


def _logaddexp_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangents by logistic functions of x - y and y - x.

    They do not read the result, so a gradient alone computes no logarithm.
    """
    x, y = node.inputs
    return g * _logistic(x - y), g * _logistic(y - x)


def _logistic(x: Node) -> Node:
    """Return 1 / (1 + exp(-x)). The exponential is finite, so that all derivatives are."""
    wide = astype(x, compute_dtype(x.dtype))
    max_exponent = _constant(_MAX_EXPONENT[wide.dtype.name], wide)
    return astype(1 / (1 + call("exp", call("minimum", -wide, max_exponent))), x.dtype)


def _remainder_vjp(node: Node, g: Node) -> Gradients:
    x, y = node.inputs
    return g, -(g * call("floor", x / y))


def _fmod_vjp(node: Node, g: Node) -> Gradients:
    x, y = node.inputs
    return g, -(g * call("trunc", x / y))


def _root_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangent of a root, 0 at 0: that of norms and deviations, which have no slope
    there, is 0 as in PyTorch."""
    is_zero = astype(call("equal", node, _constant(0, node)), node.dtype)
    return (call("where_positive", g, node) / (node + node + is_zero),)


def _complex_result(part: DType) -> DType:
    if part.itemsize < 4:
        raise DTypeError(
            f"complex: takes parts of float32 or float64, was given {part}"
            "; convert them with mm.astype(x, mm.float32)"
        )
    return complex_dtype(part)


def _zeta_vjp(node: Node, g: Node) -> Gradients:
    s, x = node.inputs
    return None, -(g * s * call("zeta", s + 1, x))


_LN2, _LN10 = float(np.log(2.0)), float(np.log(10.0))
_TWO_BY_SQRT_PI = float(2.0 / np.sqrt(np.pi))
_MAX_EXPONENT = {"float32": 80.0, "float64": 700.0}
"""Numbers whose exponential is finite in a type."""

PARTS = (
    row("real", "any", "{0}", lambda n, g: (astype(g, _x(n).dtype),),
        kernel=part_kernel, result=real_dtype, same_bits=same_bits_always,
        of_bools="unchanged",
        summary="The real part of each element."),
    row("imag", "any", "0", _imag_vjp, kernel=part_kernel, result=real_dtype,
        same_bits=same_bits_always,
        summary="The imaginary part of each element; 0 for real numbers."),
)  # fmt: skip
"""Parts of complex numbers: their public functions return views."""

UNARY = (
    row("negative", "numeric", "(-{0})", lambda n, g: (-g,),
        same_bits=same_bits_always,
        summary="Each element with the opposite sign; unsigned integers wrap."),
    row("abs", "numeric", "abs({0})", _abs_vjp, kernel=absolute_kernel, result=real_dtype,
        same_bits=same_bits_always, of_bools="unchanged",
        summary="The absolute value of each element; of complex numbers a real number."),
    row("conj", "numeric", "{0}", lambda n, g: (conj(g),), torch="conj_physical", numpy=np.conj,
        same_bits=same_bits_always, of_bools="int8",
        summary="The complex conjugate of each element."),
    row("sign", "numeric",
        "({one} if {0} > 0 else -{one} if {0} < 0 else {0} if {0} != {0} else {one} - {one})",
        _sign_vjp, kernel=sign_kernel, flops=2,
        same_bits=same_bits_always,
        summary="-1, 0 or 1 by the sign of each element; x / |x| for complex numbers."),
    row("square", "numeric", "({0} * {0})", _derivative(lambda n: _x(n) + _x(n)),
        kernel=square_kernel,
        same_bits=same_bits_always, of_bools="int8",
        summary="The square of each element."),
    row("reciprocal", "floating", "({one} / {0})", _derivative(lambda n: -_square(n)),
        same_bits=same_bits_always),
    row("relu", "real floating", "({one} - {one} if {0} <= 0 else {0})",
        lambda n, g: (call("where_positive", g, n),),
        numpy=lambda x: np.where(x <= 0, 0, x), kernel=relu_kernel, numpy_loop=False,
        same_bits=same_bits_always),
    row("sqrt", "floating", "np.sqrt({0})",
        lambda n, g: (g / (n + n),), flops=4, kernel=root_kernel,
        same_bits=same_bits_of_full_floats,
        summary="The square root of each element; nan for negative numbers."),
    row("root", "real floating", "np.sqrt({0})", _root_vjp, torch="sqrt", numpy=np.sqrt, flops=4,
        kernel=root_kernel, same_bits=same_bits_of_full_floats),
    row("cbrt", "real floating", "np.cbrt({0})", lambda n, g: (g / (3 * _square(n)),),
        kernel=host_kernel, flops=20,
        summary="The cube root of each element, also of negative ones."),
    row("exp", "floating", "np.exp({0})", _derivative(lambda n: n), flops=10, avx512=True,
        summary="e to the power of each element."),
    row("expm1", "floating", "np.expm1({0})", _derivative(lambda n: n + 1),
        numpy=expm1, kernel=exact_complex_kernel, flops=12,
        summary="exp(x) - 1 of each element, also accurate near 0."),
    row("log", "floating", "np.log({0})", lambda n, g: (g / _x(n),), flops=10, avx512=True,
        summary="The natural logarithm of each element; -inf for 0, nan for negative numbers."),
    row("log1p", "floating", "np.log1p({0})",
        lambda n, g: (g / (_x(n) + 1),),
        kernel=exact_complex_kernel, flops=12, avx512=True,
        summary="log(1 + x) of each element, also accurate near 0; nan below -1."),
    row("log2", "floating", "np.log2({0})",
        lambda n, g: (g / (_x(n) * _LN2),), flops=10, avx512=True,
        summary="The logarithm to base 2 of each element; -inf for 0, nan for negative numbers."),
    row("log10", "floating", "np.log10({0})",
        lambda n, g: (g / (_x(n) * _LN10),), flops=10, avx512=True,
        summary="The logarithm to base 10 of each element; -inf for 0, nan for negative numbers."),
    row("sin", "floating", "np.sin({0})", _derivative(lambda n: call("cos", _x(n))), flops=12,
        summary="The sine of each element, an angle in radians."),
    row("cos", "floating", "np.cos({0})",
        _derivative(lambda n: -call("sin", _x(n))), flops=12,
        summary="The cosine of each element, an angle in radians."),
    row("tan", "floating", "np.tan({0})", _derivative(lambda n: _one_plus_square(n)), flops=16,
        avx512=True,
        summary="The tangent of each element, an angle in radians."),
    row("asin", "floating", "np.arcsin({0})",
        lambda n, g: (g / call("sqrt", _one_minus_square(_x(n))),),
        numpy=np.arcsin, flops=16, avx512=True,
        summary="The inverse sine of each element, in [-π/2, π/2]; nan outside [-1, 1]."),
    row("acos", "floating", "np.arccos({0})",
        lambda n, g: (-(g / call("sqrt", _one_minus_square(_x(n)))),),
        numpy=np.arccos, kernel=exact_complex_kernel, flops=16, avx512=True,
        summary="The inverse cosine of each element, in [0, π]; nan outside [-1, 1]."),
    row("atan", "floating", "np.arctan({0})",
        lambda n, g: (g / _one_plus_square(_x(n)),), numpy=np.arctan, flops=16, avx512=True,
        summary="The inverse tangent of each element, in [-π/2, π/2]."),
    row("sinh", "floating", "np.sinh({0})", _derivative(lambda n: call("cosh", _x(n))), flops=14,
        avx512=True,
        summary="The hyperbolic sine of each element."),
    row("cosh", "floating", "np.cosh({0})", _derivative(lambda n: call("sinh", _x(n))), flops=14,
        avx512=True,
        summary="The hyperbolic cosine of each element."),
    row("tanh", "floating", "np.tanh({0})", _derivative(_one_minus_square), flops=14, avx512=True,
        summary="The hyperbolic tangent of each element."),
    row("sigmoid", "real floating", "({one} / ({one} + np.exp(-{0})))",
        _derivative(lambda n: n * (1 - n)), numpy=expit_of, flops=14),
    row("asinh", "floating", "np.arcsinh({0})",
        lambda n, g: (g / call("sqrt", _one_plus_square(_x(n))),),
        numpy=np.arcsinh, flops=16, avx512=True,
        summary="The inverse hyperbolic sine of each element."),
    row("acosh", "floating", "np.arccosh({0})",
        lambda n, g: (g / call("sqrt", _square(_x(n)) - 1),),
        numpy=np.arccosh, flops=16,
        summary="The inverse hyperbolic cosine of each element; nan below 1."),
    row("atanh", "floating", "np.arctanh({0})",
        lambda n, g: (g / _one_minus_square(_x(n)),), numpy=np.arctanh, flops=16, avx512=True,
        summary="The inverse hyperbolic tangent of each element; nan outside [-1, 1]."),
    row("erf", "real floating", "np.erf({0})",
        _derivative(lambda n: call("exp", -_square(_x(n))) * _TWO_BY_SQRT_PI),
        numpy=erf_of, flops=20,
        summary="The error function 2/√π · ∫₀ˣ exp(-t²) dt of each element."),
    row("erfc", "real floating", "np.erfc({0})",
        _derivative(lambda n: call("exp", -_square(_x(n))) * -_TWO_BY_SQRT_PI), numpy=erfc_of,
        flops=30,
        summary="1 - erf(x) of each element, without the cancellation for large x."),
    row("lgamma", "real floating", None, _derivative(lambda n: call("digamma", _x(n))),
        numpy=lgamma_of, kernel=wide_kernel, flops=40,
        summary="The logarithm of |Γ(x)| of each element x."),
    row("digamma", "real floating", None,
        _derivative(lambda n: call("zeta", _constant(2, n), _x(n))),
        numpy=digamma_of, kernel=wide_kernel, flops=40,
        summary="The derivative of lgamma at each element."),
    row("floor", "real", "np.floor({0})", no_gradient,
        same_bits=same_bits_always, of_bools="unchanged",
        summary="The largest integer that is at most x, for each element, in x's type."),
    row("ceil", "real", "np.ceil({0})", no_gradient,
        same_bits=same_bits_always, of_bools="unchanged",
        summary="The smallest integer that is at least x, for each element, in x's type."),
    row("round", "numeric", "np.rint({0})", no_gradient, numpy=np.round, kernel=round_kernel,
        same_bits=same_bits_always),
    row("trunc", "real", "np.trunc({0})", no_gradient,
        same_bits=same_bits_always, of_bools="unchanged",
        summary="Each element rounded towards 0, in x's type."),
    row("isnan", "numeric", "np.isnan({0})", no_gradient, result=bool_, kernel=flag_kernel,
        same_bits=same_bits_always, of_bools="int8",
        summary="True for each element that is nan."),
    row("isinf", "numeric", "np.isinf({0})", no_gradient, result=bool_, kernel=flag_kernel,
        same_bits=same_bits_always, of_bools="int8",
        summary="True for each element that is inf or -inf."),
    row("isfinite", "numeric", "np.isfinite({0})", no_gradient, result=bool_, kernel=flag_kernel,
        same_bits=same_bits_always, of_bools="int8",
        summary="True for each element that is neither nan nor infinite."),
    row("signbit", "real floating", "np.signbit({0})", no_gradient, result=bool_,
        same_bits=same_bits_always, of_bools="int8",
        summary="True for each element with a minus sign, also -0.0."),
    row("logical_not", "bool", "(not {0})", no_gradient,
        same_bits=same_bits_always),
    row("bitwise_invert", "integer or bool", "(~{0})", no_gradient,
        torch="bitwise_not", numpy=np.invert, same_bits=same_bits_always,
        summary="Each element with all bits inverted; for truth values the opposite."),
    row("bitwise_count", "integer or bool", None, no_gradient, kernel=host_kernel, result=uint8,
        same_bits=same_bits_always,
        summary="The number of one bits of |x|, as uint8."),
)  # fmt: skip

BINARY = (
    row("add", "numeric", "({0} + {1})", lambda n, g: (g, g), kernel=parts_kernel, additive=True,
        same_bits=same_bits_always, is_associative=True, identity=0, of_bools="logical_or",
        summary="x1 + x2; of truth values, whether one of them is true."),
    row("subtract", "numeric", "({0} - {1})", lambda n, g: (g, -g), kernel=parts_kernel,
        same_bits=same_bits_always,
        summary="x1 - x2."),
    row("multiply", "numeric", "({0} * {1})",
        lambda n, g: (g * n.inputs[1], g * n.inputs[0]),
        same_bits=same_bits_always, is_associative=True, identity=1, of_bools="logical_and",
        summary="x1 · x2; of truth values, whether both are true."),
    row("divide", "floating", "({0} / {1})",
        lambda n, g: (g / n.inputs[1], -(g * n / n.inputs[1])),
        same_bits=same_bits_always,
        summary="x1 / x2, of integers too a floating point number."),
    row("floor_divide", "real", "({0} // {1})", no_gradient,
        kernel=quotient_kernel, flops=4,
        of_bools="int8",
        summary="The largest integer that is at most x1 / x2, in the type of the operands."),
    row("remainder", "real",
        {"int": "np.mod({0}, {1})", "uint": "np.mod({0}, {1})",
         "float": "np.copysign(np.mod({0}, {1}), {1})"}, _remainder_vjp,
        kernel=remainder_kernel, flops=4,
        of_bools="int8",
        summary="The remainder of x1 / x2 with the sign of x2, as Python's %."),
    row("fmod", "real", "np.fmod({0}, {1})", _fmod_vjp, kernel=remainder_kernel, flops=4,
        of_bools="int8",
        summary="The remainder of x1 / x2 with the sign of x1."),
    row("power", "numeric",
        dict.fromkeys(("uint", "float", "complex"), "({0} ** {1})"), _power_vjp,
        torch="pow", numpy=np.power, kernel=power_kernel, flops=20, numpy_loop=False,
        of_bools="int8",
        summary="x1 raised to the power x2, element by element."),
    row("maximum", "ordered", "np.maximum({0}, {1})",
        _extremum_vjp("greater"), same_bits=same_bits_of_integers,
        is_associative=True,
        summary="The larger of x1 and x2; where they are equal, each has half of the gradient."),
    row("minimum", "ordered", "np.minimum({0}, {1})",
        _extremum_vjp("less"), same_bits=same_bits_of_integers,
        is_associative=True,
        summary="The smaller of x1 and x2; where they are equal, each has half of the gradient."),
    row("clamp_min", "ordered", "np.maximum({0}, {1})", _clamp_vjp("greater_equal", "less"),
        torch="maximum", numpy=np.maximum, same_bits=same_bits_of_integers),
    row("clamp_max", "ordered", "np.minimum({0}, {1})", _clamp_vjp("less_equal", "greater"),
        torch="minimum", numpy=np.minimum, same_bits=same_bits_of_integers),
    row("where_positive", "real floating", "({one} - {one} if {1} <= 0 else {0})",
        lambda n, g: (call("where_positive", g, n.inputs[1]), None),
        numpy=lambda g, y: np.where(y <= 0, 0, g), kernel=where_positive_kernel, numpy_loop=False,
        same_bits=same_bits_always),
    row("atan2", "real floating", "np.arctan2({0}, {1})", _atan2_vjp,
        numpy=np.arctan2, flops=20,
        summary="The angle of the point (x2, x1) in radians, in [-π, π]."),
    row("hypot", "real floating", "np.hypot({0}, {1})", _hypot_vjp, flops=6,
        is_associative=True, identity=0,
        summary="√(x1² + x2²), without overflow of the squares."),
    row("logaddexp", "real floating", "np.logaddexp({0}, {1})", _logaddexp_vjp, flops=20,
        is_associative=True, identity=-np.inf,
        summary="log(exp(x1) + exp(x2)), without overflow."),
    row("zeta", "real floating", None, _zeta_vjp, torch="special.zeta", numpy=zeta_of,
        kernel=wide_kernel, flops=60),
    row("complex", "real floating", None,
        lambda n, g: (call("real", g), -call("imag", g)), numpy=complex_of,
        result=_complex_result),
    row("copysign", "real floating", "np.copysign({0}, {1})",
        lambda n, g: (g * (call("sign", n) * call("sign", n.inputs[0])), None),
        same_bits=same_bits_always,
        summary="|x1| with the sign of x2."),
    row("nextafter", "real floating", "np.nextafter({0}, {1})", no_gradient,
        kernel=nextafter_kernel,
        summary="The number next to x1 in the direction of x2."),
    row("equal", "any", "({0} == {1})", no_gradient, torch="eq", numpy=np.equal, result=bool_,
        same_bits=same_bits_always,
        summary="True where x1 and x2 are equal."),
    row("not_equal", "any", "({0} != {1})", no_gradient,
        torch="ne", numpy=np.not_equal, result=bool_, same_bits=same_bits_always,
        summary="True where x1 and x2 differ."),
    row("less", "ordered", "({0} < {1})", no_gradient, result=bool_, same_bits=same_bits_always,
        summary="True where x1 < x2."),
    row("less_equal", "ordered", "({0} <= {1})", no_gradient, result=bool_,
        same_bits=same_bits_always,
        summary="True where x1 ≤ x2."),
    row("greater", "ordered", "({0} > {1})", no_gradient, result=bool_, same_bits=same_bits_always,
        summary="True where x1 > x2."),
    row("greater_equal", "ordered", "({0} >= {1})", no_gradient, result=bool_,
        same_bits=same_bits_always,
        summary="True where x1 ≥ x2."),
    row("bitwise_and", "integer or bool", "({0} & {1})", no_gradient, same_bits=same_bits_always,
        is_associative=True, identity=-1,
        summary="The bits that are set in both x1 and x2; `and` of truth values."),
    row("bitwise_or", "integer or bool", "({0} | {1})", no_gradient, same_bits=same_bits_always,
        is_associative=True, identity=0,
        summary="The bits that are set in x1 or x2; `or` of truth values."),
    row("bitwise_xor", "integer or bool", "({0} ^ {1})", no_gradient, same_bits=same_bits_always,
        is_associative=True, identity=0,
        summary="The bits that are set in only one of x1 and x2."),
    row("gcd", "integer", None, no_gradient, kernel=host_kernel, flops=60,
        same_bits=same_bits_always, is_associative=True, identity=0,
        summary="The greatest common divisor of |x1| and |x2|."),
    row("lcm", "integer", None, no_gradient, kernel=host_kernel, flops=60,
        same_bits=same_bits_always, is_associative=True,
        summary="The least common multiple of |x1| and |x2|; 0 where one of them is 0."),
    row("bitwise_left_shift", "integer", "({0} << {1})", no_gradient, numpy=np.left_shift,
        same_bits=same_bits_always, of_bools="int8",
        summary="x1 with its bits shifted to the left by x2 places."),
    row("bitwise_right_shift", "integer", "({0} >> {1})", no_gradient, numpy=np.right_shift,
        same_bits=same_bits_always, of_bools="int8",
        summary="x1 with its bits shifted to the right by x2 places."),
)  # fmt: skip

LOGICAL = (
    row("logical_and", "bool", "({0} and {1})", no_gradient, same_bits=same_bits_always,
        is_associative=True, identity=True,
        summary="x1 and x2 as truth values: numbers other than 0 are true."),
    row("logical_or", "bool", "({0} or {1})", no_gradient, same_bits=same_bits_always,
        is_associative=True, identity=False,
        summary="x1 or x2 as truth values: numbers other than 0 are true."),
    row("logical_xor", "bool", "({0} != {1})", no_gradient, same_bits=same_bits_always,
        is_associative=True, identity=False,
        summary="x1 xor x2 as truth values: numbers other than 0 are true."),
)  # fmt: skip
"""Their public functions take numbers as truth values."""


def _where_infer(condition: Node, x: Node, y: Node) -> tuple[Shape, DType]:
    require_kind("where (condition)", "bool", condition.dtype)
    shape, dtype = pointwise_infer("where", "any")(x, y)
    return broadcast("where", condition.shape, shape), dtype


def _where_vjp(node: Node, g: Node) -> Gradients:
    condition, zero = node.inputs[0], _constant(0, g)
    return None, where(condition, g, zero), where(condition, zero, g)


def _numpy_where(condition: Any, x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def _bind_where(call: KernelCall) -> Callable[[], object]:
    """Bind the kernel of `kernels/selection.py` if it takes the operands: it is faster for large
    arrays."""
    from magmath.kernels import selection

    condition, x, y = call.inputs
    if selection.can_bind(condition, x, y, call.out):
        return selection.bind(condition, x, y, call.out)
    return _torch_where(call)


_torch_where = torch_kernel("where", np.where)
WHERE = Operation(
    name="where",
    infer=_where_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_where_vjp,
    kernel=_bind_where,
    native="({1} if {0} else {2})",
    reference=np.where,
    numpy_function=lambda node: _numpy_where,
    flops=flops_per_element(1),
    same_bits=same_bits_always,
    elementwise=True,
)


def check_imaginary_part(operation: str, given: DType, dtype: DType) -> None:
    """Raise DTypeError if a conversion would lose imaginary parts."""
    if given.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise DTypeError(
            f"{operation}: {given} has an imaginary part, {dtype} has none; convert to complex64 "
            f"or complex128, or take the absolute value with mm.abs(x)"
        )


def _astype_infer(x: Node, *, dtype: DType) -> tuple[Shape, DType]:
    check_imaginary_part("astype", x.dtype, dtype)
    return x.shape, dtype


def _astype_kernel(call: KernelCall) -> ReadyCall:
    out, source = call.out, call.inputs[0]
    return lambda: out.copy_(source)


def _astype_vjp(node: Node, g: Node) -> Gradients:
    dtype = node.inputs[0].dtype
    return (astype(g if dtype.kind == "complex" else real(g), dtype),)


def _astype_reference(x: Any, *, dtype: DType) -> Any:
    return np.asarray(x).astype(numpy_name(dtype))


def _astype_same_bits(result: DType, operands: Sequence[DType]) -> bool:
    """Return False if the result may depend on the processor's instruction.

    It does for floats that are converted to an integer type that cannot represent them.
    """
    return operands[0].kind != "float" or result.kind in ("bool", "float")


def _numpy_astype(node: Node) -> Callable[..., object] | None:
    if not _astype_same_bits(node.dtype, [x.dtype for x in node.inputs]):
        return None
    return lambda x, out: np.copyto(out, x, casting="unsafe")


ASTYPE = Operation(
    name="astype",
    infer=_astype_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_astype_vjp,
    kernel=_astype_kernel,
    native="{cast}({0})",
    reference=_astype_reference,
    numpy_function=_numpy_astype,
    flops=flops_per_element(1),
    same_bits=_astype_same_bits,
    elementwise=True,
)


def astype(x: Node, dtype: DType) -> Node:
    """Convert x to `dtype`; return x itself if it has that type already."""
    return x if x.dtype is dtype else apply(ASTYPE, x, dtype=dtype)


STOP_GRADIENT = Operation(  # a mark for autodiff; the simplify pass removes it
    name="stop_gradient",
    infer=pointwise_infer("stop_gradient", "any"),
    axes=pointwise_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_astype_kernel,
    native="{0}",
    reference=np.asarray,
    flops=flops_per_element(0),
    same_bits=same_bits_always,
    elementwise=True,
)

ARGUMENT = Operation(  # x as a separate node: an argument of a differentiated function
    name="argument",
    infer=pointwise_infer("argument", "any"),
    axes=pointwise_axes,
    reduction=None,
    vjp=lambda node, g: (g,),
    kernel=_astype_kernel,
    native="{0}",
    reference=np.asarray,
    flops=flops_per_element(0),
    elementwise=True,
)

OPERATIONS = {
    operation.name: operation
    for operation in (*PARTS, *UNARY, *BINARY, *LOGICAL, WHERE, ASTYPE, STOP_GRADIENT, ARGUMENT)
}
FLOATING = frozenset(name for name, record in OPERATIONS.items() if record.floats_only)
"""Names of operations that take floating point numbers only."""
OF_BOOLS = {name: record.of_bools for name, record in OPERATIONS.items() if record.of_bools}
"""How truth values are computed by operations that do not take them."""


def _build(name: str, *operands: Node | Number) -> Node:
    """Apply an operation to nodes and Python numbers.

    Numbers become constants of the first node's type.
    """
    (node, *_) = [x for x in operands if isinstance(x, Node)]
    inputs = tuple([x if isinstance(x, Node) else constant(x, node.dtype) for x in operands])
    return applied(OPERATIONS[name], inputs, node.line)


define_operators(_build)
