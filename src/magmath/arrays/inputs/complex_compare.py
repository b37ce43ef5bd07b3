"""Comparisons of complex numbers, which NumPy orders by real part, then by imaginary part.

They are composed of comparisons of the parts. One with nan is false, and `maximum` and `minimum`
return the first operand that contains nan.
"""

from __future__ import annotations

from collections.abc import Callable

from magmath.graph import Node

COMPARED = {"less": "less", "less_equal": "less", "greater": "greater", "greater_equal": "greater"}
"""The comparisons, and that of the real parts, which decides unless these are equal."""
CHOSEN = {
    "maximum": "greater_equal",
    "clamp_min": "greater_equal",
    "minimum": "less_equal",
    "clamp_max": "less_equal",
}
"""The choices of an operand, and the comparison for which it is the first one."""
ORDERED = COMPARED.keys() | CHOSEN.keys()


def compared(call: Callable[..., Node], operation: str, x: Node, y: Node) -> Node:
    """Return an operation of `ORDERED` on complex numbers; `call` applies element-wise operations
    by their names."""
    if operation in CHOSEN:
        first = call("logical_or", call("isnan", x), compared(call, CHOSEN[operation], x, y))
        return call("where", first, x, y)
    (real, imag), (other_real, other_imag) = ((call("real", z), call("imag", z)) for z in (x, y))
    is_nan = call("logical_or", call("isnan", imag), call("isnan", other_imag))
    apart = call(
        "logical_and", call(COMPARED[operation], real, other_real), call("logical_not", is_nan)
    )
    tied = call("logical_and", call("equal", real, other_real), call(operation, imag, other_imag))
    return call("logical_or", apart, tied)
