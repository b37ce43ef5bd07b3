"""The algorithms for matrix products: their transfers and memory, and equal results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import operation_bodies as bodies
from engines import engine_of
from magmath.diagnostics.candidate_tables import describe_candidates
from magmath.engine.engine import Engine
from magmath.graph import Graph, Node
from magmath.layout import Layout, Mesh, Split, plan_redistribution
from magmath.ops.product import panel_products
from magmath.ops.product.contraction import contraction, matmul
from magmath.passes.candidates import algorithm
from magmath.passes.default_reduction import default_reduction
from magmath.passes.place import NodeCandidates, node_candidates
from magmath.passes.simplify import simplify
from magmath.program.arena import arrange
from magmath.program.instructions import Call, Program, Redistribute

phases = [Phase.explicit, Phase.reuse, Phase.generate]
some = settings(
    max_examples=12,
    suppress_health_check=list(HealthCheck),
    phases=phases,
)
ITEM = 8


def engine_on(workers: int, kind: str = "messages", **changes: Any) -> Engine:
    """An engine whose planner sees the pool otherwise."""
    engine = Engine(engine_of(kind, workers).pool)
    engine.environment = replace(engine.environment, **changes)
    return engine


def laid(shape: tuple[int, int], grid: tuple[int, ...], *axes: int | None) -> Layout:
    """A matrix whose dimensions are split evenly along these axes of a grid."""
    mesh = Mesh(grid)
    splits = tuple(
        None if axis is None else Split.even(axis, extent, grid[axis])
        for extent, axis in zip(shape, axes, strict=True)
    )
    return Layout(shape, mesh, splits)


def product(engine: Engine, m: int, n: int, k: int, *at: Layout) -> tuple[Node, Any]:
    """A node for a product of matrices in these layouts, and its value by NumPy."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
    nodes = [
        bodies.leaf(engine, torch.from_numpy(x), layout)
        for x, layout in zip((a, b), at, strict=True)
    ]
    return matmul(*nodes), a @ b


def planned(engine: Engine, node: Node) -> tuple[NodeCandidates, Program]:
    """The ways to compute a product, the one taken first, and the program."""
    graph = engine.pending_graph(Graph((node,)))
    (result,) = node_candidates(simplify(graph), engine.environment)
    return result, engine.compile(graph).program


def memory(options: NodeCandidates) -> list[int]:
    """The bytes that a worker needs for each way."""
    return [options.costs.worker_bytes(option.candidate) for option in options.ranked]


def traffic(program: Program) -> int:
    """The bytes that go from one worker to another."""
    slots = program.slots
    return sum(
        plan_redistribution(slots[i.source].layout, slots[i.target].layout).total_bytes(ITEM)
        for i in program.instructions
        if isinstance(i, Redistribute)
    )


@pytest.mark.parametrize(("p", "q"), [(2, 2), (2, 3), (4, 2)])
def test_summa_moves_what_its_formula_says(p: int, q: int) -> None:
    """With A, B and C on a p × q grid: A goes to the q - 1 others of its row, B to the p - 1
    others of its column."""
    m, n, k = 24 * p, 24 * q, 12 * p * q
    engine = engine_on(p * q)
    node, expected = product(
        engine, m, n, k, laid((m, k), (p, q), 0, 1), laid((k, n), (p, q), 0, 1)
    )
    options, program = planned(engine, node)
    assert algorithm(node, options.ranked[0].candidate) == "C stationary"
    moved, messages = options.costs.traffic(options.ranked[0].candidate)
    assert moved == traffic(program) == ITEM * (m * k * (q - 1) + k * n * (p - 1))
    assert messages == p * q * (q - 1) + p * q * (p - 1)
    np.testing.assert_allclose(
        bodies.values(engine, node)[0].numpy(), expected, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(("p", "q", "c"), [(2, 2, 2), (1, 2, 3)])
def test_two_and_a_half_dimensions_move_only_the_result(p: int, q: int, c: int) -> None:
    """With A on (m, k) and B on (k, n) of a p × q × c grid, replicated along the third axis, all
    that moves are the c summands of C, each to where it is added up."""
    m, n, k = 12 * p, 12 * q, 480 * c
    engine = engine_on(p * q * c)
    grid = (p, q, c)
    node, expected = product(engine, m, n, k, laid((m, k), grid, 0, 2), laid((k, n), grid, 2, 1))
    options, _ = planned(engine, node)
    name = "2.5D" if p > 1 else "B stationary"
    assert algorithm(node, options.ranked[0].candidate) == name
    moved, _ = options.costs.traffic(options.ranked[0].candidate)
    assert moved == ITEM * m * n * (c - 1)
    np.testing.assert_allclose(
        bodies.values(engine, node)[0].numpy(), expected, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(
    ("m", "n", "k", "name"),
    [
        (2000, 24, 2000, "A stationary"),
        (24, 2000, 2000, "B stationary"),
        (2000, 2000, 24, "C stationary"),
    ],
)
def test_the_largest_matrix_stays_where_it_is(m: int, n: int, k: int, name: str) -> None:
    engine = engine_on(4)
    grid = (2, 2)
    node, expected = product(engine, m, n, k, laid((m, k), grid, 0, 1), laid((k, n), grid, 0, 1))
    options, _ = planned(engine, node)
    assert algorithm(node, options.ranked[0].candidate) == name
    np.testing.assert_allclose(
        bodies.values(engine, node)[0].numpy(), expected, rtol=1e-10, atol=1e-10
    )


def test_candidates_that_exceed_the_memory_are_not_chosen() -> None:
    """The fastest way brings all of B to every worker; others need less."""
    m, n, k = 96, 48, 480
    at = Layout.even((m, k), Mesh.line(4), 0), Layout.even((k, n), Mesh.line(4), 0)
    free, tight = engine_on(4), engine_on(4)
    options, _ = planned(free, product(free, m, n, k, *at)[0])
    needs = memory(options)
    limit = min(needs)
    assert needs[0] > limit, "this would test nothing"
    tight.environment = replace(tight.environment, memory_limit=limit, memory_bound=limit)
    node, expected = product(tight, m, n, k, *at)
    options, _ = planned(tight, node)
    assert options.ranked
    assert max(memory(options)) <= limit
    np.testing.assert_allclose(
        bodies.values(tight, node)[0].numpy(), expected, rtol=1e-10, atol=1e-10
    )


@given(data=st.data())
@some
def test_workers_with_summands_each_add_a_part(data: st.DataObject) -> None:
    """Where each piece of the result is long enough, each worker adds up a part of its own."""
    grid = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    mesh = Mesh(grid, None, data.draw(st.permutations(range(int(np.prod(grid))))))
    axes = data.draw(st.permutations(range(len(grid))))
    shape = (27, 31)
    split = axes[: data.draw(st.integers(0, min(2, len(axes))))]
    splits = [Split.even(axis, n, grid[axis]) for axis, n in zip(split, shape, strict=False)]
    splits += [None] * (2 - len(splits))
    partial = tuple(None if axis in split else "sum" for axis in range(len(grid)))
    layout = default_reduction(Layout(shape, mesh, tuple(splits), partial))
    held = np.zeros(shape, int)
    for worker in mesh.workers:
        for tile in layout.tiles(worker):
            held[np.ix_(*[indices.indices() for indices in tile])] += 1
    np.testing.assert_array_equal(held, 1)


@pytest.fixture
def small_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_products, "PANEL_BYTES", 4096)
    monkeypatch.setattr(panel_products, "MIN_PANEL_EXTENT", 4)


@pytest.mark.usefixtures("small_panels")
@pytest.mark.parametrize("grid", [(2, 2), (1, 3), (2, 1)])
def test_panels_bound_what_a_worker_needs(grid: tuple[int, int]) -> None:
    """The same bytes are moved, a panel at a time, and no part of an operand is copied first."""
    m, n, k = 48, 48, 96
    workers = grid[0] * grid[1]
    at = laid((m, k), grid, 0, 1), laid((k, n), grid, 0, 1)
    whole, parts = (
        engine_on(workers, max_moved_bytes=1 << 30),
        engine_on(workers, max_moved_bytes=4096),
    )
    node, expected = product(whole, m, n, k, *at)
    _, program = planned(whole, node)
    panelled, _ = product(parts, m, n, k, *at)
    _, bounded = planned(parts, panelled)
    calls = [i for i in bounded.instructions if isinstance(i, Call)]
    assert len(calls) > 4
    assert {call.operation for call in calls} == {"gemm"}
    assert traffic(bounded) == traffic(program)
    panel_products = 2 * 4096  # one that is multiplied, and the next one under way
    assert arrange(bounded).nbytes <= panel_products < arrange(program).nbytes
    assert "summed in" in describe_candidates(
        parts.pending_graph(Graph((panelled,))), parts.environment
    )
    np.testing.assert_allclose(
        bodies.values(parts, panelled)[0].numpy(), expected, rtol=1e-10, atol=1e-10
    )


@pytest.mark.usefixtures("small_panels")
@pytest.mark.parametrize("workers", [2, 3, 4, 7])
@given(data=st.data())
@some
def test_panels_of_any_layouts_give_the_same(workers: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["shared", "messages"]))
    m, n, k = (data.draw(st.sampled_from(s)) for s in ((1, 7, 24), (2, 9, 24), (40, 67)))
    engine = engine_on(workers, kind, max_moved_bytes=0)
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    turned = [data.draw(st.booleans()) for _ in range(2)]
    a, b = (
        torch.from_numpy(random.integers(-3, 4, shape[::-1] if turn else shape).astype("float64"))
        for shape, turn in zip(((m, k), (k, n)), turned, strict=True)
    )
    at = [data.draw(bodies.placements(x, engine)) for x in (a, b)]
    nodes = [bodies.leaf(engine, x, layout) for x, layout in zip((a, b), at, strict=True)]
    letters = ["ca" if turned[0] else "ac", "bc" if turned[1] else "cb"]
    result = contraction(nodes[0], letters[0], nodes[1], letters[1], "ab")
    expected = (a.T if turned[0] else a) @ (b.T if turned[1] else b)
    torch.testing.assert_close(bodies.values(engine, result)[0], expected, rtol=0, atol=0)


@pytest.mark.usefixtures("small_panels")
@pytest.mark.parametrize(("kind", "workers"), [("shared", 3), ("messages", 4)])
@given(data=st.data())
@some
def test_panels_of_stacks_give_the_same(kind: str, workers: int, data: st.DataObject) -> None:
    engine = engine_on(workers, kind, max_moved_bytes=0)
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    shapes = (3, 50, 7), (8, 3, 50)
    a, b = (torch.from_numpy(random.integers(-3, 4, s).astype("float64")) for s in shapes)
    at = [data.draw(bodies.placements(x, engine)) for x in (a, b)]
    nodes = [bodies.leaf(engine, x, layout) for x, layout in zip((a, b), at, strict=True)]
    result = contraction(nodes[0], "bkm", nodes[1], "nbk", "bmn")
    torch.testing.assert_close(
        bodies.values(engine, result)[0], torch.einsum("bkm,nbk->bmn", a, b), rtol=0, atol=0
    )


@pytest.mark.usefixtures("small_panels")
def test_stacks_are_summed_in_panels_too() -> None:
    engine = engine_on(2, max_moved_bytes=0)
    line = Mesh.line(2)
    a, b = (torch.ones(1, 96, 8, dtype=torch.float64), torch.ones(8, 1, 96, dtype=torch.float64))
    at = Layout.even(tuple(a.shape), line, 1), Layout.even(tuple(b.shape), line, 0)
    nodes = [bodies.leaf(engine, x, layout) for x, layout in zip((a, b), at, strict=True)]
    result = contraction(nodes[0], "bkm", nodes[1], "nbk", "bnm")
    (actual,) = node_candidates(
        simplify(engine.pending_graph(Graph((result,)))), engine.environment
    )
    assert actual.panels == -(-2 * 96 * 8 * ITEM // 4096) == 3
    assert bodies.values(engine, result)[0].eq(96).all()
