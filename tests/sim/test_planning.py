"""Planning: its work for growing programs, its choices, and its caches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.core.byte_sizes import ALIGNMENT
from magmath.core.dtypes import uint8
from magmath.core.resources import memory_share, processor_count
from magmath.core.stage_times import StageTimes, count, recording, stage
from magmath.cost import GemmRate, Link, Machine, current_machine, store_machine
from magmath.engine import session
from magmath.graph import Graph
from magmath.layout import Layout, Mesh
from magmath.nn import Dense, NeuralNetwork
from magmath.optim import Adam, GradientDescent
from magmath.parallel import per_layer
from magmath.passes import parameter_layouts
from magmath.passes.candidate_cost import cost_cache_of
from magmath.passes.fold_epilogues import fold_epilogues
from magmath.passes.layer_blocks import LayerOptions
from magmath.passes.node_cost import node_seconds
from magmath.passes.parameter_layouts import ChosenOptions, clear_option_caches
from magmath.passes.place import place_with_nodes
from magmath.passes.simplify import merge_equal, simplify
from magmath.program.arena import arrange
from magmath.program.instructions import Program, Slot


def mlp(layers: int, width: int = 32, optimizer: Any = None) -> NeuralNetwork:
    """A classifier of equal dense layers."""
    hidden = [Dense(width, activation="relu") for _ in range(layers - 1)]
    return NeuralNetwork([*hidden, Dense(10)], optimizer=optimizer or GradientDescent(0.1), seed=3)


def data(width: int = 32, batch: int = 64, seed: int = 0) -> tuple[Any, Any]:
    """Samples and labels."""
    generator = np.random.default_rng(seed)
    samples = generator.standard_normal((batch, width)).astype(np.float32)
    return samples, generator.integers(0, 10, batch)


def planned_anew(layers: int, strategy: str) -> StageTimes:
    """What planning the step of an MLP took, with nothing known of earlier plans."""
    cost_cache_of.cache_clear()
    clear_option_caches()
    session.set_current_pool(session.engine().pool)
    net = mlp(layers)
    net.build((1, 32))
    with recording() as times:
        net.fit(*data(), batch_size=64, epochs=0, strategy=strategy)
    return times


# growth -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["shared", "messages"])
@pytest.mark.parametrize("workers", [2, 4])
def test_choosing_a_strategy_is_linear_in_the_layers(kind: str, workers: int) -> None:
    with current(kind, workers):
        few, many = (planned_anew(layers, "auto").counts for layers in (20, 40))
        assert few["evaluated candidates"] > 0
        assert few["evaluated nodes"] > 0
        for name in ("evaluated nodes", "nodes"):
            assert many[name] <= 2.2 * few[name], name
        assert many["evaluated candidates"] == few["evaluated candidates"], "layers are equal"


@pytest.mark.parametrize("kind", ["shared", "messages"])
@pytest.mark.parametrize("workers", [2, 4])
def test_choosing_a_strategy_builds_no_plans(kind: str, workers: int) -> None:
    """Passes run once for each program, the step included; the search counts nodes of a few whole
    steps, and of three different layers."""
    with current(kind, workers):
        auto, model = (planned_anew(20, strategy).counts for strategy in ("auto", "model"))
        for name in ("simplify", "place", "fold", "lower"):
            assert auto[name] == auto["programs"], name
        assert auto["programs"] <= model["programs"] + 4
        assert auto["evaluated nodes"] <= 8 * auto["nodes"]


@pytest.mark.parametrize("strategy", ["data", "model", "model-input"])
def test_nodes_that_equal_layers_share_are_decided_once(strategy: str) -> None:
    with current("shared", 2):
        few, many = (planned_anew(layers, strategy).counts for layers in (20, 40))
        assert many["evaluated candidates"] == few["evaluated candidates"] > 0


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 2)])
def test_recurrent_gradients_are_planned_in_linear_size(kind: str, workers: int) -> None:
    def instructions(steps: int) -> int:
        weights, x = mm.asarray(np.eye(8) * 0.5), mm.asarray(np.ones((4, 8)))

        @mm.compile
        def slope(w: Any, x: Any) -> Any:
            h = x
            for _ in range(steps):
                h = mm.tanh(h @ w + x)
            return mm.grad(mm.sum(h * h), w)

        slope(weights, x)
        programs = list(session.engine()._programs)
        return max(len(compiled.program.instructions) for compiled in programs)

    with current(kind, workers):
        few = instructions(100)
        assert instructions(200) <= 2.1 * few


@pytest.mark.parametrize("strategy", ["auto", "data", "model"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 4)])
def test_a_second_fit_on_data_of_the_same_shape_plans_nothing(
    kind: str, workers: int, strategy: str
) -> None:
    with current(kind, workers):
        net = mlp(4)
        net.fit(*data(seed=1), batch_size=32, epochs=2, strategy=strategy)
        with recording() as times:
            net.fit(*data(seed=2), batch_size=32, epochs=2, strategy=strategy)
        assert times.counts["trace"] == 0
        for name in ("programs", "place", "simplify", "evaluated candidates", "evaluated nodes"):
            assert times.counts[name] == 0, name


# choices ------------------------------------------------------------------------------------------


def greedy(step: Graph, layers: Sequence[LayerOptions], environment: Any) -> float:
    """The predicted seconds of the best mixture that changing one layer at a time finds, each trial
    by a plan of the whole step."""
    names = list(layers[0].options)
    step, layers = parameter_layouts._with_options(step, layers, [names[0]] * len(layers))
    step = simplify(step)

    def cost(choice: list[str]) -> float:
        changed, _ = parameter_layouts._with_options(step, layers, choice)
        planned = merge_equal(fold_epilogues(place_with_nodes(changed, environment)[0]))
        return sum(node_seconds(node, environment) for node in planned.nodes)

    least, best = min((cost([name] * len(layers)), [name] * len(layers)) for name in names)
    improved = True
    while improved:
        improved = False
        for i in range(len(layers)):
            for name in names:
                trial = [*best[:i], name, *best[i + 1 :]]
                if trial != best and (seconds := cost(trial)) < 0.999 * least:
                    best, least, improved = trial, seconds, True
    return least


@pytest.mark.parametrize("optimizer", [GradientDescent(0.1), Adam(1e-2)])
@pytest.mark.parametrize("widths", [(32, 24), (64, 64, 64, 64), (128, 2048, 256), (2048, 2048)])
@pytest.mark.parametrize(("kind", "workers"), [("shared", 4), ("messages", 2)])
def test_choice_is_no_worse_than_changing_one_layer_at_a_time(
    kind: str, workers: int, widths: Sequence[int], optimizer: Any, monkeypatch: Any
) -> None:
    result: list[tuple[ChosenOptions, float]] = []

    def watched(step: Graph, layers: Sequence[LayerOptions], environment: Any) -> ChosenOptions:
        chosen = parameter_layouts.choose_options(step, layers, environment)
        result.append((chosen, greedy(step, layers, environment)))
        return chosen

    monkeypatch.setattr(per_layer, "choose_options", watched)
    with current(kind, workers):
        layers = [Dense(width, activation="relu") for width in widths]
        net = NeuralNetwork([*layers, Dense(10)], optimizer=optimizer, seed=3)
        net.fit(*data(), batch_size=32, epochs=0, strategy="auto")
    ((chosen, other),) = result
    assert chosen.seconds["auto"] <= 1.002 * other  # blocks have few layouts at their borders
    assert chosen.seconds["auto"] <= min(chosen.seconds.values())


# memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_arena_places_each_temporary_at_the_lowest_free_offset(seed: int) -> None:
    draw = random.Random(seed)
    slots = []
    for _ in range(draw.randrange(1, 60)):
        first = draw.randrange(40)
        shape = (draw.randrange(0, 400),)
        layout = Layout.replicated_on(shape, Mesh.line(1))
        last = min(first + draw.randrange(20), 40)
        slots.append(Slot(shape, uint8, layout, "temporary", first=first, last=last))
    program = Program(slots, [], [], [], [], {}, 1)
    arena = arrange(program)
    nbytes = [-(-slot.shape[0] // ALIGNMENT) * ALIGNMENT for slot in slots]
    placed: list[int] = []
    for i in sorted(range(len(slots)), key=lambda i: (-nbytes[i], i)):
        busy = sorted(
            (arena.offsets[j], arena.offsets[j] + nbytes[j])
            for j in placed
            if slots[i].first <= slots[j].last and slots[j].first <= slots[i].last
        )
        offset = 0
        for start, stop in busy:
            if start - offset >= nbytes[i]:
                break
            offset = max(offset, stop)
        assert arena.offsets[i] == offset
        placed.append(i)
    assert arena.nbytes == max(arena.offsets[i] + nbytes[i] for i in placed)


# the machine --------------------------------------------------------------------------------------


def test_measured_machine_is_kept_and_used(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path / "cache"))
    assert current_machine() == Machine()
    link = Link(latency=1.0, bandwidth=2.0, shared_memory=True, barrier=3.0)
    machine = Machine((GemmRate("float64", 2, 5.0),), bandwidth=7.0, shared=link, source="test")
    store_machine(machine)
    machine = replace(machine, memory=memory_share(processor_count()))  # that of this process
    assert current_machine() == machine
    with current("shared", 2):
        environment = session.engine().environment
        assert environment.machine == machine
        assert environment.link == link
        assert environment.bandwidth == 7.0


@pytest.mark.parametrize("quota", [None, 2])
def test_constants_are_those_of_the_processors_and_the_memory_of_this_process(
    quota: int | None, tmp_path: Any, monkeypatch: Any
) -> None:
    """Those that a process measures with two processors are wrong for one with 64."""

    def restrict(processors: int, memory: int) -> None:
        mask = set(range(processors if quota is None else 64))
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: mask)
        if quota is not None:
            monkeypatch.setattr("magmath.core.cgroup.cpu_quota", lambda root: float(processors))
        monkeypatch.setattr("magmath.core.cgroup.memory_limit", lambda root: memory)

    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path / "cache"))
    restrict(2, 8 << 30)
    store_machine(Machine(source="two", memory=1e15))
    assert current_machine().source == "two"
    assert current_machine().memory <= 4 << 30
    restrict(2, 2 << 30)
    assert current_machine().memory <= 1 << 30
    restrict(64, 8 << 30)
    assert current_machine() == Machine()


def test_machine_knows_the_nearest_rate() -> None:
    rates = (GemmRate("float32", 1, 1.0), GemmRate("float32", 8, 6.0), GemmRate("float64", 1, 0.5))
    machine = Machine(rates, bandwidth=1.0, host_bandwidth=3.0)
    assert machine.gemm_flops(mm.float32, 7) == 6.0
    assert machine.gemm_flops(mm.float64, 8) == 0.5
    assert machine.gemm_flops(mm.int32, 1) == 1.0
    assert machine.worker_bandwidth(1, 2) == 2.0
    assert machine.worker_bandwidth(4, 2) == 0.75


def _in_a_stage() -> None:
    with stage("of another thread"):
        count("things")


def test_stages_are_recorded_without_those_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([0.0, 1.0, 5.0, 7.0])  # outer and inner begin, inner and outer end
    monkeypatch.setattr("time.thread_time", lambda: next(readings))
    with stage("outside"):
        count("ignored")
    with recording() as times, stage("outer"):
        with stage("inner"):
            pass
        count("things", 3)
        other = Thread(target=_in_a_stage)
        other.start()
        other.join()
    assert dict(times.counts) == {"inner": 1, "outer": 1, "things": 3}
    assert dict(times.seconds) == {"inner": 4.0, "outer": 3.0}
