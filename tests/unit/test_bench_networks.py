"""The networks of `bench cnn` and `bench infer`: the zoo's, and the same numbers for each system."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.bench import parallel, scaling
from magmath.bench.case import Case, RunOptions, System
from magmath.bench.contestants import networks as own
from magmath.bench.contestants import strategies
from magmath.bench.peer_processes import SystemProcesses
from magmath.bench.peers.network_layers import draw_weights
from magmath.bench.peers.network_problem import NetworkProblem
from magmath.bench.peers.networks import NETWORKS, ZOO_SETTINGS
from magmath.bench.peers.torch_networks import network as torch_network

# The least sizes at which adaptive pooling in the zoo's networks changes nothing.
SIZES = {
    "alexnet_cifar": 32, "resnet18": 8, "resnet50": 32, "googlenet": 32, "inception_v3": 75,
    "mobilenet_v2": 32,
}  # fmt: skip


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
        "mobilenet_v2": 3_504_872,
    }


@pytest.mark.parametrize("name", ["alexnet_cifar", "resnet18", "googlenet", "mobilenet_v2"])
def test_weights_are_in_the_order_of_the_zoo(name: str, inline: Any) -> None:
    size = SIZES[name]
    problem = NetworkProblem(name, 1, size, 1)
    network = mm.nn.zoo.NETWORKS[name](classes=problem.classes, **ZOO_SETTINGS[name])
    network.build((1, 3, size, size))
    shapes = [parameter.shape for parameter in network.parameters()]
    assert shapes == [array.shape for array in problem.weights()]


CASES = {
    "resnet18": [
        ("train", "float32", 1e-4),
        ("train", "mixed-bfloat16", 0.03),
        ("train", "mixed-float16", 0.01),
        ("infer", "float32", 1e-4),
        ("infer", "mixed-bfloat16", 0.03),
        ("infer", "bfloat16", 0.03),
        ("infer", "float16", 0.01),
    ],
    # Not trained in half types: PyTorch takes minutes for their depthwise gradients where processors
    # have no such arithmetic.
    "mobilenet_v2": [
        # A step on small maps amplifies rounding: PyTorch's two memory orders differ as much.
        ("train", "float32", 1e-2),
        ("infer", "float32", 1e-4),
        ("infer", "mixed-bfloat16", 0.03),
        ("infer", "bfloat16", 0.03),
        ("infer", "float16", 0.01),
    ],
}
"""Purposes and precisions of each network, and the greatest relative difference of the losses."""


# Batch and size by network and purpose; maps of training have at least 2×2 pixels.
IMAGES = {
    ("resnet18", "train"): (8, 9), ("resnet18", "infer"): (2, 9),
    ("mobilenet_v2", "train"): (8, 48), ("mobilenet_v2", "infer"): (2, 33),
}  # fmt: skip


@pytest.mark.parametrize(
    ("network", "purpose", "precision", "limit"),
    [(network, *case) for network, cases in CASES.items() for case in cases],
)
def test_torch_computes_the_same_network(
    network: str,
    purpose: str,
    precision: str,
    limit: float,
    inline: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own, "WARM_UP_SECONDS", 1e-3)
    monkeypatch.setattr(own, "use_workers", lambda *_: None)
    batch, size = IMAGES[network, purpose]
    case = {
        "network": network, "batch": batch, "size": size, "epochs": 1, "workers": 0,
        "purpose": purpose, "precision": precision,
    }  # fmt: skip
    contestant = own.compiled()
    contestant.prepare(case)
    mine = contestant.finish()["loss"]
    # PyTorch competes in both memory orders, except in half types, where one is far slower.
    for last in (False, True) if precision == "float32" else (True,):
        counterpart = torch_network(NetworkProblem.of(case), last)
        counterpart.train(1)
        assert mine == pytest.approx(counterpart.loss(), rel=limit)


def test_memory_of_the_first_steps_is_measured() -> None:
    """At least that of the weights and their gradients, of which no copies remain."""
    problem = NetworkProblem("alexnet_cifar", 16, 32, 1)
    case = Case("case", {**asdict(problem), "workers": 0}, 1.0, "images/s", "training", 0)
    system = System("PyTorch", "magmath.bench.peers.torch_networks:eager", peer="torch")
    processes = SystemProcesses(system, sys.executable)
    try:
        peak = processes.peak_bytes(case, "eager")
    finally:
        processes.stop()
    assert 2 * 4 * 7_506_762 < peak < 10 * 4 * 7_506_762


def test_peak_of_memory_is_forgotten() -> None:
    """In a new process: threads of the tests' own process allocate memory at any time."""
    code = """if True:
        from magmath.bench.peers import resident_memory as memory

        before, size = memory.resident_bytes(), 100_000_000
        bytearray(b"1") * size
        assert memory.peak_resident_bytes() > before + 0.9 * size
        memory.forget_peak()
        assert memory.peak_resident_bytes() < before + 0.5 * size
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["jax", "tensorflow"])
@pytest.mark.parametrize("purpose", ["train", "infer"])
@pytest.mark.parametrize(
    ("network", "size", "limit"), [("alexnet_cifar", 32, 1e-4), ("mobilenet_v2", 64, 1e-2)]
)
def test_other_frameworks_compute_the_same_network(
    module: str, purpose: Any, network: str, size: int, limit: float
) -> None:
    pytest.importorskip(module, reason=f"{module} comes with the extra 'bench'")
    from importlib import import_module

    peer = import_module(f"magmath.bench.peers.{module}_networks")
    problem = NetworkProblem(network, 4, size, 1, purpose)
    expected = torch_network(problem)
    expected.train(1)
    for build in peer.compiled()._variants(problem).values():
        trainer = build()
        trainer.train(1)
        assert trainer.loss() == pytest.approx(expected.loss(), rel=limit)


@pytest.mark.parametrize("network", ["googlenet", "mobilenet_v2"])
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_runtimes_compute_the_same_network(runtime: str, network: str) -> None:
    pytest.importorskip(runtime, reason=f"{runtime} comes with the extra 'bench'")
    pytest.importorskip("onnx", reason="onnx comes with the extra 'bench'")
    from magmath.bench.peers import onnx_networks

    problem = NetworkProblem(network, 1, 32, 1, "infer")
    for build in getattr(onnx_networks, runtime)()._variants(problem).values():
        assert build().loss() == pytest.approx(torch_network(problem).loss(), rel=1e-4)


def test_problem_is_the_same_for_everyone() -> None:
    problem = NetworkProblem.of(
        {"network": "resnet18", "batch": 2, "size": 8, "epochs": 3, "workers": 0}
    )
    for array, again in zip(problem.weights(), problem.weights(), strict=True):
        np.testing.assert_array_equal(array, again)
    np.testing.assert_array_equal(problem.data()[0], problem.data()[0])


@pytest.mark.parametrize(("network", "size"), [("alexnet_cifar", 32), ("resnet18", 9)])
def test_strategies_train_the_same_network(
    network: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "WARM_UP_SECONDS", 1e-3)
    monkeypatch.setattr(own, "use_workers", lambda *_: None)
    case = {"network": network, "batch": 8, "size": size, "epochs": 1, "workers": 2}
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
