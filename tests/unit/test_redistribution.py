"""Plans of redistributions, executed with NumPy on simulated workers, against whole arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from layouts import (
    COMBINE,
    IDENTITY,
    Local,
    check_holds,
    distribute,
    empty_tensors,
    layouts,
    meshes,
    product_layouts,
    shapes,
    tile_views,
)
from magmath.cost import Link, redistribution_seconds
from magmath.errors import ShapeError
from magmath.layout import Layout, Mesh, Redistribution, Split, Stage, plan_redistribution
from magmath.layout.moves import Select

GARBAGE = -77


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Two layouts of one shape, on the same mesh half of the time."""
    shape = draw(shapes)
    mesh = draw(st.none() | meshes())
    return draw(layouts(shape, mesh)), draw(layouts(shape, mesh))


def execute(stage: Stage, local: Local) -> Local:
    """What every worker holds after a stage."""
    result = empty_tensors(stage.target, GARBAGE)
    written = empty_tensors(stage.target, 0)
    for worker in stage.identity:
        result[worker][...] = IDENTITY[stage.target.reduction or ""]
        written[worker][...] = 1
    for worker in reversed(stage.target.mesh.workers):
        for move in stage.moves_to(worker):
            part = tile_views(stage.source, local, move.source)[move.source_tile]
            into = tile_views(stage.target, result, worker)[move.target_tile]
            count = tile_views(stage.target, written, worker)[move.target_tile]
            part = part[grid(move.source_select, part.shape)]
            place = grid(move.target_select, into.shape)
            assert part.shape == move.shape == into[place].shape
            assert math.prod(move.shape) > 0
            if move.combine:
                assert (count[place] == 1).all()
                part = COMBINE[stage.reduce or ""](into[place], part)
            else:
                count[place] += 1
            into[place] = part
    for count in written.values():
        assert (count == 1).all(), "an element was never written, or twice"
    return result


def grid(selectors: Select, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
    """Selectors, slices or index arrays, as one index of their outer product."""
    listed = [np.arange(n)[s] for s, n in zip(selectors, shape, strict=True)]
    return np.ix_(*listed)


def run(redistribution: Redistribution, local: Local) -> Local:
    for stage in redistribution.stages:
        local = execute(stage, local)
    return local


@settings(max_examples=600)
@given(pairs(), st.integers(0, 2**32))
def test_any_layout_to_any_layout(pair: tuple[Layout, Layout], seed: int) -> None:
    source, target = pair
    local, truth = distribute(source, np.random.default_rng(seed))
    check_holds(source, local, truth)
    check_holds(target, run(plan_redistribution(source, target), local), truth)


@given(st.integers(1, 7), st.integers(1025, 1300), st.integers(0, 2), st.integers(0, 2**32))
def test_large_reductions_in_two_stages(count: int, n: int, trailing: int, seed: int) -> None:
    shape = (n, *(2,) * trailing)
    mesh = Mesh.line(count)
    source = pending(shape, mesh)
    local, truth = distribute(source, np.random.default_rng(seed))
    for target in (
        Layout.replicated_on(shape, mesh),
        Layout.replicated_on(shape, mesh, shared=True),
    ):
        steps = plan_redistribution(source, target)
        assert len(steps.stages) == (2 if count > 1 else 1)
        check_holds(target, run(steps, local), truth)


# Reductions to replicas on several mesh axes, large enough for two stages.
@settings(max_examples=100)
@given(st.data(), st.integers(0, 2**32))
def test_large_arrays_on_any_mesh(data: st.DataObject, seed: int) -> None:
    shape = data.draw(st.sampled_from([(1200,), (40, 30), (3, 2, 200)]))
    mesh = data.draw(meshes())
    source = data.draw(product_layouts(shape, mesh))
    target = data.draw(product_layouts(shape, data.draw(st.just(mesh) | meshes())))
    local, truth = distribute(source, np.random.default_rng(seed))
    check_holds(target, run(plan_redistribution(source, target), local), truth)


@settings(max_examples=200)
@given(pairs())
def test_no_worker_is_sent_more_than_it_misses(pair: tuple[Layout, Layout]) -> None:
    source, target = pair
    steps = plan_redistribution(source, target)
    if source.is_partial:
        return
    if target.shared:
        writers = held(source, target.mesh.workers)
        assert steps.total_bytes(1) == source.size - np.count_nonzero(writers)
        return
    (stage,) = steps.stages
    for worker in target.mesh.workers:
        wanted = held(target, (worker,))
        missing = int(np.count_nonzero(wanted & ~held(source, (worker,))))
        if worker in stage.identity:
            missing = 0
        assert (stage.traffic[worker].received if worker in stage.traffic else 0) == missing


def held(layout: Layout, workers: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which elements any of the workers holds."""
    mask = np.zeros(layout.shape, bool)
    for worker in workers:
        for tile in layout.tiles(worker):
            mask[np.ix_(*[indices.indices() for indices in tile])] = True
    return mask


@settings(max_examples=150)
@given(pairs())
def test_counts_agree_with_the_moves(pair: tuple[Layout, Layout]) -> None:
    steps = plan_redistribution(*pair)
    total = messages = 0
    for stage in steps.stages:
        crossing = [move for move in stage.moves if move.source != move.target]
        total += sum(math.prod(move.shape) for move in crossing)
        messages += len({(move.source, move.target) for move in crossing})
        for worker in range(7):
            assert stage.moves_to(worker) == tuple(m for m in stage.moves if m.target == worker)
            assert stage.moves_from(worker) == tuple(m for m in stage.moves if m.source == worker)
        assert stage.reads_peers == bool(crossing)
    assert steps.total_bytes(8) == 8 * total
    assert steps.messages == messages
    assert steps.reads_peers == bool(total)
    received = [t.received for stage in steps.stages for t in stage.traffic.values()]
    assert sum(received) == total
    if steps.kind in ("nothing", "local"):
        assert total == 0


@given(pairs())
def test_nothing_means_that_the_same_tensors_serve(pair: tuple[Layout, Layout]) -> None:
    source, target = pair
    if plan_redistribution(source, target).kind == "nothing":
        local, truth = distribute(source, np.random.default_rng(0))
        check_holds(target, local, truth)
        assert source.shared == target.shared


def pending(shape: tuple[int, ...], mesh: Mesh, name: str = "sum") -> Layout:
    return Layout(shape, mesh, (None,) * len(shape), (name,) * mesh.ndim)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_collectives_move_the_known_numbers_of_elements(count: int) -> None:
    mesh, shape = Mesh.line(count), (84, 168)
    size = math.prod(shape)
    rows, columns = Layout.even(shape, mesh, 0), Layout.even(shape, mesh, 1)
    whole, partial = Layout.replicated_on(shape, mesh), pending(shape, mesh)
    shared = Layout.replicated_on(shape, mesh, shared=True)
    for source, target, kind, elements in (
        (rows, rows, "nothing", 0),
        (rows, columns, "all_to_all", size * (count - 1) // count),
        (rows, whole, "allgather", size * (count - 1)),
        (whole, columns, "local", 0),
        (shared, columns, "local", 0),
        (shared, whole, "local", 0),
        (rows, shared, "allgather", 0),
        (whole, shared, "allgather", 0),
        (partial, columns, "reduce_scatter", size * (count - 1)),
        (partial, whole, "allreduce", 2 * size * (count - 1)),
        (partial, shared, "allreduce", size * (count - 1)),
        (whole, partial, "local", 0),
    ):
        steps = plan_redistribution(source, target)
        assert (steps.kind, steps.total_bytes(1)) == (kind, elements), (source, target)
    small = plan_redistribution(pending((10,), mesh), Layout.replicated_on((10,), mesh))
    assert [stage.kind for stage in small.stages] == ["allreduce"]
    assert small.total_bytes(1) == 10 * (count - 1) * count


def test_two_stages_are_a_reduce_scatter_and_an_allgather_on_the_same_mesh() -> None:
    mesh = Mesh((2, 3), ("data", "model"))
    split = Split.even(1, 60, 3)
    source = Layout((60, 40), mesh, (split, None), ("sum", None))
    target = Layout((60, 40), mesh, (split, None))
    first, second = plan_redistribution(source, target).stages
    assert (first.kind, second.kind) == ("reduce_scatter", "allgather")
    assert first.target.mesh == mesh
    assert str(first.target) == "[S(1)@data, S(0)@model]"


def test_replicas_share_the_load_evenly() -> None:
    whole = Layout.replicated_on((8, 8), Mesh.line(3))
    target = Layout.replicated_on((8, 8), Mesh((6,), None, range(6)))
    (stage,) = plan_redistribution(whole, target).stages
    sources = sorted(move.source for move in stage.moves if move.source != move.target)
    assert sources == [0, 1, 2]
    assert all(move.source == move.target for move in stage.moves if move.target < 3)


def test_a_worker_prefers_what_it_holds_itself() -> None:
    mesh = Mesh((2, 2))
    source = Layout.even((10, 4), mesh, 0, mesh_axis=1)
    (stage,) = plan_redistribution(source, Layout.replicated_on((10, 4), mesh)).stages
    for worker in range(4):
        assert sorted(m.source == worker for m in stage.moves_to(worker)) == [False, True]


def test_contributions_come_in_one_order_everywhere() -> None:
    mesh = Mesh.line(4)
    (stage,) = plan_redistribution(pending((40,), mesh), Layout.even((40,), mesh, 0)).stages
    assert stage.reduce == "sum"
    for worker in range(4):
        moves = stage.moves_to(worker)
        assert [move.source for move in moves] == [0, 1, 2, 3]
        assert [move.combine for move in moves] == [False, True, True, True]


def test_a_cyclic_dimension_is_moved_by_slices() -> None:
    mesh, n = Mesh.line(4), 10**6
    dealt = Layout.cyclic(0).bind((n,), mesh)
    steps = plan_redistribution(dealt, Layout.even((n,), mesh, 0))
    assert len(steps.stages[0].moves) == 16
    for move in steps.stages[0].moves:
        assert isinstance(move.source_select[0], slice)
        assert isinstance(move.target_select[0], slice)
    assert steps.total_bytes(1) == n * 3 // 4


def test_a_shared_copy_is_written_by_workers_that_hold_the_parts() -> None:
    mesh = Mesh((2, 2))
    rows = Layout.even((6, 4), mesh, 0)
    for workers in ((0, 1, 2, 3), (1, 3), (2, 1)):
        shared = Layout.replicated_on((6, 4), Mesh((len(workers),), None, workers), shared=True)
        assert not plan_redistribution(rows, shared).reads_peers
        assert plan_redistribution(rows, shared).kind not in ("nothing", "local")
    assert not plan_redistribution(
        Layout.on(2).bind((), mesh), Layout.replicated_on((), mesh, shared=True)
    ).reads_peers


@pytest.mark.parametrize("shape", [(), (2,), (3, 1), (4, 5)])
def test_a_pending_reduction_is_done_before_it_is_shared(shape: tuple[int, ...]) -> None:
    mesh = Mesh.line(4)
    steps = plan_redistribution(
        pending(shape, mesh), Layout.replicated_on(shape, mesh, shared=True)
    )
    assert [stage.reads_peers for stage in steps.stages] == [True, False]
    assert steps.stages[0].reduce == "sum"
    assert steps.total_bytes(1) == 3 * math.prod(shape)


def test_shapes_must_agree() -> None:
    mesh = Mesh.line(2)
    with pytest.raises(ShapeError, match=r"\(4,\).*\(5,\)"):
        plan_redistribution(Layout.replicated_on((4,), mesh), Layout.replicated_on((5,), mesh))


@given(pairs())
def test_plans_are_the_same_on_every_worker(pair: tuple[Layout, Layout]) -> None:
    source, target = pair
    copies = Layout.decode(source.encode()), Layout.decode(target.encode())
    first = plan_redistribution(source, target)
    plan_redistribution.cache_clear()
    again = plan_redistribution(*copies)
    for one, two in zip(first.stages, again.stages, strict=True):
        assert repr(one.moves) == repr(two.moves)
        assert one.identity == two.identity


def test_prices() -> None:
    mesh, shape = Mesh.line(4), (400, 400)
    rows, whole = Layout.even(shape, mesh, 0), Layout.replicated_on(shape, mesh)
    shared = Layout.replicated_on(shape, mesh, shared=True)
    memory = Link(latency=1.0, bandwidth=1e6, shared_memory=True, barrier=0.5)
    wire = Link(latency=1.0, bandwidth=1e6, shared_memory=False, barrier=0.5)
    gather = plan_redistribution(rows, whole)
    assert redistribution_seconds(gather, 4, memory) == pytest.approx(0.5 + 3 * 40000 * 4 / 1e6)
    assert redistribution_seconds(gather, 4, wire) == pytest.approx(3 * 1.0 + 3 * 40000 * 4 / 1e6)
    assert redistribution_seconds(plan_redistribution(rows, shared), 4, memory) == 0.5
    for link in (memory, wire):
        assert redistribution_seconds(plan_redistribution(whole, rows), 4, link) == 0
        assert redistribution_seconds(plan_redistribution(rows, rows), 4, link) == 0
    # The sender's side counts: one worker that serves three sends three times what each receives.
    one = Layout.on(0).bind(shape, mesh)
    assert redistribution_seconds(plan_redistribution(one, whole), 4, wire) == pytest.approx(
        3 * 1.0 + 3 * 160000 * 4 / 1e6
    )
    reduced = plan_redistribution(pending(shape, mesh), whole)
    stages = [plan_redistribution(stage.source, stage.target) for stage in reduced.stages]
    assert redistribution_seconds(reduced, 4, wire) == pytest.approx(
        sum(redistribution_seconds(s, 4, wire) for s in stages)
    )
