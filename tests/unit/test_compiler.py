"""The compiler of native programs: its results equal NumPy's, and its calls have the right
arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st

from magmath.codegen.compiler import ExternalSignatures, compile_source
from magmath.codegen.object_loader import LoadedObject

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
SPECIAL = {
    "float": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 7.0, 1e30, -1e-30, np.inf, -np.inf, np.nan],
    "int": [0, 1, -1, 2, -2, 3, 7, -7, 100, "least", "most"],
}


def run(source: str, *arguments: Any, external: ExternalSignatures | None = None) -> int:
    """Compile a source and call its last function on arrays and numbers."""
    loaded = LoadedObject(compile_source(source, external or {}))
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    table = np.array(words, dtype=np.int64)
    return loaded.enter(table.ctypes.data)


def mapped(expression: str, dtype: str, result: str, *operands: np.ndarray) -> np.ndarray:
    """An expression of x and y for every element."""
    out = np.empty(operands[0].shape, result)
    names = ["x", "y"][: len(operands)]
    arguments = ", ".join(f"a_{name}: {dtype}[1]" for name in names)
    lines = "".join(f"        {name} = a_{name}[i]\n" for name in names)
    run(
        f"def run({arguments}, out: {result}[1]) -> int64:\n"
        f"    for i in range({out.size}):\n{lines}        out[i] = {expression}\n"
        "    return 0\n",
        *operands,
        out,
    )
    return out


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of interesting numbers of a type."""
    kind = "float" if dtype in FLOATS else "int"
    values = SPECIAL[kind]
    if kind == "int":
        limits = np.iinfo(dtype)
        named = {"least": limits.min, "most": limits.max}
        values = sorted({int(named.get(v, v)) for v in values})
        values = [v for v in values if limits.min <= v <= limits.max]
    x, y = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return x.reshape(-1).copy(), y.reshape(-1).copy()


BINARY = {
    "x + y": np.add,
    "x - y": np.subtract,
    "x * y": np.multiply,
    "x // y": np.floor_divide,
    "np.mod(x, y)": np.mod,
    "np.maximum(x, y)": np.maximum,
    "np.minimum(x, y)": np.minimum,
    "x % y": np.mod,
}
COMPARED = {
    "x < y": np.less,
    "x <= y": np.less_equal,
    "x > y": np.greater,
    "x >= y": np.greater_equal,
    "x == y": np.equal,
    "x != y": np.not_equal,
}
BITWISE = {
    "x & y": np.bitwise_and,
    "x | y": np.bitwise_or,
    "x ^ y": np.bitwise_xor,
    "x << y": np.left_shift,
    "x >> y": np.right_shift,
}
FUNCTIONS = {
    "sqrt": np.sqrt, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "arcsinh": np.arcsinh, "arccosh": np.arccosh,
    "arctanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "abs": np.abs, "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("expression", list(BINARY))
def test_arithmetic_is_numpys(expression: str, dtype: str) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        expected = BINARY[expression](x, y)
    actual = mapped(expression, dtype, dtype, x, y)
    if "//" in expression and dtype in FLOATS:  # quotients past a type's digits are rounded
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(actual, expected)
    if dtype in FLOATS and "imum" not in expression:  # NumPy chooses either zero
        assert_signs_of_zeros(actual, expected)


def assert_signs_of_zeros(actual: np.ndarray, expected: np.ndarray, name: str = "") -> None:
    zeros = (actual == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(actual[zeros]), np.signbit(expected[zeros]), name)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_comparisons_are_numpys(dtype: str) -> None:
    x, y = pairs(dtype)
    for expression, function in COMPARED.items():
        np.testing.assert_array_equal(mapped(expression, dtype, "bool", x, y), function(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_are_numpys(dtype: str) -> None:
    x, y = pairs(dtype)
    for expression, function in BITWISE.items():
        inside = (y >= 0) if "<<" in expression or ">>" in expression else y == y
        result = mapped(expression, dtype, dtype, x[inside], y[inside])
        np.testing.assert_array_equal(result, function(x[inside], y[inside]), expression)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers_wrap_around(dtype: str) -> None:
    x, y = pairs(dtype)
    x, y = x[y >= 0], y[y >= 0]
    np.testing.assert_array_equal(mapped("x ** y", dtype, dtype, x, y), np.power(x, y))


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_are_numpys(dtype: str) -> None:
    x = np.concatenate([np.linspace(-4, 4, 101), SPECIAL["float"]]).astype(dtype)
    limit = 3e-6 if dtype == "float32" else 1e-13
    for name, function in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            expected = function(x)
        actual = mapped(f"np.{name}(x)", dtype, dtype, x)
        np.testing.assert_allclose(actual, expected, rtol=limit, atol=limit, err_msg=name)
        assert_signs_of_zeros(actual, expected, name)
    x, y = pairs(dtype)
    binary = (np.copysign, np.nextafter, np.hypot, np.arctan2, np.logaddexp, np.power)
    for function in binary:
        with np.errstate(all="ignore"):
            expected = function(x, y)
        actual = mapped(f"np.{function.__name__}(x, y)", dtype, dtype, x, y)
        np.testing.assert_allclose(actual, expected, rtol=limit, err_msg=function.__name__)
    for function in (np.isnan, np.isinf, np.isfinite, np.signbit):
        actual = mapped(f"np.{function.__name__}(x)", dtype, "bool", x)
        np.testing.assert_array_equal(actual, function(x), function.__name__)


@pytest.mark.parametrize("dtype", FLOATS)
def test_own_functions_are_exact_to_two_units(dtype: str) -> None:
    most = np.log(np.finfo(dtype).max)
    least = np.log(np.finfo(dtype).smallest_subnormal) - 1
    x = np.concatenate(
        [np.linspace(least, most, 20_001), np.linspace(-1, 1, 20_001), [most * 1.01, -1e4]]
    ).astype(dtype)
    wide = x.astype(np.longdouble)
    for name, function in (("exp", np.exp), ("tanh", np.tanh)):
        with np.errstate(all="ignore"):
            expected = function(wide).astype(dtype)
        actual = mapped(f"np.{name}(x)", dtype, dtype, x)
        np.testing.assert_array_max_ulp(actual, expected, 2)
        zeros = mapped(f"np.{name}(x)", dtype, dtype, np.array([0.0, -0.0], dtype))
        np.testing.assert_array_equal(np.signbit(zeros), np.signbit(function([0.0, -0.0])))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_error_function_is_exact_to_three_units(dtype: str) -> None:
    ends = [1e-30, 1, 2, 4, 6, 7, 1e20, np.inf, 0]
    x = np.concatenate([np.linspace(-7, 7, 40_001), ends, np.negative(ends)]).astype(dtype)
    actual = mapped("np.erf(x)", dtype, dtype, x)
    expected = scipy.special.erf(x.astype("float64")).astype(dtype)
    np.testing.assert_array_max_ulp(actual, expected, 3)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(x))


@pytest.mark.parametrize("old", ["bool", *INTEGERS, *FLOATS])
@pytest.mark.parametrize("new", ["bool", *INTEGERS, *FLOATS])
def test_conversions_are_numpys(old: str, new: str) -> None:
    x = np.array([0, 1, 2, 3, 100, 127]).astype(old)
    if old in FLOATS or old.startswith("int"):
        x = np.concatenate([x, np.array([-1, -100]).astype(old)])
    np.testing.assert_array_equal(mapped(f"np.{new}(x)", old, new, x), x.astype(new))


def expressions(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["x", "y", "np.float64(0.5)", "2"])
    if depth == 0:
        return leaf
    inner = expressions(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda e: f"abs({e})"),
        inner.map(lambda e: f"(-{e})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else {t[1]})"),
        st.tuples(inner, inner).map(
            lambda t: f"(np.float64(1) if {t[0]} < 1 and not {t[1]} > 0 or {t[0]} == 2 else {t[1]})"
        ),
    )


@given(expressions(3))
def test_any_expression_is_what_python_makes_of_it(expression: str) -> None:
    x = np.array([0.25, -1.5, 2.0, 3.0])
    y = np.array([-0.75, 2.0, 0.5, 1.0])
    actual = mapped(f"np.float64({expression})", "float64", "float64", x, y)
    expected = [eval(expression, {"x": a, "y": b, "np": np}) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_statements() -> None:
    result = np.zeros(6, np.int64)
    run(
        """
def run(out: int64[1], n: int64) -> int64:
    for i in range(2, n, 3):
        out[0] += i
    k = 1
    while k < 100:
        k *= 3
        if k == 27:
            out[1] = k
        elif k > 27:
            out[2] = k
        else:
            out[3] += 1
            pass
    for i in range(3):
        if i == 2:
            out[4] = i
            return 7
    out[5] = 1
    return 0
""",
        result,
        12,
    )
    np.testing.assert_array_equal(result, [2 + 5 + 8 + 11, 27, 243, 2, 2, 0])


def test_memory_has_strides() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    out = np.zeros((4, 3), bool)
    run(
        """
def turn(x: float32[4, 1], out: bool[1, 3]):
    for i in range(3):
        for j in range(4):
            out[i, j] = x[i, j] > 5

def run(x: float32[4, 1], out: bool[1, 3]) -> int64:
    turn(x, out)
    return 0
""",
        x,
        out,
    )
    np.testing.assert_array_equal(out, x.T > 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_widened_and_rounded_to_even(dtype: torch.dtype) -> None:
    x = torch.cat(
        [torch.randn(300) * 100, torch.tensor([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-6])]
    )
    x, name = x.to(dtype), str(dtype).removeprefix("torch.")
    out = torch.empty_like(x)
    run(
        f"""
def run(at: int64, out: {name}[1], count: int64) -> int64:
    x: {name}[1] = at
    kept: float32[1] = stack(4096)
    for i in range(count):
        kept[i] = x[i] * np.float32(1.01)
    for i in range(count):
        out[i] = kept[i]
    return 0
""",
        x.data_ptr(),
        out.data_ptr(),
        len(x),
    )
    torch.testing.assert_close(out, (x.float() * 1.01).to(dtype), rtol=0, atol=0, equal_nan=True)


def test_functions_outside_are_called_by_symbol() -> None:
    seen: list[Sequence[float]] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_double)
    note = kind(lambda a, b: seen.append((a, b)) or len(seen))
    llvm.add_symbol("test_note", ctypes.cast(note, ctypes.c_void_p).value)
    source = """
from somewhere import note

def run(n: int64) -> int64:
    last = 0
    for i in range(n):
        last = note(i, i * 0.5)
    return last
"""
    external = {"note": ("test_note", ("int64", "float64"), "int64")}
    assert run(source, 3, external=external) == 3
    assert seen == [(0, 0.0), (1, 0.5), (2, 1.0)]


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "x = [1]",
        "x = y = 1",
        "x = np.i0(2.0)",
        "x = {}",
        "for i in range(3, 0, -1): x = i",
        "x = np.int8(3) + 300",
        "x = np.uint32(4294967296)",
        "x = np.uint8(-129)",
    ],
)
def test_python_outside_of_the_compiled_language_is_an_error(line: str) -> None:
    with pytest.raises(SyntaxError, match="language|not"):
        compile_source(f"def run() -> int64:\n    {line}\n    return 0\n", {})
