"""The networks of `bench cnn` and `bench infer`: the zoo's, and the same numbers for each system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.bench import parallel, scaling
from magmath.bench.case import RunOptions
from magmath.bench.contestants import networks as own
from magmath.bench.contestants import strategies
from magmath.bench.peers.networks import NETWORKS, ZOO_SETTINGS, NetworkProblem, draw_weights
from magmath.bench.peers.torch_networks import TorchInference, TorchTrainer

# The least sizes at which adaptive pooling in the zoo's networks changes nothing.
SIZES = {"alexnet_cifar": 32, "resnet18": 8, "resnet50": 32, "googlenet": 32, "inception_v3": 75}


@pytest.fixture
def inline() -> Iterator[Any]:
    with current("inline") as pool:
        yield pool


def test_every_network_has_settings_and_the_papers_parameters() -> None:
    assert set(NETWORKS) == set(ZOO_SETTINGS) <= set(mm.nn.zoo.NETWORKS)
    counts = {
        name: sum(array.size for array in draw_weights(NETWORKS[name], (3, size, size)))
        for name, size in SIZES.items()
    }
    assert counts == {
        "alexnet_cifar": 7_506_762,
        "resnet18": 11_173_962,
        "resnet50": 25_557_032,
        "googlenet": 6_998_552,
        "inception_v3": 23_834_568,
    }


@pytest.mark.parametrize("name", ["alexnet_cifar", "resnet18", "googlenet"])
def test_weights_are_in_the_order_of_the_zoo(name: str, inline: Any) -> None:
    size = SIZES[name]
    problem = NetworkProblem(name, 1, size, 1)
    network = mm.nn.zoo.NETWORKS[name](classes=problem.classes, **ZOO_SETTINGS[name])
    network.build((1, 3, size, size))
    shapes = [parameter.shape for parameter in network.parameters()]
    assert shapes == [array.shape for array in problem.weights()]


def test_torch_computes_the_same_network(inline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "SETTLE_SECONDS", 1e-3)
    monkeypatch.setattr(own, "use_workers", lambda *_: None)
    # smaller maps amplify rounding
    case = {"network": "resnet18", "batch": 4, "size": 16, "epochs": 1, "workers": 0}
    problem = NetworkProblem.of(case)
    for contestant, twin in ((own.train(), TorchTrainer), (own.infer(), TorchInference)):
        contestant.prepare(case)
        mine = contestant.finish()["loss"]
        for last in (False, True):
            trainer = twin(problem, last)
            trainer.train(1)
            assert mine == pytest.approx(trainer.loss(), rel=1e-4)


@pytest.mark.parametrize("module", ["jax", "tensorflow"])
def test_other_frameworks_compute_the_same_network(module: str) -> None:
    pytest.importorskip(module, reason=f"{module} comes with the extra 'bench'")
    from importlib import import_module

    peer = import_module(f"magmath.bench.peers.{module}_networks")
    problem = NetworkProblem("alexnet_cifar", 2, 32, 1)
    for kind in ("train", "infer"):
        expected = (TorchTrainer if kind == "train" else TorchInference)(problem)
        expected.train(1)
        for build in getattr(peer, kind)()._variants(problem).values():
            trainer = build()
            trainer.train(1)
            assert trainer.loss() == pytest.approx(expected.loss(), rel=1e-4)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_runtimes_compute_the_same_network(runtime: str) -> None:
    pytest.importorskip(runtime, reason=f"{runtime} comes with the extra 'bench'")
    pytest.importorskip("onnx", reason="onnx comes with the extra 'bench'")
    from magmath.bench.peers import onnx_networks

    problem = NetworkProblem("googlenet", 1, 32, 1)
    for build in getattr(onnx_networks, runtime)()._variants(problem).values():
        assert build().loss() == pytest.approx(TorchInference(problem).loss(), rel=1e-4)


def test_problem_is_the_same_for_everyone() -> None:
    problem = NetworkProblem.of(
        {"network": "resnet18", "batch": 2, "size": 8, "epochs": 3, "workers": 0}
    )
    for array, again in zip(problem.weights(), problem.weights(), strict=True):
        np.testing.assert_array_equal(array, again)
    np.testing.assert_array_equal(problem.data()[0], problem.data()[0])


@pytest.mark.parametrize("network", ["alexnet_cifar", "resnet18"])
def test_strategies_train_the_same_network(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "SETTLE_SECONDS", 1e-3)
    monkeypatch.setattr(own, "use_workers", lambda *_: None)
    case = {"network": network, "batch": 4, "size": 32, "epochs": 1, "workers": 2}
    losses = []
    for kind, workers, strategy in (
        ("inline", 1, "auto"),
        ("shared", 2, "data"),
        ("shared", 2, "model"),
    ):
        with current(kind, workers):
            contestant = strategies.train()
            contestant.prepare({**case, "strategy": strategy})
            losses.append(contestant.finish()["loss"])
    np.testing.assert_allclose(losses, losses[0], rtol=2e-3)


def test_parallel_benchmarks_have_networks_of_images() -> None:
    cases = [case.name for case in parallel.strategy_cases(RunOptions())]
    assert "AlexNet-CIFAR, batch 128" in cases
    assert "ResNet-18, 32×32, batch 128" in cases
    for bench in (parallel.BENCH, scaling.BENCH):
        names = [system.name for system in bench.systems(RunOptions())]
        for comparison in bench.comparisons(RunOptions()):
            assert {comparison.own, *comparison.others} <= set(names)
