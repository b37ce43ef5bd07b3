"""The native form of every operation computes the same as its kernel.

All operations on one element type form one program, so that each type is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    found = [(name, case) for name, case in structured(draws) if dtype in ROWS[name].dtypes]
    if dtype != "float32":  # the only type that is drawn natively
        found = [(name, case) for name, case in found if name != "random_uniform"]
    if dtype in ("int64", "float32", "float64"):  # numbers below 0 are no uint8
        found = [(n, c) for n, c in found if n != "astype" or c.attributes["dtype"].name != "uint8"]
    for name, row in ROWS.items():
        operation = OPERATIONS[name]
        native = operation.native
        if isinstance(native, dict) and DTYPES[dtype].kind not in native:
            continue  # integers to integer powers, which data can make fail
        if native is None:  # the gamma functions
            continue
        if operation.elementwise and name != "astype" and dtype in row.dtypes:
            found.append((name, row.draw(draws)))
    return found


def run_natively(engine: Engine, cases: list[tuple[str, Case]]) -> list[torch.Tensor]:
    """The values of the operations, computed twice over by one native function."""
    nodes = tuple(applied(engine, name, case) for name, case in cases)
    graph = engine.cut(Graph(nodes))
    outputs, _ = engine.run(engine.compile(graph), graph.leaves, steps=2)
    return [engine.pool.get(data.handle) for data in outputs]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.timeout(300)  # the compiler's time
def test_native_form_agrees_with_the_kernel(
    dtype: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = cases_of(dtype)
    expected = values(engine, *[applied(engine, name, case) for name, case in cases])
    chooser = only(0)
    use_native_code(monkeypatch, chooser)
    found = run_natively(engine, cases)
    assert chooser.used == ["native"]
    for (name, case), result, known in zip(cases, found, expected, strict=True):
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
        if OPERATIONS[name].elementwise and dtype in row.dtypes and name != "astype":
            count = len(row.draw(draws).operands)
            condition = (grid[0] > 0,) if name == "where" else ()
            cases.append((name, Case((*condition, *grid[: count - len(condition)]), {})))
    for name in ("sum", "prod", "max", "min"):
        cases.append((name, Case((grid[0],), {"axis": (1,), "keepdims": False})))
    use_native_code(monkeypatch, only(0))
    found = run_natively(engine, cases)
    for (name, case), result in zip(cases, found, strict=True):
        known = reference(name, case)
        check_close(result, known, (name, case))
        if OPERATIONS[name].elementwise:
            check_signs(result, known, (name, case))


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
        found = mm.fori_loop(0, 3, BODIES[body], mm.asarray(start))
        np.testing.assert_allclose(np.asarray(found), expected)
    assert workers > 1 or set(NativeWherePossible.used) == {"native"}
