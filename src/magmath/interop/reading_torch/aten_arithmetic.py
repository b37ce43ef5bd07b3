"""PyTorch's operators (ATen) of elements, and products."""

from __future__ import annotations

import operator
from typing import Any

import magmath as mm
from magmath.interop.reading_torch.aten_types import (
    Operator,
    as_floats,
    binary,
    is_exact,
    of_floats,
    promoted,
)
from magmath.interop.truncated_division import truncated_division
from magmath.nn import functional as f


def _add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return x + (y if alpha == 1 else alpha * y)


def _subtract(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return x - (y if alpha == 1 else alpha * y)


def _divide(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        x, y = as_floats(x, y)
        return x / y
    x, y = promoted(x, y)
    if rounding_mode == "floor":
        return mm.floor_divide(x, y)
    are_integers = all(v.dtype.is_integer for v in (x, y) if isinstance(v, mm.Array))
    return truncated_division(x, y) if are_integers else mm.trunc(x / y)


def _sign(x: mm.Array) -> mm.Array:
    """Return signs; PyTorch's of nan is 0, and that of a truth value the value."""
    if x.dtype == mm.bool:
        return x
    return mm.sign(x) if is_exact(x) else mm.where(mm.isnan(x), 0.0, mm.sign(x))


def _clamp(x: mm.Array, low: Any = None, high: Any = None) -> mm.Array:
    """Return x limited by numbers or arrays; the gradient of elements at a limit is 1."""
    if low is not None:
        x, low = promoted(x, low)
        x = mm.clip(x, min=low)
    if high is not None:
        x, high = promoted(x, high)
        x = mm.clip(x, max=high)
    return x


def _where(condition: mm.Array, x: Any, y: Any) -> mm.Array:
    x, y = promoted(x, y)
    return mm.where(condition, x, y)


def _masked_fill(x: mm.Array, mask: mm.Array, value: Any) -> mm.Array:
    if isinstance(value, mm.Array):
        value = mm.astype(value, x.dtype, copy=False)
    return mm.where(mask, value, x)


def _xlogy(x: Any, y: Any) -> Any:
    """Return x · log(y), which is 0 for x = 0 unless y is nan."""
    x, y = as_floats(x, y)
    return x * mm.log(mm.where((x == 0) & ((y <= 0) | (y == mm.inf)), 1.0, y))


def _linear(x: mm.Array, weight: mm.Array, bias: mm.Array | None = None) -> mm.Array:
    return f.linear(x, mm.matrix_transpose(weight), bias)


def _addmm(c: mm.Array, a: mm.Array, b: mm.Array, *, beta: Any = 1, alpha: Any = 1) -> mm.Array:
    product = a @ b if alpha == 1 else alpha * (a @ b)
    return product + (c if beta == 1 else beta * c)


def _addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return x + (a * b if value == 1 else value * a * b)


def _addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return x + (a / b if value == 1 else value * (a / b))


ARITHMETIC: dict[str, Operator] = {
    "add": _add,
    "sub": _subtract,
    "rsub": lambda x, y, alpha=1: _subtract(y, x, alpha=alpha),
    "mul": binary(operator.mul),
    "div": _divide,
    "true_divide": _divide,
    "floor_divide": binary(mm.floor_divide),
    "remainder": binary(mm.remainder),
    "fmod": binary(mm.fmod),
    "pow": binary(operator.pow),
    "maximum": binary(mm.maximum),
    "minimum": binary(mm.minimum),
    "fmax": binary(mm.fmax),
    "fmin": binary(mm.fmin),
    "atan2": lambda x, y: mm.atan2(*as_floats(x, y)),
    "hypot": binary(mm.hypot),
    "copysign": lambda x, y: mm.copysign(*as_floats(x, y)),
    "xlogy": _xlogy,
    "neg": operator.neg,
    "abs": mm.abs,
    "sign": _sign,
    "square": lambda x: mm.square(mm.astype(x, mm.int64) if x.dtype == mm.bool else x),
    "reciprocal": of_floats(lambda x: 1.0 / x),
    "rsqrt": of_floats(lambda x: 1.0 / mm.sqrt(x)),
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": lambda x, y, weight: x + weight * (y - x),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda x, low: _clamp(x, low),
    "clamp_max": lambda x, high: _clamp(x, None, high),
    **{
        name: of_floats(getattr(mm, name))
        for name in (
            "exp",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "asin",
            "acos",
            "atan",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "exp2",
            "lgamma",
            "digamma",
            "i0",
        )
    },
    **{
        name: getattr(mm, name)
        for name in (
            "floor",
            "ceil",
            "round",
            "trunc",
            "isnan",
            "isinf",
            "isfinite",
            "isposinf",
            "isneginf",
            "signbit",
            "logical_not",
        )
    },
    # comparisons
    "eq": binary(operator.eq),
    "ne": binary(operator.ne),
    "lt": binary(operator.lt),
    "le": binary(operator.le),
    "gt": binary(operator.gt),
    "ge": binary(operator.ge),
    "logical_and": mm.logical_and,
    "logical_or": mm.logical_or,
    "logical_xor": mm.logical_xor,
    "bitwise_and": binary(operator.and_),
    "bitwise_or": binary(operator.or_),
    "bitwise_xor": binary(operator.xor),
    "bitwise_not": operator.invert,
    "bitwise_left_shift": binary(operator.lshift),
    "bitwise_right_shift": binary(operator.rshift),
    "__lshift__": binary(operator.lshift),
    "__rshift__": binary(operator.rshift),
    "where": _where,
    "masked_fill": _masked_fill,
    # products
    "mm": operator.matmul,
    "bmm": operator.matmul,
    "mv": operator.matmul,
    "dot": operator.matmul,
    "matmul": operator.matmul,
    "outer": binary(mm.outer),
    "addmm": _addmm,
    "addmv": _addmm,
    "baddbmm": _addmm,
    "linear": _linear,
    "einsum": lambda text, operands, path=None: mm.einsum(text, *operands),
}
