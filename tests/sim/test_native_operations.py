"""The native form of every operation computes the same as its kernel.

All operations on one element type form one program, so that each type is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current, start
from executors import NativeWherePossible, only, use_native_code
from magmath.core.dtypes import DTYPES
from magmath.engine.engine import Engine
from magmath.graph import Graph
from magmath.ops import OPERATIONS
from native_cases import OneShape, structured
from operation_bodies import applied, check_close, check_signs, reference, values
from operation_table import ROWS, Case

TYPES = ("bool", "int64", "uint8", "float32", "float64")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    pool = start("inline", 1)
    yield Engine(pool)
    pool.close()


def cases_of(dtype: str) -> list[tuple[str, Case]]:
    """Cases of all operations that have a native form for the type."""
    draws = OneShape(lambda _: None, DTYPES[dtype], np.random.default_rng(7))  # type: ignore[arg-type, return-value]
    result = [(name, case) for name, case in structured(draws) if dtype in ROWS[name].dtypes]
    if dtype != "float32":  # the only type that is drawn natively
        result = [(name, case) for name, case in result if name != "random_uniform"]
    if dtype in ("int64", "float32", "float64"):  # numbers below 0 are no uint8
        result = [
            (n, c) for n, c in result if n != "astype" or c.attributes["dtype"].name != "uint8"
        ]
    for name, row in ROWS.items():
        operation = OPERATIONS[name]
        native = operation.native
        if isinstance(native, dict) and DTYPES[dtype].kind not in native:
            continue  # integers to integer powers, which data can make fail
        if native is None:  # the gamma functions
            continue
        if operation.is_elementwise and name != "astype" and dtype in row.dtypes:
            result.append((name, row.draw(draws)))
    return result


def run_natively(engine: Engine, cases: list[tuple[str, Case]]) -> list[torch.Tensor]:
    """The values of the operations, computed twice over by one native function."""
    nodes = tuple(applied(engine, name, case) for name, case in cases)
    graph = engine.pending_graph(Graph(nodes))
    outputs, _ = engine.runs.run(engine.compile(graph), graph.leaves, steps=2)
    return [engine.pool.get(data.array_id) for data in outputs]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.timeout(300)  # the compiler's time
def test_native_form_agrees_with_the_kernel(
    dtype: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = cases_of(dtype)
    expected = values(engine, *[applied(engine, name, case) for name, case in cases])
    chooser = only(0)
    use_native_code(monkeypatch, chooser)
    actual = run_natively(engine, cases)
    assert chooser.used == ["native"]
    for (name, case), result, known in zip(cases, actual, expected, strict=True):
        check_close(result, known, (name, case))


SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, -2.5, 3.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.timeout(300)
def test_special_numbers_are_treated_alike(
    dtype: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[str, Case]] = []
    numbers = np.array(SPECIAL, dtype)
    axes = np.meshgrid(*[numbers] * 4, indexing="ij")
    grid = [torch.from_numpy(axis.copy()) for axis in axes]
    draws = OneShape(lambda _: None, DTYPES[dtype], np.random.default_rng(7))  # type: ignore[arg-type, return-value]
    for name, row in ROWS.items():
        if OPERATIONS[name].native is None:
            continue
        if OPERATIONS[name].is_elementwise and dtype in row.dtypes and name != "astype":
            count = len(row.draw(draws).operands)
            condition = (grid[0] > 0,) if name == "where" else ()
            cases.append((name, Case((*condition, *grid[: count - len(condition)]), {})))
    for name in ("sum", "prod", "max", "min"):
        cases.append((name, Case((grid[0],), {"axis": (1,), "keepdims": False})))
    use_native_code(monkeypatch, only(0))
    actual = run_natively(engine, cases)
    for (name, case), result in zip(cases, actual, strict=True):
        known = reference(name, case)
        check_close(result, known, (name, case))
        if OPERATIONS[name].is_elementwise:
            check_signs(result, known, (name, case))


@pytest.mark.parametrize("name", ["sum", "max"])
@pytest.mark.timeout(300)
def test_long_reductions_are_accurate(
    name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along any axes, also where more results than have accumulators are adjacent."""
    random = np.random.default_rng(3)
    cases, expected = [], []
    for shape, axis, keepdims in [
        ((70_000, 3), (0,), False),
        ((3, 70_000), (1,), True),
        ((300, 2500), (0,), False),
        ((300, 3, 1100), (0,), True),
        ((300, 50, 60), (0,), False),
        ((50, 60, 70), (0, 1), True),
        ((50, 60, 70), (0, 2), False),
        ((9, 800, 9), (1,), True),
        ((70, 1, 80, 1), (0, 1), False),
        ((70, 1, 80, 1), (2,), True),
        ((30, 4, 70), (0, 1, 2), False),
        ((5,), (), True),
    ]:
        x = (0.1 + 1e-3 * random.random(shape)).astype(np.float32)
        cases.append((name, Case((torch.from_numpy(x),), {"axis": axis, "keepdims": keepdims})))
        expected.append(getattr(np, name)(x.astype(float), axis=axis, keepdims=keepdims))
    use_native_code(monkeypatch, only(0))
    for result, known in zip(run_natively(engine, cases), expected, strict=True):
        np.testing.assert_allclose(result.numpy(), known, rtol=1e-6)


REMAINDERS = ("remainder", "fmod", "floor_divide")


def dividends_and_divisors(dtype: str, count: int = 3000) -> list[Any]:
    """Numbers of all magnitudes, many of whose quotients overflow, their multiples, and special
    numbers."""
    draw, least, most = np.random.default_rng(5), *np.array([-149, 128])
    if dtype == "float64":
        least, most = -1074, 1024
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny]
    with np.errstate(all="ignore"):
        x, y = (
            np.ldexp(draw.uniform(-2, 2, count), draw.integers(least, most, count)).astype(dtype)
            for _ in range(2)
        )
        x[: count // 4] = y[: count // 4] * draw.integers(-9, 9, count // 4).astype(dtype)
    grid = np.meshgrid(*[np.array([*special, -3.0, 2.5], dtype)] * 2)
    return [np.concatenate([a, b.ravel()]) for a, b in zip((x, y), grid, strict=True)]


def integers(dtype: str) -> list[Any]:
    """All pairs of numbers at the ends of a type and at 0, as often as makes long arrays, which
    another library divides."""
    ends = np.iinfo(dtype)
    few = [
        ends.min,
        ends.min + 1,
        ends.max - 1,
        ends.max,
        0,
        1,
        2,
        3,
        7,
        *[-1, -2, -3][: -ends.min],
    ]
    return [np.tile(axis.ravel(), 20) for axis in np.meshgrid(*[np.array(few, dtype)] * 2)]


NUMBERS = ["float32", "float64", "int8", "int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", REMAINDERS)
@pytest.mark.parametrize("kind", ["inline", "planned", "shared", "exact"])
def test_remainders_are_exact(kind: str, name: str, dtype: str) -> None:
    """Also where the quotient overflows, in place, and with one divisor for all numbers."""
    operands = (dividends_and_divisors if dtype.startswith("float") else integers)(dtype)
    with current(kind, 2 if kind in ("shared", "exact") else 1):
        ours, theirs = getattr(mm, name), getattr(np, name)
        for x, y in (operands, [operands[0], operands[1][-5:-4]], operands[::-1]):
            with np.errstate(all="ignore"):
                expected = theirs(x, y)
                twice = theirs(expected, y)
            divisor, result = mm.asarray(y), mm.asarray(x)
            _check_same(ours(result, divisor), expected)
            result[...] = ours(result, divisor)
            result[...] = ours(result, divisor)
            _check_same(result, twice)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.timeout(300)
def test_native_remainders_are_exact(
    dtype: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = (dividends_and_divisors if dtype.startswith("float") else integers)(dtype)
    case = Case(tuple(map(torch.from_numpy, operands)), {})
    use_native_code(monkeypatch, only(0))
    actual = run_natively(engine, [(name, case) for name in REMAINDERS])
    for name, result in zip(REMAINDERS, actual, strict=True):
        with np.errstate(all="ignore"):
            _check_same(result, getattr(np, name)(*operands))


def _check_same(actual: Any, expected: Any) -> None:
    """Assert equality, also of the signs of zeros."""
    actual = actual.numpy()
    np.testing.assert_array_equal(actual, expected)
    if expected.dtype.kind == "f":
        zeros = expected == 0
        np.testing.assert_array_equal(np.signbit(actual[zeros]), np.signbit(expected[zeros]))


BODIES = {
    "transposed into itself": lambda i, u: 0.5 * u.T + u,
    "turned into itself": lambda i, u: u[::-1] * 0.5 + u[:, ::-1],
    "computed and turned": lambda i, u: (u * 0.5)[::-1].T,
    "shifted": lambda i, u: mm.concat([u[1:], u[:1]], axis=0) * 0.5,
    "part overwritten": lambda i, u: _overwritten(u),
}


def _overwritten(u: Any) -> Any:
    """The inner part becomes the mean of two neighbours."""
    u = u.copy() if isinstance(u, np.ndarray) else mm.asarray(u, copy=True)
    u[1:-1, 1:-1] = (u[2:, 1:-1] + u[1:-1, :-2]) * 0.5
    return u


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("workers", [1, 2])
def test_loops_that_are_joined_read_what_they_should(
    workers: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads at other places than it writes is not joined with what writes there."""
    use_native_code(monkeypatch)
    start = np.random.default_rng(1).random((6, 6))
    expected = start
    for i in range(3):
        numpy_body = {"shifted": lambda i, u: np.concatenate([u[1:], u[:1]]) * 0.5}
        expected = numpy_body.get(body, BODIES[body])(i, expected)
    NativeWherePossible.used.clear()
    with current("planned" if workers == 1 else "shared", workers):
        actual = mm.fori_loop(0, 3, BODIES[body], mm.asarray(start))
        np.testing.assert_allclose(np.asarray(actual), expected)
    assert workers > 1 or set(NativeWherePossible.used) == {"native"}


def _compensated(i: Any, state: Any) -> Any:
    """Add 0.1 to a sum, and what rounding has lost of it before (Kahan's sum)."""
    total, lost = state
    part = np.float32(0.1) - lost
    following = total + part
    return following, (following - total) - part


ROUNDED: dict[str, tuple[Callable[[Any, Any], Any], list[float]]] = {
    "compensated sum": (_compensated, [0, 0]),
    "rounded to 1/1024": (lambda i, s: ((s[0] / 3 + 12288) - 12288,), [7]),
    **{
        f"{name} of {number}": (body, [number])
        for number in (1e-39, 3e38)
        for name, body in {
            "quotient": lambda i, s: (s[0] / s[0][:1] * s[0],),
            "quotient and product": lambda i, s: ((s[0] / s[0][0]) * s[0][1],),
            "quotients": lambda i, s: (s[0] / (s[0] / s[0][0]) / (s[0][1] / s[0]),),
        }.items()
    },
}


@pytest.mark.parametrize("name", ROUNDED)
def test_native_loops_keep_the_order_of_operations(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another order, or a product with a reciprocal, gives other results."""
    use_native_code(monkeypatch)
    body, numbers = ROUNDED[name]
    expected: Any = tuple([np.full(67, number, np.float32) for number in numbers])
    NativeWherePossible.used.clear()
    with current("planned"):
        actual = mm.fori_loop(0, 100, body, tuple(map(mm.asarray, expected)))
        for i in range(100):
            expected = body(i, expected)
        for x, y in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(x.numpy(), y)
    assert set(NativeWherePossible.used) == {"native"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "complex128"])
def test_loops_through_types_without_a_native_form_are_replayed(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no value of such a type needs to be stored."""
    use_native_code(monkeypatch)

    def body(i: Any, x: mm.Array) -> mm.Array:
        y = mm.astype(x, dtype)
        return mm.astype(mm.real(mm.square(y)) if "complex" in dtype else y, "float32") * 0.5 + 1

    expected = 2.125 if "complex" in dtype else 1.75
    NativeWherePossible.used.clear()
    with current("planned"):
        actual = mm.fori_loop(0, 3, body, mm.zeros((5,), dtype="float32"))
        np.testing.assert_array_equal(actual.numpy(), np.full(5, expected, np.float32))
    assert "native" not in NativeWherePossible.used
