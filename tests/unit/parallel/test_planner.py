"""The planner: layer graphs, transfers, exact and bounded assignments, plans."""

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import product
from math import prod

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import magmath as mm
from magmath.core.resources import processor_count
from magmath.core.stage_times import recording
from magmath.cost import load_machine
from magmath.errors import DataError, MagmathError, MemoryLimitError, OptionError
from magmath.layout import Layout, Mesh, Split, plan_redistribution
from magmath.nn.zoo import NETWORKS
from magmath.parallel.planner.assignment import AssignmentProblem
from magmath.parallel.planner.costs import CostModel, CostTables
from magmath.parallel.planner.elimination import best_assignment
from magmath.parallel.planner.layer_grouping import layer_graph
from magmath.parallel.planner.layer_options import (
    BATCH,
    INPUT,
    OUTPUT,
    REPLICATED,
    PlannerMesh,
    meshes,
    received_bytes,
    transfer,
)
from magmath.parallel.planner.mesh_search import (
    MeshCandidate,
    assignment_problem,
    search_meshes,
    simulated_step,
    uniform_candidate,
)

K80 = load_machine("k80-fdr")


@pytest.fixture(autouse=True)
def _pool():
    with mm.init(workers=0):
        yield


def _exhaustive(problem):
    ranges = [range(len(own)) for own in problem.layers]
    return min(problem.cost(assignment) for assignment in product(*ranges))


# layer graphs -------------------------------------------------------------------------------------


def test_layers_of_alexnet():
    graph = layer_graph(NETWORKS["alexnet"](), (8, 3, 224, 224))
    products = [layer for layer in graph.layers if layer.rows]
    assert graph.parameter_bytes == 4 * 61_100_840
    assert [layer.rows for layer in products] == [64, 192, 384, 256, 256, 4096, 4096, 1000]
    assert [layer.depth for layer in products][:2] == [3 * 11 * 11, 64 * 5 * 5]
    assert graph.flops == pytest.approx(3 * 8 * 2 * 714_188_480)  # as counted for torchvision's
    assert not products[0].has_input_gradient
    assert products[1].has_input_gradient


@pytest.mark.parametrize(
    ("shape", "weight_of"),
    [((10, 784), lambda w: w.T),
     ((784, 10), lambda w: w.astype(mm.float64).astype(mm.float32)),
     ((7840,), lambda w: mm.reshape(w, (784, 10))),
     ((10, 784), lambda w: mm.flip(w * 2.0, axis=0).T)],
)  # fmt: skip
@pytest.mark.parametrize("bias", [False, True])
def test_weights_that_are_computed_from_parameters_count_once(shape, weight_of, bias):
    class Linear(mm.nn.Module):
        def __init__(self):
            self.weight = mm.nn.Parameter(mm.zeros(shape))
            self.bias = mm.nn.Parameter(mm.zeros(10)) if bias else 0.0

        def __call__(self, x):
            return x @ weight_of(self.weight) + self.bias

    assert layer_graph(Linear(), (32, 784)).parameter_bytes == 4 * (7840 + 10 * bias)


def test_an_unbuilt_network_stays_unbuilt():
    network = mm.nn.Dense(3)
    layer_graph(network, (4, 5))
    assert not network.is_built


class Branches(mm.nn.Module):
    """Two branches of different depth, added; normalization by samples and by channels."""

    def __init__(self):
        self.left = mm.nn.Dense(8, activation="relu")
        self.right = mm.nn.Sequential(mm.nn.Dense(6), mm.nn.BatchNorm(), mm.nn.Dense(8))

    def __call__(self, x):
        return mm.nn.functional.softmax(self.left(x) + self.right(x))


def test_branches_and_reductions():
    graph = layer_graph(Branches(), (16, 4))
    names = [layer.name for layer in graph.layers]
    assert names[1:4] == ["left", "right.0", "right.2"]
    joined = graph.layers[4]
    assert {edge.source for edge in joined.inputs} == {1, 3}
    assert {x.role for x in graph.layers[2].dependencies} == {"batch"}
    assert {x.role for x in joined.dependencies} == {"channel"}


class Inception(mm.nn.Module):
    """Two branches that are concatenated along their channels."""

    def __init__(self):
        self.left, self.right = mm.nn.Dense(8), mm.nn.Dense(24)

    def __call__(self, x):
        return mm.concat([self.left(x), self.right(x)], axis=1)


def test_a_concatenation_does_not_divide_its_axis():
    graph = layer_graph(Inception(), (16, 4))
    joined = next(layer for layer in graph.layers if layer.kind == "concat")
    assert dict(joined.extents) == {"batch": 16}


def test_output_without_input():
    with pytest.raises(MagmathError, match="does not depend on its input"):
        layer_graph(mm.nn.Lambda(lambda x: mm.ones(3)), (4, 5))


# transfers ----------------------------------------------------------------------------------------

SHAPES = [(n,) for n in (1, 2, 4)] + [(2, 2), (2, 4), (4, 2)]
ROLES = {"batch": 0, "channel": 1, "space": 2}


def _layout(mesh, state, shape):
    """The layout of a state; two mesh axes that split one dimension are joined to one."""
    flat = len(state) == 2 and state[0] == state[1] and state[0] in ROLES
    layout = Layout.replicated_on(shape, Mesh(mesh.workers if flat else mesh.shape))
    for axis, own in enumerate(state[:1] if flat else state):
        if own in ROLES:
            dim = ROLES[own]
            layout = layout.replace_split(
                dim, Split.even(axis, shape[dim], layout.mesh.shape[axis])
            )
    return layout


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_bytes_of_transfers_are_those_of_redistributions(data):
    mesh = PlannerMesh(data.draw(st.sampled_from(SHAPES)))
    whole = st.tuples(*[st.sampled_from([*ROLES, "replicated"])] * len(mesh.shape))
    have, want = data.draw(whole), data.draw(whole)
    shape = (8, 16, 24)
    exact = plan_redistribution(_layout(mesh, have, shape), _layout(mesh, want, shape))
    received = Counter()
    for stage in exact.stages:
        for worker, traffic in stage.traffic.items():
            received[worker] += traffic.received
    result = sum(received_bytes(one, prod(shape), mesh) for one in transfer(mesh, have, want))
    assert result == pytest.approx(max(received.values(), default=0))


def test_pending_sums_are_combined_first():
    mesh = PlannerMesh((2, 4))
    result = transfer(mesh, ("batch", "partial"), ("batch", "channel"))
    assert [(one.kind, one.axes, one.share) for one in result] == [("reduce_scatter", (1,), 0.5)]
    result = transfer(mesh, ("partial", "channel"), ("replicated", "replicated"))
    assert [(one.kind, one.axes) for one in result] == [("allreduce", (0,)), ("allgather", (1,))]
    assert transfer(mesh, ("replicated", "batch"), ("channel", "batch")) == ()
    # The parts along the second axis are not consecutive parts of those along both axes.
    result = transfer(mesh, ("partial", "batch"), ("batch", "batch"))
    assert [one.kind for one in result] == ["allreduce", "all_to_all"]
    result = transfer(mesh, ("batch", "partial"), ("batch", "batch"))
    assert [one.kind for one in result] == ["reduce_scatter"]


# assignments --------------------------------------------------------------------------------------


@st.composite
def problems(draw, *, series_parallel):
    """Random tables on a random graph of up to 6 layers with up to 4 options."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = [(0, 1)]
    if series_parallel:
        for _ in range(draw(st.integers(0, 5))):
            u, v = edges[draw(st.integers(0, len(edges) - 1))]
            if draw(st.booleans()):
                edges.append((u, v))
            else:
                new = max(max(edge) for edge in edges) + 1
                edges.remove((u, v))
                edges += [(u, new), (new, v)]
    else:
        n = draw(st.integers(4, 6))
        edges = [(u, v) for u in range(n) for v in range(u + 1, n)]
    sizes = [
        draw(st.integers(1, 4 if series_parallel else 3)) for _ in range(1 + max(map(max, edges)))
    ]
    layers = [rng.uniform(0, 1, n) for n in sizes]
    return AssignmentProblem(
        layers, [(u, v, rng.uniform(0, 1, (sizes[u], sizes[v]))) for u, v in edges]
    )


@settings(deadline=None, max_examples=80)
@given(problems(series_parallel=True))
def test_series_parallel_graphs_are_solved_exactly(problem):
    assignment = best_assignment(problem)
    assert assignment.bound == assignment.cost
    assert assignment.cost == pytest.approx(problem.cost(assignment.options))
    assert assignment.cost == pytest.approx(_exhaustive(problem))


@settings(deadline=None, max_examples=15)
@given(problems(series_parallel=False))
def test_the_relaxation_bounds_the_optimum(problem):
    assignment = best_assignment(problem)
    optimum = _exhaustive(problem)
    assert assignment.bound <= optimum * (1 + 1e-9)
    assert assignment.cost >= optimum * (1 - 1e-9)


@pytest.mark.parametrize("workers", [1, 2, 4, 6])
@pytest.mark.parametrize("hidden", [0.0, 0.9])
def test_no_regret_against_exhaustive_search(workers, hidden):
    networks = [
        (mm.nn.Sequential(mm.nn.Dense(64), mm.nn.Dense(512)), (8, 32)),
        (
            mm.nn.Sequential(mm.nn.Conv2d(8, 3, padding=1), mm.nn.Flatten(), mm.nn.Dense(16)),
            (4, 3, 8, 8),
        ),
    ]
    for network, shape in networks:
        graph = layer_graph(network, shape)
        for mesh in meshes(workers):
            tables = CostTables(graph, mesh, CostModel(K80))
            problem = assignment_problem(tables, hidden)
            if prod(len(own) for own in problem.layers) > 200_000:
                # The input and the loss cost nothing themselves: fix them at their best option.
                problem = _without_ends(problem)
            assert best_assignment(problem).cost == pytest.approx(_exhaustive(problem), rel=1e-12)


def _without_ends(problem):
    """The problem without its first and last layer, whose best option for each option of their
    only neighbours is added to these."""
    layers = list(problem.layers)
    last = len(layers) - 1
    edges = []
    for u, v, table in problem.edges:
        if u == 0:
            layers[v] = layers[v] + (layers[0][:, None] + table).min(axis=0)
        elif v == last:
            layers[u] = layers[u] + (layers[last][None, :] + table).min(axis=1)
        else:
            edges.append((u - 1, v - 1, table))
    return AssignmentProblem(layers[1:-1], edges)


# plans --------------------------------------------------------------------------------------------


def is_hybrid(candidate: MeshCandidate) -> bool:
    """Return True if convolutions divide samples, and at least one dense layer its outputs or
    inputs."""
    products = [
        (layer, option)
        for layer, option in zip(candidate.tables.graph.layers, candidate.options, strict=True)
        if layer.rows
    ]
    convolutions = [option for layer, option in products if layer.kind == "Conv2d"]
    dense = [option for layer, option in products if layer.kind != "Conv2d"]
    divides = [bool({OUTPUT, INPUT} & set(option)) for option in dense]
    return all(set(o) <= {BATCH, REPLICATED} for o in convolutions) and any(divides)


def test_alexnet_finds_one_weird_trick():
    plan = mm.parallel.plan(NETWORKS["alexnet"](), (1024, 3, 224, 224), "k80-fdr", 64)
    assert is_hybrid(plan.candidate)
    assert plan.gap == 0.0
    strategies = {name: step.seconds for name, step in plan.search.strategies.items()}
    assert plan.seconds < strategies["data"]
    assert plan.seconds < strategies["model"]
    convolutions = [one for one in plan.layers if one.kind == "Conv2d"]
    dense = [one for one in plan.layers if one.kind == "Dense"]
    assert {choice for one in convolutions for choice in one.option} == {"batch"}
    assert all({"input", "output"} & set(one.option) for one in dense)
    assert str(plan).count("batch × batch") >= 5


def test_a_plan_is_never_slower_than_a_fixed_strategy():
    network = mm.nn.Sequential(mm.nn.Dense(4096), mm.nn.Dense(4096), mm.nn.Dense(10))
    for machine in ("ethernet-10g", "dgx-h200"):
        for batch in (8, 8192):
            plan = mm.parallel.plan(network, (batch, 1024), machine, 8)
            fixed = [step.seconds for step in plan.search.strategies.values() if step]
            assert plan.seconds <= min(fixed)


def test_equal_blocks_are_evaluated_and_eliminated_once():
    def counts(blocks):
        layers = [mm.nn.Residual(mm.nn.Dense(64, activation="relu")) for _ in range(blocks)]
        graph = layer_graph(mm.nn.Sequential(mm.nn.Dense(64), *layers), (256, 64))
        with recording() as times:
            tables = CostTables(graph, PlannerMesh((64, 64)), CostModel(K80))
            best_assignment(assignment_problem(tables))
        return times.counts

    few, many = counts(4), counts(40)
    assert few["evaluated layers"] == many["evaluated layers"] < 8
    assert few["evaluated edges"] == many["evaluated edges"] < 8


@pytest.mark.parametrize(("name", "layers"), [("resnet50", 60), ("vgg16", 18)])
def test_plans_for_4096_workers_evaluate_each_kind_of_layer_once(name, layers):
    graph = layer_graph(NETWORKS[name](), (32 * 4096, *NETWORKS[name].image))
    assert len(graph.layers) > layers
    kinds = len({layer.signature for layer in graph.layers})
    with recording() as times:
        tables = CostTables(graph, PlannerMesh((64, 64)), CostModel(K80))
        assignment = best_assignment(assignment_problem(tables))
    assert assignment.bound == assignment.cost
    assert times.counts["evaluated layers"] == kinds
    assert times.counts["evaluated edges"] <= 2 * kinds + 2
    if name == "resnet50":
        assert kinds < len(graph.layers) / 2


def test_memory_is_a_constraint():
    network, shape = mm.nn.Sequential(mm.nn.Dense(4096), mm.nn.Dense(4096)), (4096, 256)
    free = mm.parallel.plan(network, shape, "k80-fdr", 4)
    tight = mm.parallel.plan(network, shape, "k80-fdr", 4, memory=0.75 * free.memory)
    assert tight.memory <= 0.75 * free.memory
    assert tight.search.best.bound <= tight.search.best.seconds * (1 + 1e-9)
    for strategy in ("auto", "data", "model", "hybrid"):
        with pytest.raises(MemoryLimitError, match="more workers"):
            mm.parallel.plan(network, shape, "k80-fdr", 4, memory=1e6, strategy=strategy)


def test_fixed_strategies_fit_the_memory_of_the_machine():
    small = replace(K80, memory=1e6)
    with pytest.raises(MemoryLimitError, match="more than 0.001 GB"):
        mm.parallel.plan(mm.nn.Dense(4096), (64, 4096), small, 4, strategy="data")
    whole = mm.parallel.plan(
        mm.nn.Dense(4096), (64, 4096), small, 4, strategy="data", memory=math.inf
    )
    assert whole.memory > 1e6


def test_workers_of_this_machine_are_its_processors():
    processors = processor_count()
    network = mm.nn.Dense(64)
    mm.parallel.plan(network, (512, 64), "here", processors)
    for strategy in ("auto", "data"):
        with pytest.raises(OptionError, match=f"has {processors} workers, one for each"):
            mm.parallel.plan(network, (512, 64), "here", processors + 1, strategy=strategy)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_one_worker_stands_for_all_equal_ones(workers):
    graph = layer_graph(NETWORKS["lenet5"](), (64, 1, 28, 28))
    best = search_meshes(graph, CostModel(K80), workers, K80.memory).best
    assert simulated_step(best).seconds == pytest.approx(
        simulated_step(best, every_worker=True).seconds
    )


@pytest.mark.parametrize("shape", [(2, 4), (4, 4), (8, 2)])
def test_one_worker_stands_for_concurrent_groups_that_share_a_port(shape):
    graph = layer_graph(mm.nn.Sequential(mm.nn.Dense(512), mm.nn.Dense(512)), (64, 256))
    tables = CostTables(graph, PlannerMesh(shape), CostModel(K80))
    options = [("batch", "output") if layer.rows else ("batch",) * 2 for layer in graph.layers]
    made = MeshCandidate(tables, tuple(options), 0.0, 0.0, 0.0, 0.0)
    assert simulated_step(made).seconds == pytest.approx(
        simulated_step(made, every_worker=True).seconds
    )


def test_overlap_hides_messages_and_a_straggler_shows():
    plan = mm.parallel.plan(NETWORKS["lenet5"](), (512, 1, 28, 28), "ethernet-10g", 4)
    assert plan.simulate(overlap=False).seconds > plan.seconds
    slow = plan.simulate(slowdown={1: 3.0})
    assert slow.seconds > 1.5 * plan.seconds
    assert slow.timeline.busy_seconds(1, "compute") == pytest.approx(
        3 * slow.timeline.busy_seconds(0, "compute")
    )


def test_a_replicated_update_is_hidden_by_the_next_forward_pass():
    network = mm.nn.Sequential(*[mm.nn.Dense(2048) for _ in range(4)])
    graph = layer_graph(network, (4096, 2048))
    data = uniform_candidate(
        CostTables(graph, PlannerMesh((4,)), CostModel(load_machine("ethernet-10g"))), "batch"
    )
    sharded, plain = simulated_step(data, sharded=True), simulated_step(data)
    assert sharded.seconds < plain.seconds


def test_bad_arguments():
    with pytest.raises(MagmathError, match="needs a module"):
        mm.parallel.plan("alexnet", (1, 2))
    with pytest.raises(DataError, match="no machine 'abacus', and no file of this name exists"):
        mm.parallel.plan(mm.nn.Dense(2), (1, 2), "abacus")
    with pytest.raises(DataError, match="the number of workers as workers="):
        mm.parallel.plan(mm.nn.Dense(2), (1, 2), 8)


@pytest.mark.parametrize(
    ("setting", "values"),
    [("algorithm", ["rnig", ""]), ("slots", [-3, 1.5]), ("speed", [0, -1.0, math.nan, math.inf]),
     ("memory", [math.nan, -1])],
)  # fmt: skip
def test_settings_without_a_meaning_are_refused(setting, values):
    for strategy in ("auto", "data"):
        for value in values:
            with pytest.raises(OptionError, match=f"plan: {setting} must be"):
                mm.parallel.plan(
                    mm.nn.Dense(8), (64, 4), "dgx-h200", 2, strategy=strategy, **{setting: value}
                )


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical", "tree", "pairwise", "bruck"])
def test_a_named_algorithm_is_one_of_those_that_are_compared(algorithm):
    made = [
        mm.parallel.plan(mm.nn.Dense(100), (64, 50), "dgx-h200", 16, strategy="data", algorithm=x)
        for x in (None, algorithm)
    ]
    assert made[0].seconds <= made[1].seconds


def test_files(tmp_path):
    plan = mm.parallel.plan(mm.nn.Dense(8), (16, 4), "dgx-h200", 2)
    plan.save_svg(tmp_path / "plan.svg")
    plan.save_timeline(tmp_path / "step.json")
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert "traceEvents" in (tmp_path / "step.json").read_text()
    with pytest.raises(MagmathError, match="must end with"):
        plan.save_timeline(tmp_path / "step.txt")
    with pytest.raises(OptionError, match=r"save_svg: the name of the file must end with .svg, "):
        plan.save_svg(tmp_path / "plan.png")
    assert not (tmp_path / "plan.png").exists()
    assert plan.as_data()["workers"] == 2


@pytest.mark.parametrize("workers", [1024, 1025])
def test_one_worker_represents_very_many_in_a_file(workers, tmp_path):
    plan = mm.parallel.plan(mm.nn.Dense(8), (workers, 4), "dgx-h200", workers, strategy="data")
    plan.save_timeline(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert len({event["pid"] for event in events}) == (workers if workers <= 1024 else 1)
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(1e6 * plan.timeline().seconds)


def test_slow_workers_of_a_plan_are_checked(tmp_path):
    made = mm.parallel.plan(mm.nn.Dense(8), (64, 8), "ethernet-10g", 3)
    for slowdown in ({7: 3.0}, {1: -3.0}, {1: 0}, {1: math.nan}):
        with pytest.raises(OptionError, match="slowdown"):
            made.simulate(slowdown=slowdown)
        with pytest.raises(OptionError, match="slowdown"):
            made.timeline(slowdown=slowdown)
    assert len(repr(made.simulate(slowdown={1: 3.0}))) < 200
    for worker in range(3):  # which exchange nothing
        slow = made.simulate(slowdown={worker: 3.0})
        assert slow.seconds == pytest.approx(3 * made.seconds)
    for save in (made.save_svg, made.save_timeline):
        with pytest.raises(OptionError, match=r"the folder .*missing does not exist"):
            save(tmp_path / "missing" / "plan.svg")


@pytest.mark.parametrize(
    ("strategy", "batch", "message"),
    [("model", 64, "outputs, but no layer has more than 2"),
     ("hybrid", 64, "outputs, but no layer has more than 2"),
     ("data", 4, "samples, but no layer has more than 4")],
)  # fmt: skip
def test_fixed_strategies_that_divide_nothing_are_refused(strategy, batch, message):
    with pytest.raises(OptionError, match=message):
        mm.parallel.plan(mm.nn.Dense(2), (batch, 8), "ethernet-10g", 16, strategy=strategy)
    mm.parallel.plan(mm.nn.Dense(2), (batch, 8), "ethernet-10g", 2, strategy=strategy)
    mm.parallel.plan(mm.nn.Dense(2), (batch, 8), "ethernet-10g", 16)
