"""The element-wise operations, one table row each.

A row gives the name, the accepted operand types, the torch and NumPy functions, the scalar
expression for native code, and the cotangents of the operands. Cotangents may have the broadcast
shape: `autodiff` sums them back to the operand's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, bool_, complex_dtype, compute_dtype, real_dtype, uint8
from magmath.core.shapes import broadcast
from magmath.core.type_aliases import Number, ReadyCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, applied, apply
from magmath.graph.arithmetic import define
from magmath.graph.operation import Gradients, Kernel, NumpyUfunc, SameBits, Vjp, no_same_bits
from magmath.ops.infer_rules import (
    ResultType,
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
from magmath.ops.numpy_gaps import complex_of, digamma_of, erf_of, erfc_of, lgamma_of, zeta_of
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

FLOATING: set[str] = set()
"""Names of operations that accept only floating-point types; integers are converted for them."""

UNDIVIDED = 1 << 15
"""Number of elements up to which torch computes an element-wise function with one thread."""
NUMPY_LOOP_FLOPS = 8192
"""Flops that take no longer than the overhead of one torch call."""

VECTORIZED = frozenset(
    [
        "exp",
        "log",
        "log2",
        "log10",
        "log1p",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "atanh",
        "tan",
        "asin",
        "acos",
        "atan",
    ]
)
"""Functions that NumPy computes by AVX-512 in two thirds of torch's time or less."""


UFUNC_KERNELS = (
    torch_kernel, parts_kernel, root_kernel, flag_kernel, absolute_kernel, square_kernel,
    host_kernel,
)  # fmt: skip
"""Kernels that compute what NumPy's function of the name computes, for the types that have one."""


def _into(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's ufunc with the output as last positional operand.

    This takes half the time of `out=`.
    """
    if function in (np.maximum, np.minimum):  # these warn about a positional output
        return lambda x, y, out: function(x, y, out=out)
    return function


def _row(
    name: str,
    domain: str,
    native: str | Mapping[str, str] | None,
    vjp: Vjp,
    *,
    torch: str | None = None,
    numpy: Callable[..., Any] | None = None,
    result: ResultType = None,
    kernel: Callable[[str, Callable[..., Any]], Kernel] = torch_kernel,
    flops: float = 1.0,
    numpy_loop: bool = True,
    bits: SameBits = no_same_bits,
) -> Operation:
    reference = numpy or getattr(np, torch or name)
    if "floating" in domain:
        FLOATING.add(name)
    of_integers = kernel in (quotient_kernel, remainder_kernel)
    has_ufunc = (
        numpy_loop and (of_integers or kernel in UFUNC_KERNELS) and isinstance(reference, np.ufunc)
    )
    return Operation(
        name=name,
        infer=pointwise_infer(name, domain, result),
        axes=pointwise_axes,
        reduction=None,
        vjp=vjp,
        kernel=kernel(torch or name, reference),
        native=native,
        reference=reference,
        flops=flops_per_element(flops),
        same_bits=bits,
        elementwise=True,
        additive=name == "add",
        numpy_ufunc=NumpyUfunc(
            _into(reference), _most_by_numpy(flops), name in VECTORIZED, of_integers
        )
        if has_ufunc
        else None,
    )


def _most_by_numpy(flops: float) -> int:
    """Return the number of elements up to which NumPy's loop is faster than a call of torch; loops
    of one instruction are equally fast in both."""
    return UNDIVIDED if flops <= 1 else int(NUMPY_LOOP_FLOPS / flops)


def _c(value: complex, like: Node) -> Node:
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


def _scaled(factor: Callable[[Node], Node]) -> Vjp:
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
    return node.inputs[0]


def _is_number(node: Node) -> bool:
    return node.name in ("constant", "scalar")


def _sign_vjp(node: Node, g: Node) -> Gradients:
    """Return no cotangent for real types; z / |z| depends on the part of dz perpendicular to z."""
    if node.dtype.kind != "complex":
        return (None,)
    x, zero = _x(node), _c(0, g)
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
    one, zero = _c(1, x), _c(0, x)
    exponent = where(call("equal", y, _c(0, y)), _c(0, y), y - 1)  # x**0 is 1 even at x = 0
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
        zero, shared = _c(0, g), where(call("equal", x, y), g / 2, g)
        first = None if _is_number(x) else where(call(opposite, x, y), zero, shared)
        second = None if _is_number(y) else where(call(comparison, x, y), zero, shared)
        return first, second

    return vjp


def _clamp_vjp(within: str, beyond: str) -> Vjp:
    """Return the vjp of a bound on one side: an element at the bound gets all of the cotangent."""

    def vjp(node: Node, g: Node) -> Gradients:
        x, bound = node.inputs
        zero = _c(0, g)
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
    max_exponent = _c(_MAX_EXPONENT[wide.dtype.name], wide)
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
    is_zero = astype(call("equal", node, _c(0, node)), node.dtype)
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

UNARY = (
    _row("negative", "numeric", "(-{0})", lambda n, g: (-g,),
         bits=same_bits_always),
    _row("abs", "numeric", "abs({0})", _abs_vjp, kernel=absolute_kernel, result=real_dtype,
         bits=same_bits_always),
    _row("conj", "numeric", "{0}", lambda n, g: (conj(g),), torch="conj_physical", numpy=np.conj,
         bits=same_bits_always),
    _row("real", "any", "{0}", lambda n, g: (astype(g, _x(n).dtype),),
         kernel=part_kernel, result=real_dtype, bits=same_bits_always),
    _row("imag", "any", "0", _imag_vjp, kernel=part_kernel, result=real_dtype,
         bits=same_bits_always),
    _row("sign", "numeric",
         "({one} if {0} > 0 else -{one} if {0} < 0 else {0} if {0} != {0} else {one} - {one})",
         _sign_vjp, kernel=sign_kernel, flops=2,
         bits=same_bits_always),
    _row("square", "numeric", "({0} * {0})", _scaled(lambda n: _x(n) + _x(n)),
         kernel=square_kernel,
         bits=same_bits_always),
    _row("reciprocal", "floating", "({one} / {0})", _scaled(lambda n: -_square(n)),
         bits=same_bits_always),
    _row("relu", "real floating", "({one} - {one} if {0} <= 0 else {0})",
         lambda n, g: (call("where_positive", g, n),),
         numpy=lambda x: np.where(x <= 0, 0, x), kernel=relu_kernel, numpy_loop=False,
         bits=same_bits_always),
    _row("sqrt", "floating", "np.sqrt({0})",
         lambda n, g: (g / (n + n),), flops=4, kernel=root_kernel,
         bits=same_bits_of_full_floats),
    _row("root", "real floating", "np.sqrt({0})", _root_vjp, torch="sqrt", numpy=np.sqrt, flops=4,
         kernel=root_kernel, bits=same_bits_of_full_floats),
    _row("cbrt", "real floating", "np.cbrt({0})", lambda n, g: (g / (3 * _square(n)),),
         kernel=host_kernel, flops=20),
    _row("exp", "floating", "np.exp({0})", _scaled(lambda n: n), flops=10),
    _row("expm1", "floating", "np.expm1({0})", _scaled(lambda n: n + 1),
         numpy=expm1, kernel=exact_complex_kernel, flops=12),
    _row("log", "floating", "np.log({0})", lambda n, g: (g / _x(n),), flops=10),
    _row("log1p", "floating", "np.log1p({0})",
         lambda n, g: (g / (_x(n) + 1),),
         kernel=exact_complex_kernel, flops=12),
    _row("log2", "floating", "np.log2({0})",
         lambda n, g: (g / (_x(n) * _LN2),), flops=10),
    _row("log10", "floating", "np.log10({0})",
         lambda n, g: (g / (_x(n) * _LN10),), flops=10),
    _row("sin", "floating", "np.sin({0})", _scaled(lambda n: call("cos", _x(n))), flops=12),
    _row("cos", "floating", "np.cos({0})",
         _scaled(lambda n: -call("sin", _x(n))), flops=12),
    _row("tan", "floating", "np.tan({0})", _scaled(lambda n: _one_plus_square(n)), flops=16),
    _row("asin", "floating", "np.arcsin({0})",
         lambda n, g: (g / call("sqrt", _one_minus_square(_x(n))),),
         numpy=np.arcsin, flops=16),
    _row("acos", "floating", "np.arccos({0})",
         lambda n, g: (-(g / call("sqrt", _one_minus_square(_x(n)))),),
         numpy=np.arccos, kernel=exact_complex_kernel, flops=16),
    _row("atan", "floating", "np.arctan({0})",
         lambda n, g: (g / _one_plus_square(_x(n)),), numpy=np.arctan, flops=16),
    _row("sinh", "floating", "np.sinh({0})", _scaled(lambda n: call("cosh", _x(n))), flops=14),
    _row("cosh", "floating", "np.cosh({0})", _scaled(lambda n: call("sinh", _x(n))), flops=14),
    _row("tanh", "floating", "np.tanh({0})", _scaled(_one_minus_square), flops=14),
    _row("asinh", "floating", "np.arcsinh({0})",
         lambda n, g: (g / call("sqrt", _one_plus_square(_x(n))),),
         numpy=np.arcsinh, flops=16),
    _row("acosh", "floating", "np.arccosh({0})",
         lambda n, g: (g / call("sqrt", _square(_x(n)) - 1),),
         numpy=np.arccosh, flops=16),
    _row("atanh", "floating", "np.arctanh({0})",
         lambda n, g: (g / _one_minus_square(_x(n)),), numpy=np.arctanh, flops=16),
    _row("erf", "real floating", "np.erf({0})",
         _scaled(lambda n: call("exp", -_square(_x(n))) * _TWO_BY_SQRT_PI), numpy=erf_of, flops=20),
    _row("erfc", "real floating", "np.erfc({0})",
         _scaled(lambda n: call("exp", -_square(_x(n))) * -_TWO_BY_SQRT_PI), numpy=erfc_of,
         flops=30),
    _row("lgamma", "real floating", None, _scaled(lambda n: call("digamma", _x(n))),
         numpy=lgamma_of, kernel=wide_kernel, flops=40),
    _row("digamma", "real floating", None, _scaled(lambda n: call("zeta", _c(2, n), _x(n))),
         numpy=digamma_of, kernel=wide_kernel, flops=40),
    _row("floor", "real", "np.floor({0})", no_gradient,
         bits=same_bits_always),
    _row("ceil", "real", "np.ceil({0})", no_gradient,
         bits=same_bits_always),
    _row("round", "numeric", "np.rint({0})", no_gradient, numpy=np.round, kernel=round_kernel,
         bits=same_bits_always),
    _row("trunc", "real", "np.trunc({0})", no_gradient,
         bits=same_bits_always),
    _row("isnan", "numeric", "np.isnan({0})", no_gradient, result=bool_, kernel=flag_kernel,
         bits=same_bits_always),
    _row("isinf", "numeric", "np.isinf({0})", no_gradient, result=bool_, kernel=flag_kernel,
         bits=same_bits_always),
    _row("isfinite", "numeric", "np.isfinite({0})", no_gradient, result=bool_, kernel=flag_kernel,
         bits=same_bits_always),
    _row("signbit", "real floating", "np.signbit({0})", no_gradient, result=bool_,
         bits=same_bits_always),
    _row("logical_not", "bool", "(not {0})", no_gradient,
         bits=same_bits_always),
    _row("bitwise_invert", "integer or bool", "(~{0})", no_gradient,
         torch="bitwise_not", numpy=np.invert, bits=same_bits_always),
    _row("bitwise_count", "integer or bool", None, no_gradient, kernel=host_kernel, result=uint8,
         bits=same_bits_always),
)  # fmt: skip

BINARY = (
    _row("add", "numeric", "({0} + {1})", lambda n, g: (g, g), kernel=parts_kernel,
         bits=same_bits_always),
    _row("subtract", "numeric", "({0} - {1})", lambda n, g: (g, -g), kernel=parts_kernel,
         bits=same_bits_always),
    _row("multiply", "numeric", "({0} * {1})",
         lambda n, g: (g * n.inputs[1], g * n.inputs[0]),
         bits=same_bits_always),
    _row("divide", "floating", "({0} / {1})",
         lambda n, g: (g / n.inputs[1], -(g * n / n.inputs[1])),
         bits=same_bits_always),
    _row("floor_divide", "real", "({0} // {1})", no_gradient,
         kernel=quotient_kernel, flops=4),
    _row("remainder", "real",
         {"int": "np.mod({0}, {1})", "uint": "np.mod({0}, {1})",
          "float": "np.copysign(np.mod({0}, {1}), {1})"}, _remainder_vjp,
         kernel=remainder_kernel, flops=4),
    _row("fmod", "real", "np.fmod({0}, {1})", _fmod_vjp, kernel=remainder_kernel, flops=4),
    _row("power", "numeric",
         dict.fromkeys(("uint", "float", "complex"), "({0} ** {1})"), _power_vjp,
         torch="pow", numpy=np.power, kernel=power_kernel, flops=20, numpy_loop=False),
    _row("maximum", "ordered", "np.maximum({0}, {1})",
         _extremum_vjp("greater"), bits=same_bits_of_integers),
    _row("minimum", "ordered", "np.minimum({0}, {1})",
         _extremum_vjp("less"), bits=same_bits_of_integers),
    _row("clamp_min", "ordered", "np.maximum({0}, {1})", _clamp_vjp("greater_equal", "less"),
         torch="maximum", numpy=np.maximum, bits=same_bits_of_integers),
    _row("clamp_max", "ordered", "np.minimum({0}, {1})", _clamp_vjp("less_equal", "greater"),
         torch="minimum", numpy=np.minimum, bits=same_bits_of_integers),
    _row("where_positive", "real floating", "({one} - {one} if {1} <= 0 else {0})",
         lambda n, g: (call("where_positive", g, n.inputs[1]), None),
         numpy=lambda g, y: np.where(y <= 0, 0, g), kernel=where_positive_kernel, numpy_loop=False,
         bits=same_bits_always),
    _row("atan2", "real floating", "np.arctan2({0}, {1})", _atan2_vjp,
         numpy=np.arctan2, flops=20),
    _row("hypot", "real floating", "np.hypot({0}, {1})", _hypot_vjp, flops=6),
    _row("logaddexp", "real floating", "np.logaddexp({0}, {1})", _logaddexp_vjp, flops=20),
    _row("zeta", "real floating", None, _zeta_vjp, torch="special.zeta", numpy=zeta_of,
         kernel=wide_kernel, flops=60),
    _row("complex", "real floating", None,
         lambda n, g: (call("real", g), -call("imag", g)), numpy=complex_of,
         result=_complex_result),
    _row("copysign", "real floating", "np.copysign({0}, {1})",
         lambda n, g: (g * (call("sign", n) * call("sign", n.inputs[0])), None),
         bits=same_bits_always),
    _row("nextafter", "real floating", "np.nextafter({0}, {1})", no_gradient,
         kernel=nextafter_kernel),
    _row("equal", "any", "({0} == {1})", no_gradient, torch="eq", numpy=np.equal, result=bool_,
         bits=same_bits_always),
    _row("not_equal", "any", "({0} != {1})", no_gradient,
         torch="ne", numpy=np.not_equal, result=bool_, bits=same_bits_always),
    _row("less", "ordered", "({0} < {1})", no_gradient, result=bool_, bits=same_bits_always),
    _row("less_equal", "ordered", "({0} <= {1})", no_gradient, result=bool_, bits=same_bits_always),
    _row("greater", "ordered", "({0} > {1})", no_gradient, result=bool_, bits=same_bits_always),
    _row("greater_equal", "ordered", "({0} >= {1})", no_gradient, result=bool_,
         bits=same_bits_always),
    _row("logical_and", "bool", "({0} and {1})", no_gradient, bits=same_bits_always),
    _row("logical_or", "bool", "({0} or {1})", no_gradient, bits=same_bits_always),
    _row("logical_xor", "bool", "({0} != {1})", no_gradient, bits=same_bits_always),
    _row("bitwise_and", "integer or bool", "({0} & {1})", no_gradient, bits=same_bits_always),
    _row("bitwise_or", "integer or bool", "({0} | {1})", no_gradient, bits=same_bits_always),
    _row("bitwise_xor", "integer or bool", "({0} ^ {1})", no_gradient, bits=same_bits_always),
    _row("gcd", "integer", None, no_gradient, kernel=host_kernel, flops=60,
         bits=same_bits_always),
    _row("lcm", "integer", None, no_gradient, kernel=host_kernel, flops=60,
         bits=same_bits_always),
    _row("bitwise_left_shift", "integer", "({0} << {1})", no_gradient, numpy=np.left_shift,
         bits=same_bits_always),
    _row("bitwise_right_shift", "integer", "({0} >> {1})", no_gradient, numpy=np.right_shift,
         bits=same_bits_always),
)  # fmt: skip


def _where_infer(condition: Node, x: Node, y: Node) -> tuple[Shape, DType]:
    require_kind("where (condition)", "bool", condition.dtype)
    shape, dtype = pointwise_infer("where", "any")(x, y)
    return broadcast("where", condition.shape, shape), dtype


def _where_vjp(node: Node, g: Node) -> Gradients:
    condition, zero = node.inputs[0], _c(0, g)
    return None, where(condition, g, zero), where(condition, zero, g)


def _numpy_where(condition: Any, x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def _bind_where(call: KernelCall) -> Callable[[], object]:
    """Choose by words of bits if the arrays are large."""
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


def check_parts(operation: str, given: DType, dtype: DType) -> None:
    """Raise DTypeError if a conversion would lose imaginary parts."""
    if given.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise DTypeError(
            f"{operation}: {given} has an imaginary part, {dtype} has none; convert to complex64 "
            f"or complex128, or take the absolute value with mm.abs(x)"
        )


def _astype_infer(x: Node, *, dtype: DType) -> tuple[Shape, DType]:
    check_parts("astype", x.dtype, dtype)
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
    for operation in (*UNARY, *BINARY, WHERE, ASTYPE, STOP_GRADIENT, ARGUMENT)
}


def _build(name: str, *operands: Node | Number) -> Node:
    """Apply an operation to nodes and Python numbers.

    Numbers become constants of the first node's type.
    """
    (node, *_) = [x for x in operands if isinstance(x, Node)]
    inputs = tuple([x if isinstance(x, Node) else constant(x, node.dtype) for x in operands])
    return applied(OPERATIONS[name], inputs, node.line)


define(_build)  # Python's operators on nodes
