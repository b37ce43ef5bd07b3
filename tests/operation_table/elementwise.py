"""Element-wise operations."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES
from operation_table.draws import (
    ANY,
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMERIC,
    REAL,
    REAL_FLOATS,
    Case,
    Draw,
    Draws,
    Row,
)


def _pointwise(*domains: str) -> Draw:
    def draw(draws: Draws) -> Case:
        shape = draws.shape()
        shapes = [draws.stretched(shape) for _ in domains] if len(domains) > 1 else [shape]
        operands = [draws.numbers(s, domain) for s, domain in zip(shapes, domains, strict=True)]
        return Case(tuple(operands), {})

    return draw


def _quotient(draws: Draws) -> Case:
    """Integers are also divided by 0, which gives 0."""
    return _pointwise("any", "any" if draws.dtype.is_integer and not draws.smooth else "nonzero")(
        draws
    )


def _where(draws: Draws) -> Case:
    shape = draws.shape()
    condition = torch.from_numpy(
        np.asarray(draws.random.integers(0, 2, draws.stretched(shape)) > 0)
    )
    operands = (draws.numbers(draws.stretched(shape)), draws.numbers(draws.stretched(shape)))
    return Case((condition, *operands), {})


def _astype(draws: Draws) -> Case:
    targets = ["float64"] if draws.smooth else list(DTYPES)
    if draws.dtype.kind == "complex":
        targets = ["bool", *COMPLEX]
    dtype = DTYPES[draws.draw(st.sampled_from(targets))]
    return Case((draws.numbers(draws.shape(), "exponent"),), {"dtype": dtype})


def _unary(dtypes: tuple[str, ...], domain: str = "any", slope: bool = True) -> Row:
    return Row(_pointwise(domain), dtypes, (0,) if slope else ())


def _binary(
    dtypes: tuple[str, ...],
    domains: tuple[str, str] = ("any", "any"),
    slopes: tuple[int, ...] = (0, 1),
) -> Row:
    return Row(_pointwise(*domains), dtypes, slopes)


ROWS: dict[str, Row] = {
    "negative": _unary(NUMERIC),
    "abs": _unary(NUMERIC),
    "conj": _unary(NUMERIC),
    "real": _unary(ANY),
    "imag": _unary(ANY),
    "sign": _unary(NUMERIC, slope=False),
    "signbit": _unary(REAL_FLOATS, slope=False),
    "square": _unary(NUMERIC),
    "reciprocal": _unary(FLOATS, "nonzero"),
    "relu": _unary(REAL_FLOATS),
    "sqrt": _unary(FLOATS, "positive"),
    "root": _unary(REAL_FLOATS, "positive"),
    "cbrt": _unary(REAL_FLOATS, "nonzero"),
    "exp": _unary(FLOATS),
    "expm1": _unary(FLOATS),
    "log": _unary(FLOATS, "positive"),
    "log1p": _unary(FLOATS, "positive"),
    "log2": _unary(FLOATS, "positive"),
    "log10": _unary(FLOATS, "positive"),
    "sin": _unary(FLOATS),
    "cos": _unary(FLOATS),
    "tan": _unary(FLOATS, "unit"),
    "asin": _unary(FLOATS, "unit"),
    "acos": _unary(FLOATS, "unit"),
    "atan": _unary(FLOATS),
    "sinh": _unary(FLOATS),
    "cosh": _unary(FLOATS),
    "tanh": _unary(FLOATS),
    "sigmoid": _unary(REAL_FLOATS),
    "erf": _unary(REAL_FLOATS),
    "erfc": _unary(REAL_FLOATS),
    "lgamma": _unary(REAL_FLOATS, "positive"),
    "digamma": _unary(REAL_FLOATS, "positive"),
    "asinh": _unary(FLOATS),
    "acosh": _unary(FLOATS, "above one"),
    "atanh": _unary(FLOATS, "unit"),
    "floor": _unary(REAL, slope=False),
    "ceil": _unary(REAL, slope=False),
    "round": _unary(NUMERIC, slope=False),
    "trunc": _unary(REAL, slope=False),
    "isnan": _unary(NUMERIC, slope=False),
    "isinf": _unary(NUMERIC, slope=False),
    "isfinite": _unary(NUMERIC, slope=False),
    "logical_not": _unary(BOOL, slope=False),
    "bitwise_invert": _unary((*BOOL, *INTEGERS), slope=False),
    "bitwise_count": _unary((*BOOL, *INTEGERS), slope=False),
    "add": _binary(NUMERIC),
    "subtract": _binary(NUMERIC),
    "multiply": _binary(NUMERIC),
    "divide": _binary(FLOATS, ("any", "nonzero")),
    "floor_divide": Row(_quotient, REAL, ()),
    "remainder": Row(_quotient, REAL, (0, 1)),
    "fmod": Row(_quotient, REAL, (0, 1)),
    "power": _binary(NUMERIC, ("positive", "exponent")),
    "complex": _binary(("float32", "float64"), slopes=()),
    "zeta": _binary(REAL_FLOATS, ("above one", "positive"), (1,)),
    "maximum": _binary((*BOOL, *REAL)),
    "minimum": _binary((*BOOL, *REAL)),
    "clamp_min": _binary((*BOOL, *REAL)),
    "clamp_max": _binary((*BOOL, *REAL)),
    "atan2": _binary(REAL_FLOATS),
    "hypot": _binary(REAL_FLOATS, ("nonzero", "nonzero")),
    "logaddexp": _binary(REAL_FLOATS),
    "where_positive": _binary(REAL_FLOATS, slopes=(0,)),
    "copysign": _binary(REAL_FLOATS, slopes=(0,)),
    "nextafter": _binary(REAL_FLOATS, slopes=()),
    "equal": _binary(ANY, ("count", "count"), ()),
    "not_equal": _binary(ANY, ("count", "count"), ()),
    "less": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "less_equal": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "greater": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "greater_equal": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "logical_and": _binary(BOOL, slopes=()),
    "logical_or": _binary(BOOL, slopes=()),
    "logical_xor": _binary(BOOL, slopes=()),
    "bitwise_and": _binary((*BOOL, *INTEGERS), slopes=()),
    "bitwise_or": _binary((*BOOL, *INTEGERS), slopes=()),
    "bitwise_xor": _binary((*BOOL, *INTEGERS), slopes=()),
    "gcd": _binary(INTEGERS, slopes=()),
    "lcm": _binary(INTEGERS, slopes=()),
    "bitwise_left_shift": _binary(INTEGERS, ("any", "exponent"), ()),
    "bitwise_right_shift": _binary(INTEGERS, ("any", "exponent"), ()),
    "where": Row(_where, ANY, (1, 2)),
    "astype": Row(_astype, ANY, (0,)),
    "stop_gradient": _unary(ANY, slope=False),
    "argument": _unary(ANY),
}
