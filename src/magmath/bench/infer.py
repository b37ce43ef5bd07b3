"""`bench infer`: inference of convolutional networks, against other frameworks and runtimes."""

from __future__ import annotations

from magmath.bench.case import (
    PEERS,
    Bench,
    Case,
    Comparison,
    RunOptions,
    System,
    constant_mark,
    on_cpu,
)
from magmath.bench.cnn import PYTORCH, network_cases, network_systems

BATCHES = (1, 16)


def _cases(options: RunOptions) -> list[Case]:
    return network_cases(options, "infer", BATCHES)


def _systems(options: RunOptions) -> list[System]:
    return [
        *network_systems(),
        System(
            "ONNX Runtime",
            f"{PEERS}.onnx_networks:onnxruntime",
            peer="onnxruntime",
            unsupported_reason=on_cpu,
        ),
        System(
            "OpenVINO",
            f"{PEERS}.onnx_networks:openvino",
            peer="openvino",
            unsupported_reason=on_cpu,
        ),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    peers = (*PYTORCH, "JAX", "TensorFlow", "ONNX Runtime", "OpenVINO")
    return [
        Comparison("best peer", "magmath", peers, constant_mark(1.0)),
        Comparison("PyTorch", "magmath", PYTORCH, constant_mark(1.0)),
    ]


BENCH = Bench(
    "infer",
    "inference of convolutional networks",
    "network",
    _cases,
    _systems,
    _comparisons,
    uses_gpus=True,
)
