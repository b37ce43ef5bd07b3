"""The gradients of the element-wise operations.

A cotangent may have the broadcast shape: `autodiff` sums it back to the operand's shape. Complex
cotangents follow one convention: a change dz of z changes the result by Re(g·dz).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from magmath.core.dtypes import compute_dtype
from magmath.graph import Node
from magmath.graph.operation import Gradients, Vjp
from magmath.ops.elementwise.node_functions import astype, call, conj, real, where
from magmath.ops.leaves import constant, is_known_number

_MAX_EXPONENT = {"float32": 80.0, "float64": 700.0}
"""Numbers whose exponential is finite in a type."""


def unary_vjp(cotangent: Callable[[Node, Node, Node], Node]) -> Vjp:
    """Return the vjp of y = f(x), given the function from g, x and y to the cotangent of x."""
    return lambda node, g: (cotangent(g, node.inputs[0], node),)


def binary_vjp(cotangents: Callable[[Node, Node, Node, Node], Gradients]) -> Vjp:
    """Return the vjp of y = f(x1, x2), given the function from g, x1, x2 and y to the cotangents of
    x1 and x2, of which one may be None."""

    def vjp(node: Node, g: Node) -> Gradients:
        x1, x2 = node.inputs
        return cotangents(g, x1, x2, node)

    return vjp


def constant_like(value: complex, node: Node) -> Node:
    """Return a constant of the type of a node."""
    return constant(value, node.dtype)


def square(x: Node) -> Node:
    """Return x·x, as a product."""
    return x * x


def _nonzero(x: Node) -> Node:
    """Return x with 1 for 0, as a divisor of numbers that are 0 there."""
    return where(call("equal", x, constant_like(0, x)), constant_like(1, x), x)


# of one operand -----------------------------------------------------------------------------------


def abs_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangent in the direction of x."""
    direction = call("sign", node.inputs[0])
    return (astype(g, direction.dtype) * conj(direction),)


def imag_vjp(node: Node, g: Node) -> Gradients:
    """Return an imaginary cotangent for complex operands, otherwise none."""
    (x,) = node.inputs
    return (astype(g, x.dtype) * -1j,) if x.dtype.kind == "complex" else (None,)


def sign_vjp(node: Node, g: Node) -> Gradients:
    """Return no cotangent for real types; z / |z| depends on the part of dz perpendicular to z."""
    if node.dtype.kind != "complex":
        return (None,)
    (x,), zero = node.inputs, constant_like(0, g)
    along = astype(real(g * node), g.dtype) * conj(node)
    length = astype(call("abs", x), g.dtype)
    return (where(call("equal", x, zero), zero, (g - along) / length),)


def acosh_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangent g / √(x² - 1); of complex numbers the root on the branch of acosh is the
    product of two roots."""
    (x,) = node.inputs
    below, above = x - 1, x + 1
    if x.dtype.kind == "complex":
        return (g / (call("sqrt", below) * call("sqrt", above)),)
    return (g / call("sqrt", below * above),)


def root_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangent of a root, 0 at 0: that of norms and deviations, which have no slope
    there, is 0 as in PyTorch."""
    is_zero = astype(call("equal", node, constant_like(0, node)), node.dtype)
    return (call("where_positive", g, node) / (node + node + is_zero),)


# of two operands ----------------------------------------------------------------------------------


def power_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangents of x**y; a known number y has none."""
    x, y = node.inputs
    one, zero, zero_exponent = constant_like(1, x), constant_like(0, x), constant_like(0, y)
    is_one = call("equal", y, zero_exponent)  # also at x = 0
    if not is_known_number(y):  # the slope 0 has the derivative 1 / x by y, where this is finite
        is_finite = call("isfinite", 1 / x)
        is_one = call("logical_and", is_one, call("logical_not", is_finite))
    exponent = where(is_one, zero_exponent, y - 1)
    by_x = g * (y * x**exponent)
    if is_known_number(y):
        return by_x, None
    # d/dy is 0 at x = 0 for y >= 0, as in PyTorch, not 0 · log(0)
    real_y = real(y)
    is_constant = call("greater_equal", real_y, constant_like(0, real_y))
    safe = where(call("logical_and", call("equal", x, zero), is_constant), one, x)
    return by_x, g * (node * call("log", safe))


def extremum_vjp(comparison: str) -> Vjp:
    """Return the vjp of an extremum: at ties each operand gets half of the cotangent.

    The maximum with a `constant` 0, which only `relu` makes, has gradient 0 at 0; it reads the
    result, which later layers need anyway. A user's 0 is a `scalar`: the gradient there is 1/2.
    """
    opposite = "less" if comparison == "greater" else "greater"

    def vjp(node: Node, g: Node) -> Gradients:
        x, y = node.inputs
        is_relu = comparison == "greater" and y.name == "constant" and y.attributes["value"] == 0
        if is_relu and x.shape == node.shape and x.dtype.kind == "float":
            return call("where_positive", g, node), None
        zero, shared = constant_like(0, g), where(call("equal", x, y), g / 2, g)
        first = None if is_known_number(x) else where(call(opposite, x, y), zero, shared)
        second = None if is_known_number(y) else where(call(comparison, x, y), zero, shared)
        return first, second

    return vjp


def clamp_vjp(within: str, beyond: str) -> Vjp:
    """Return the vjp of a bound on one side: an element at the bound gets all of the cotangent."""

    def vjp(node: Node, g: Node) -> Gradients:
        x, bound = node.inputs
        zero = constant_like(0, g)
        first = None if is_known_number(x) else where(call(within, x, bound), g, zero)
        return first, None if is_known_number(bound) else where(call(beyond, x, bound), g, zero)

    return vjp


def atan2_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangents of the angle of (x, y), 0 at the origin."""
    y, x = node.inputs
    length = _nonzero(call("hypot", x, y))  # whose square may overflow
    scale = g / length
    return scale * (x / length), -(scale * (y / length))


def hypot_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangents of √(x² + y²), 0 at the origin."""
    x, y = node.inputs
    length = _nonzero(node)  # g / length may be too small for a half type, x / length is not
    return g * (x / length), g * (y / length)


def logaddexp_vjp(node: Node, g: Node) -> Gradients:
    """Return the cotangents by logistic functions of x - y and y - x.

    They do not read the result, so a gradient alone computes no logarithm. The difference of equal
    infinities is 0: the logarithm of 0 + 0 has gradients, which are multiplied by 0 later.
    """
    x, y = [_finite(source) for source in node.inputs]
    difference = x - y
    return g * astype(_logistic(difference), g.dtype), g * astype(_logistic(-difference), g.dtype)


def _finite(x: Node) -> Node:
    """Return x, in the type that computes with its type, with the largest number for infinity."""
    wide = astype(x, compute_dtype(x.dtype))
    limit = float(np.finfo(wide.dtype.name).max)
    above = call("clamp_min", wide, constant_like(-limit, wide))
    return call("clamp_max", above, constant_like(limit, wide))


def _logistic(x: Node) -> Node:
    """Return 1 / (1 + exp(-x)), in float32 or float64. The exponential is finite, so that all
    derivatives are."""
    max_exponent = constant_like(_MAX_EXPONENT[x.dtype.name], x)
    return 1 / (1 + call("exp", call("minimum", -x, max_exponent)))
