"""Indexed access that all workers compute collectively: correct in any layout, in one or many
rounds, equal for any number of workers, and within each worker's share of the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import magmath as mm
import operation_bodies as bodies
from counting_communicator import CountingCommunicator
from engines import current, engine_of
from magmath.core import request_batching
from magmath.engine import session
from magmath.engine.engine import Engine
from magmath.graph import Graph, Node, apply
from magmath.graph.collective_nodes import is_collective
from magmath.layout import Layout, Mesh
from magmath.ops import OPERATIONS
from magmath.ops.indexing.gather_scatter import PUT
from magmath.ops.leaves import input_leaf
from magmath.passes import candidate_cost
from magmath.runtime import Pool
from magmath.runtime.transport.threads import ThreadTransport
from magmath.runtime.transport_interface import WorkerOptions
from operation_table import ROWS, cases

READING = ("take", "take_along", "searchsorted")
EXACT = (*READING, "put")
ADDING = ("scatter_add", "scatter_along")
phases = [Phase.explicit, Phase.reuse, Phase.generate]
some = settings(
    max_examples=12,
    suppress_health_check=list(HealthCheck),
    phases=phases,
)
by_rows = Layout.split(0)


@pytest.fixture(autouse=True)
def together(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All workers compute collectively if possible, a few bytes at a time."""
    every = candidate_cost.layout_candidates

    def chosen(node: Node, *rest: Any) -> Any:
        offered = list(every(node, *rest))
        return [c for c in offered if is_collective(node, c.inputs, c.output)] or offered

    monkeypatch.setattr(candidate_cost, "layout_candidates", chosen)
    monkeypatch.setattr(request_batching, "MIN_ROUND_BYTES", 40)
    candidate_cost.cost_cache_of.cache_clear()
    yield
    candidate_cost.cost_cache_of.cache_clear()


def fresh(kind: str, workers: int) -> Engine:
    """An engine without programs."""
    return Engine(engine_of(kind, workers).pool)


@pytest.mark.parametrize("name", [*EXACT, *ADDING])
@pytest.mark.parametrize("workers", [2, 3, 4, 7])
@given(data=st.data())
@some
def test_any_layout_gives_the_same(name: str, workers: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["shared", "messages"]))
    engine, case = fresh(kind, workers), data.draw(cases(ROWS[name]))
    bodies.check_any_layout(engine, name, case, data)


@pytest.mark.parametrize("name", ["take", "put", "take_along"])
@pytest.mark.parametrize(("kind", "workers"), [("shared", 2), ("messages", 3)])
@given(data=st.data())
@some
def test_gradients_go_where_elements_came_from(
    name: str, kind: str, workers: int, data: st.DataObject
) -> None:
    row = ROWS[name]
    case = data.draw(cases(row, smooth=True))
    bodies.check_gradient_any_layout(
        fresh(kind, workers), engine_of("inline"), name, case, row.slopes, data
    )


@pytest.mark.parametrize("name", [*EXACT, "sort", "argsort"])
@given(data=st.data())
@some
def test_deterministic_pools_compute_collectively_and_agree(name: str, data: st.DataObject) -> None:
    case = data.draw(cases(ROWS[name]))
    bodies.check_exact([fresh("exact", workers) for workers in (1, 2, 3, 4)], name, case, data)


@pytest.mark.parametrize("name", ADDING)
def test_deterministic_sums_are_not_cut(name: str) -> None:
    engine = fresh("exact", 2)
    layout = Layout.replicated().bind((9,), Mesh(2))
    x, i = (input_leaf((9,), dtype, layout, None) for dtype in (mm.float64, mm.int64))
    attributes = {"axis": 0, "extent": 9}
    if name == "scatter_add":
        attributes = {"axes": (0,), "at": 0, "extents": (9,)}
    node = apply(OPERATIONS[name], x, i, **attributes)
    assert "together" not in str(engine.compile(engine.pending_graph(Graph((node,)))).program)


# what it costs
# -------------------------------------------------------------------------------------

N = 60_000
ROW = 8 * 3


def _values(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def _places(count: int = N, below: int = N) -> Any:
    return np.random.default_rng(1).integers(-below, below, count)


def _laid(x: Any) -> mm.Array:
    return mm.asarray(x, layout=by_rows)


def _assigned(x: Any, places: Any, values: Any) -> mm.Array:
    operands = (_laid(v).node for v in (x, values, places))
    return mm.Array(apply(PUT, *operands, axes=(0,), at=0))


def _put(x: Any, places: Any, values: Any) -> tuple[mm.Array, Any]:
    expected = x.copy()
    expected[places] = values
    return _assigned(x, places, values), expected


def _slope(x: Any, places: Any, values: Any) -> tuple[mm.Array, Any]:
    table, expected = _laid(x), np.zeros_like(x)
    picked = mm.take(table, _laid(places), axis=0)
    np.add.at(expected, places, values)
    return mm.grad(mm.sum(picked * _laid(values)), [table])[0], expected


def _searched(values: Any, places: Any, _: Any) -> tuple[mm.Array, Any]:
    ordered = np.sort(values[:, 0])
    return mm.searchsorted(_laid(ordered), _laid(values[:, 1])), np.searchsorted(
        ordered, values[:, 1]
    )


# The expression and its value, the operation that workers compute collectively, and for each index
# the bytes that a worker holds of operands and result, and that go to the owner and back.
LARGE: dict[str, tuple[Callable[..., tuple[mm.Array, Any]], str, int, int]] = {
    "take": (
        lambda x, i, v: (mm.take(_laid(x), _laid(i), axis=0), x[i]), "take",
        2 * ROW + 8, ROW + 8,
    ),
    "put": (_put, "put", 3 * ROW + 8 + 8, ROW + 16),
    "gradient": (_slope, "scatter_add", 4 * ROW + 8, ROW + 8),
    "searchsorted": (_searched, "searchsorted", 8 + 8 + 8, 8 + 8),
}  # fmt: skip


@pytest.fixture(params=[("shared", 3), ("messages", 4)], ids=["shared", "messages"])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    with current(*request.param) as started:
        yield started


@pytest.mark.parametrize("spread", ["even", "to one"])
@pytest.mark.parametrize("name", LARGE)
def test_no_worker_holds_more_than_a_share(pool: Any, name: str, spread: str) -> None:
    """Its parts of operands and result, and as many messages as it sends itself; also
    where one worker owns everything that all want."""
    function, operation, held, moved = LARGE[name]
    places = _places() if spread == "even" else _places(below=7)
    y, expected = function(_values((N, 3)), places, _values((N, 3), 1))
    cost = y.explain()
    assert f"= {operation}" in str(cost)
    assert " collectively in " in str(cost)
    share, most = -(-N // pool.workers), 1 + 1 / pool.workers
    assert cost.memory <= share * (held + most * moved) + 8192
    with mm.profile() as profile:
        mm.evaluate(y)
    measured = max(run.measured_memory or 0 for run in profile.runs)
    assert measured <= cost.memory + 8192
    np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-12)


@pytest.mark.parametrize("name", LARGE)
def test_the_bytes_between_workers_are_those_of_the_plan(name: str) -> None:
    function, operation, _, moved = LARGE[name]
    transport = ThreadTransport(4, WorkerOptions("cpu", 1), shares_memory=False)
    counting = [CountingCommunicator(c) for c in transport._communicators]
    transport._communicators[:] = counting
    former = session.current_engine
    session.set_current_pool(Pool(transport))
    try:
        y, _ = function(_values((N, 3)), _places(), _values((N, 3), 1))
        cost = y.explain()
        for comm in counting:
            comm.reset()
        mm.evaluate(y)
        session.engine().pool.stats()  # waits for the workers
        sent = [comm.bytes for comm in counting]
        (planned,) = [g.nbytes for g in cost.by_operation() if g.name == operation]
        assert planned == pytest.approx(N * moved * 3 / 4, rel=0.02)
        assert sum(sent) == pytest.approx(planned, rel=0.02)
        assert max(sent) == pytest.approx(sum(sent) / 4, rel=0.05)
    finally:
        session.engine().pool.close()
        session.current_engine = former


def test_an_index_out_of_range_is_one_worker_s_failure(pool: Any) -> None:
    x, places = _laid(_values((40, 3))), np.arange(40)
    places[31] = 40
    for wrong in (
        lambda: mm.take(x, _laid(places), axis=0),
        lambda: _assigned(_values((40, 3)), places, _values((40, 3))),
    ):
        with pytest.raises(IndexError, match="index 40 is out of range for extent 40"):
            np.asarray(wrong())
    good = mm.take(x, _laid(np.arange(40)), axis=0)
    np.testing.assert_array_equal(np.asarray(good), np.asarray(x))


def test_the_last_of_several_values_counts(pool: Any) -> None:
    """AsynchronousStep of the sender and the round."""
    places = np.random.default_rng(0).integers(0, 5, 3000)
    values = np.arange(3000.0)
    y, expected = _put(np.zeros(50), places, values)
    assert " collectively in " in str(y.explain())
    np.testing.assert_array_equal(np.asarray(y), expected)


def test_rows_of_other_lengths_move_once(pool: Any) -> None:
    engine = session.engine()
    engine.environment = replace(engine.environment, max_moved_bytes=0)
    x = _values((1500, 40))
    y = mm.reshape(_laid(x), (1000, 60))
    cost = y.explain()
    assert cost.memory <= 4.1 * x.nbytes / pool.workers
    np.testing.assert_array_equal(np.asarray(y), x.reshape(1000, 60))


@given(data=st.data())
@some
def test_any_shape_becomes_any_other(data: st.DataObject) -> None:
    """By the flat array, from and to any layout."""
    for kind, workers in (("shared", 3), ("messages", 4)):
        engine = fresh(kind, workers)
        engine.environment = replace(engine.environment, max_moved_bytes=0)
        case = data.draw(cases(ROWS["reshape"]))
        assume(case.operands[0].numel())
        bodies.check_any_layout(engine, "reshape", case, data)
