"""Arrays that all workers sort collectively: correct for any numbers, stable, within their share of
the memory, with the planned number of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
import operation_bodies as bodies
from engines import current, engine_of, machine_of_speed
from magmath.core.dtypes import DTYPES
from magmath.engine import session
from magmath.engine.engine import Engine
from magmath.graph import Graph
from magmath.kernels.sort import sortable_keys
from magmath.layout import Mesh, even_cuts
from magmath.memory.torch_dtypes import to_torch
from magmath.ops.sort import searchsorted
from magmath.ops.sort.sorting import ARGSORT, SORT
from operation_table import BOOL, REAL, Case

POOLS = [("shared", 2), ("shared", 3), ("messages", 2), ("messages", 4), ("shared", 7)]
phases = [Phase.explicit, Phase.reuse, Phase.generate]
some = settings(max_examples=15, suppress_health_check=list(HealthCheck), phases=phases)


def together(kind: str, workers: int) -> Engine:
    """An engine in which collective sorting has the lowest cost."""
    engine = Engine(engine_of(kind, workers).pool)
    engine.environment = replace(engine.environment, machine=machine_of_speed(1e3))
    return engine


@st.composite
def numbers(draw: st.DrawFn) -> torch.Tensor:
    """A 1-D array of any type, with few different numbers or many, and with special ones."""
    name = draw(st.sampled_from((*BOOL, *REAL)))
    dtype, count = DTYPES[name], draw(st.sampled_from([1, 2, 5, 9, 40, 700]))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    spread = draw(st.sampled_from([1, 3, 120]))
    low = 0 if dtype.kind in ("uint", "bool") else -spread
    whole = random.integers(low, spread + 1, count)
    x = torch.from_numpy(whole if dtype.kind != "bool" else whole > 0).to(to_torch(dtype))
    if dtype.is_floating and draw(st.booleans()):
        for i, special in enumerate((np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0)):
            x[i::9] = special
    return x


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@given(x=numbers(), descending=st.booleans(), data=st.data())
@some
def test_any_numbers_are_sorted(
    kind: str, workers: int, x: torch.Tensor, descending: bool, data: st.DataObject
) -> None:
    engine, case = together(kind, workers), Case((x,), {"axis": 0, "descending": descending})
    for record in (SORT, ARGSORT):
        at = data.draw(bodies.placements(x, engine, partial=False))
        result = bodies.computed(engine, record.name, case, [at])
        bodies.check_close(result, bodies.reference(record.name, case), (case, x, at))


@pytest.fixture(params=POOLS[:4], ids=[f"{kind}-{workers}" for kind, workers in POOLS[:4]])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A pool on which it is worth while to share any arithmetic."""
    with current(*request.param) as started:
        engine = session.engine()
        engine.environment = replace(engine.environment, machine=machine_of_speed(1e7))
        yield started


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_no_worker_holds_more_than_a_share(pool: Any, dtype: str) -> None:
    """Its part of operand and result, a run and as much to merge in; and an element moves once."""
    n, item = 400_000, DTYPES[dtype].itemsize
    values = np.random.default_rng(0).integers(-(10**6), 10**6, n).astype(dtype)
    x = mm.asarray(values, layout=mm.Layout.split(0))
    share = -(-n // pool.workers)
    for function, result, run in (
        (mm.sort, item, item),
        (mm.argsort, 8, 8 if item == 4 else 2.5 * 8),
    ):
        y = function(x)
        cost = y.explain()
        assert " collectively in " in str(cost)
        assert cost.memory <= share * (item + result + 2 * run) + 4096
        key = item if function is mm.sort else 8 if item == 4 else 16
        assert cost.total.nbytes == n * key * (pool.workers - 1) // pool.workers
        with mm.profile() as profile:
            mm.evaluate(y)
        measured = profile.runs[0].measured_memory
        assert measured is not None
        assert measured <= cost.memory + 4096
        expected = np.sort(values) if function is mm.sort else np.argsort(values, kind="stable")
        np.testing.assert_array_equal(np.asarray(y), expected)


@pytest.mark.parametrize(("kind", "workers"), [("shared", 3), ("messages", 2)])
@pytest.mark.parametrize("dtype", ["int32", "float16", "int64"])
def test_positions_that_do_not_fit_beside_a_key_are_sorted_separately(
    kind: str, workers: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of more than 2³² elements."""
    monkeypatch.setattr(sortable_keys, "MAX_POSITIONS", 1 << 5)
    engine = together(kind, workers)
    x = torch.from_numpy(np.random.default_rng(0).integers(-9, 9, 53).astype(dtype))
    case = Case((x,), {"axis": 0, "descending": False})
    at = mm.Layout.split(0).bind((53,), Mesh.line(workers))
    result = bodies.computed(engine, "argsort", case, [at])
    bodies.check_close(result, bodies.reference("argsort", case), (case, x))


@pytest.mark.parametrize("descending", [False, True])
def test_more_positions_than_fit_beside_a_key_are_sorted_locally(
    descending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sortable_keys, "MAX_POSITIONS", 4)
    values = np.random.default_rng(0).integers(-(2**60), 2**60, (3, 40))
    values[:, ::3] = values[:, :1]
    out = torch.empty(values.shape, dtype=torch.int64)
    sortable_keys.argsort(torch.from_numpy(values), out, axis=1, descending=descending)
    truth = np.argsort(-values if descending else values, axis=1, kind="stable")
    np.testing.assert_array_equal(out.numpy(), truth)


def test_a_gradient_goes_back_where_its_element_came_from(pool: Any) -> None:
    values = np.random.default_rng(0).permutation(1000).astype("float64")
    x = mm.asarray(values, layout=mm.Layout.split(0))
    weights = mm.asarray(np.arange(1000.0))
    slope = mm.grad(mm.sum(mm.sort(x) * weights), [x])[0]
    np.testing.assert_array_equal(np.asarray(slope), values)


def test_the_parts_are_as_large_as_the_layout_says(pool: Any) -> None:
    """Most workers hold nothing of a short array."""
    engine = session.engine()
    x = mm.asarray([3, 1, 2], layout=mm.Layout.on(1))
    node = mm.sort(x).node
    (layouts,), out = SORT.collective.layouts(node, Mesh.line(pool.workers))
    cuts = even_cuts(3, pool.workers)
    assert [layouts.local_size(r) for r in range(pool.workers)] == list(np.diff(cuts))
    assert out == layouts
    assert engine.compile(engine.pending_graph(Graph((node,)))).program
    np.testing.assert_array_equal(np.asarray(mm.sort(x)), [1, 2, 3])


@pytest.mark.parametrize("side", ["left", "right"])
def test_many_values_are_searched_in_their_order(
    side: Literal["left", "right"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searchsorted, "MIN_SORTED_VALUES", 1)
    random = np.random.default_rng(0)
    ordered, values = np.sort(random.integers(0, 50, 99)), random.integers(-2, 53, (8, 40))
    with current("shared", 2):
        for dtype in ("float32", "int64", "uint8", "bool"):
            x, of = (mm.astype(mm.asarray(v), getattr(mm, dtype)) for v in (ordered, values))
            result = mm.searchsorted(x, of, side=side)
            truth = np.searchsorted(np.asarray(x), np.asarray(of), side)
            np.testing.assert_array_equal(np.asarray(result), truth)


@pytest.mark.parametrize("shape", [(90, 1), (1, 90), (2, 90), (90, 2), (45, 1, 2)])
def test_a_few_long_lines_are_sorted_by_all(pool: Any, shape: tuple[int, ...]) -> None:
    engine, axis = session.engine(), int(np.argmax(shape))
    engine.environment = replace(engine.environment, max_moved_bytes=0)
    values = np.random.default_rng(0).integers(-50, 50, shape).astype("float32")
    for layout in (mm.Layout.split(axis), mm.Layout.cyclic(axis, 2)):
        x = mm.asarray(values, layout=layout)
        for descending in (False, True):
            y = mm.sort(x, axis=axis, descending=descending)
            if values.size // shape[axis] < pool.workers:
                assert " collectively in " in str(y.explain())
            expected = np.sort(values, axis)
            expected = np.flip(expected, axis) if descending else expected
            np.testing.assert_array_equal(np.asarray(y), expected)
        order = np.argsort(values, axis, kind="stable")
        np.testing.assert_array_equal(np.asarray(mm.argsort(x, axis=axis)), order)
