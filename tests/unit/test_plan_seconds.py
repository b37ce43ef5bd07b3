"""Predicted seconds of plans that are not built: they are those of the passes' plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engines import current, engine_of
from graphs import expressions, stepping
from magmath.core.dtypes import float32
from magmath.engine import session
from magmath.graph import Graph, Node, apply
from magmath.layout import Layout
from magmath.nn import BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, NeuralNetwork
from magmath.ops import OPERATIONS
from magmath.ops.leaves import variable_leaf
from magmath.ops.product import panel_products
from magmath.ops.product.contraction import matmul
from magmath.optim import Adam, GradientDescent, Momentum
from magmath.parallel import per_layer
from magmath.passes import parameter_layouts
from magmath.passes.environment import Environment
from magmath.passes.fold_epilogues import fold_epilogues
from magmath.passes.layer_blocks import LayerOptions
from magmath.passes.node_cost import node_seconds
from magmath.passes.parameter_layouts import ChosenOptions
from magmath.passes.place import place_with_nodes
from magmath.passes.plan_seconds import PlanSeconds
from magmath.passes.simplify import merge_equal, simplify

KINDS = [("shared", 2), ("shared", 4), ("messages", 2), ("messages", 3), ("exact", 3)]
phases = [Phase.explicit, Phase.reuse, Phase.generate]
random_graphs = settings(max_examples=60, suppress_health_check=list(HealthCheck), phases=phases)


def seconds_of_passes(
    graph: Graph, layouts: Mapping[Node, Layout], environment: Environment
) -> float:
    """The predicted seconds of the graph that `place` and `fold_epilogues` build."""
    moved = graph.substituted({leaf: leaf.replace((), to) for leaf, to in layouts.items()})
    built = merge_equal(fold_epilogues(place_with_nodes(moved, environment)[0]))
    return sum(node_seconds(node, environment) for node in built.nodes)


def check(graph: Graph, layouts: Mapping[Node, Layout], environment: Environment) -> None:
    """Assert that the predictions are equal."""
    plan = PlanSeconds(graph, environment)
    expected = seconds_of_passes(graph, layouts, environment)
    assert plan.seconds(layouts) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert plan.seconds(layouts) == pytest.approx(expected, rel=1e-9, abs=1e-15), "once more"


@pytest.mark.parametrize(("kind", "workers"), KINDS)
@given(data=st.data())
@random_graphs
def test_random_graphs(kind: str, workers: int, data: st.DataObject) -> None:
    engine = engine_of(kind, workers)
    if data.draw(st.booleans()):
        outputs, _ = data.draw(expressions(engine))
        graph = Graph(tuple(outputs))
    else:
        graph = data.draw(stepping(engine)).graph
    check(simplify(engine.pending_graph(graph)), {}, engine.environment)


@contextmanager
def steps_of_auto(monkeypatch: Any) -> Iterator[list[tuple[Graph, list[LayerOptions], Any]]]:
    """The steps, layers and environments for which `auto` chooses options in the block."""
    asked: list[tuple[Graph, list[LayerOptions], Any]] = []
    choose = parameter_layouts.choose_options

    def watched(step: Graph, layers: Any, environment: Any) -> ChosenOptions:
        asked.append((step, layers, environment))
        return choose(step, layers, environment)

    with monkeypatch.context() as patch:
        patch.setattr(per_layer, "choose_options", watched)
        yield asked


def dense() -> list[Any]:
    """Layers with different activations, for samples of 32 numbers."""
    return [Dense(64, activation="relu"), Dense(64, activation="tanh"), Dense(10)]


def images() -> list[Any]:
    """A small convolutional network."""
    return [Conv2d(8, 3, activation="relu"), BatchNorm(), Conv2d(8, 3, activation="relu"),
            MaxPool2d(2), Flatten(), Dense(32, activation="relu"), Dense(10)]  # fmt: skip


@pytest.mark.parametrize("metrics", [[], ["accuracy"]])
@pytest.mark.parametrize("optimizer", [GradientDescent, Momentum, Adam])
@pytest.mark.parametrize(("layers", "shape"), [(dense, (32,)), (images, (3, 16, 16))])
@pytest.mark.parametrize(("kind", "workers"), [("shared", 2), ("shared", 3), ("messages", 4)])
def test_steps_of_networks_in_any_mixture_of_options(
    kind: str,
    workers: int,
    layers: Any,
    shape: tuple[int, ...],
    optimizer: Any,
    metrics: list[str],
    monkeypatch: Any,
) -> None:
    generator = np.random.default_rng(0)
    samples = generator.standard_normal((64, *shape)).astype(np.float32)
    with current(kind, workers), steps_of_auto(monkeypatch) as asked:
        net = NeuralNetwork(layers(), optimizer=optimizer(0.1), seed=3)
        labels = generator.integers(0, 10, 64)
        options: dict[str, Any] = {"strategy": "auto", "metrics": metrics}
        net.fit(samples, labels, batch_size=32, epochs=0, **options)
        ((step, owners, environment),) = asked
        graph, names = simplify(step), list(owners[0].options)
        mixtures = [[name] * len(owners) for name in names]
        mixtures += [list(generator.choice(names, len(owners))) for _ in range(4)]
        for mixture in mixtures:
            pairs = zip(owners, mixture, strict=True)
            layouts = {x: to for owner, name in pairs for x, to in owner.layouts(name)}
            check(graph, layouts, environment)


def test_a_decomposition_is_priced_when_it_is_chosen() -> None:
    """The position of a maximum along a split axis: by segments, or of the gathered array."""
    with current("shared", 2):
        environment = session.engine().environment
        x = variable_leaf((64, 4096), float32, Layout.even((64, 4096), environment.mesh, 1), None)
        graph = Graph((apply(OPERATIONS["argmax"], x, axis=1, keepdims=False),))
        check(graph, {}, environment)
        built = place_with_nodes(graph, environment)[0]
        assert "take_along" in {node.name for node in built.nodes}, "by segments"


def test_panels_are_priced_without_epilogues(monkeypatch: Any) -> None:
    monkeypatch.setattr(panel_products, "PANEL_BYTES", 1 << 12)
    with current("messages", 2):
        environment = session.engine().environment
        shape = (256, 256)
        a, b = (
            variable_leaf(shape, float32, Layout.even(shape, environment.mesh, d), None)
            for d in (0, 1)
        )
        check(Graph((matmul(a, b),)), {}, environment)


def test_updates_share_the_negative_of_a_rate() -> None:
    """One node, although the weight update of each layer contains it."""
    with current("inline", 1):
        environment = session.engine().environment
        rate = variable_leaf((), float32, environment.replicated(()), None)
        outputs, targets = [], []
        for n in (16, 16, 24):
            w, g = (
                variable_leaf((n, n), float32, environment.replicated((n, n)), None) for _ in "wg"
            )
            step = apply(OPERATIONS["multiply"], rate, matmul(g, g))
            outputs.append(apply(OPERATIONS["subtract"], w, step))
            targets.append(w)
        graph = simplify(Graph(tuple(outputs), tuple(targets)))
        built = merge_equal(fold_epilogues(place_with_nodes(graph, environment)[0]))
        assert [node.name for node in built.nodes].count("negative") == 1
        check(graph, {}, environment)
