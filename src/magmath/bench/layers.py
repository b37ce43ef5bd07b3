"""`bench layers`: a training step of MLPs of 1 to 16 layers, against PyTorch, JAX and
TensorFlow."""

from __future__ import annotations

from typing import NamedTuple, final

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


@final
class MlpShape(NamedTuple):
    """The batch, the width and number of the hidden layers, and the images of an epoch."""

    batch: int
    width: int
    layers: int
    images: int


SHAPES = [
    MlpShape(100, 528, 1, 6400),
    MlpShape(100, 528, 2, 6400),
    MlpShape(100, 528, 4, 6400),
    MlpShape(100, 528, 8, 6400),
    MlpShape(100, 528, 16, 6400),
    MlpShape(32, 128, 8, 6400),
    MlpShape(1000, 528, 4, 8000),
]
QUICK = [MlpShape(100, 528, 4, 6400), MlpShape(32, 128, 8, 6400)]
# A round should last about as long for a small network as for a large one.
FLOPS_PER_ROUND = 4e10


def training_case(batch: int, width: int, layers: int, images: int, device: str = "cpu") -> Case:
    """Training the MLP 784-width×layers-10 for some epochs; work in images."""
    weights = 784 * width + (layers - 1) * width**2 + 10 * width
    epochs = max(1, round(FLOPS_PER_ROUND / (6 * weights * images)))
    return Case(
        name=f"{width}×{layers}, batch {batch}",
        parameters={
            "batch": batch,
            "width": width,
            "layers": layers,
            "images": images,
            "epochs": epochs,
            "device": device,
        },
        work=images * epochs,
        unit="images/s",
        group=f"width {width}, batch {batch}",
        x=layers,
    )


def _cases(options: RunOptions) -> list[Case]:
    shapes = QUICK if options.quick else SHAPES
    return [training_case(*shape, options.device) for shape in shapes]


def _systems(options: RunOptions) -> list[System]:
    return [
        System("magmath", "magmath.bench.contestants.mlp:mlp", settings={"workers": 0}),
        System("PyTorch eager", f"{PEERS}.torch:eager", peer="torch"),
        System("PyTorch compiled", f"{PEERS}.torch:compiled", peer="torch"),
        System("JAX", f"{PEERS}.jax:mlp", peer="jax"),
        System(
            "TensorFlow",
            f"{PEERS}.tensorflow:mlp",
            peer="tensorflow",
            unsupported_reason=on_cpu,
        ),
        System(
            "bare GEMMs",
            "magmath.bench.contestants.gemm_roofline:gemms",
            unsupported_reason=on_cpu,
        ),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    pytorch = ("PyTorch eager", "PyTorch compiled")
    return [
        Comparison("best peer", "magmath", (*pytorch, "JAX", "TensorFlow"), constant_mark(1.10)),
        Comparison("PyTorch", "magmath", pytorch, constant_mark(1.4)),
        Comparison("GEMM rate", "magmath", ("bare GEMMs",), constant_mark(0.92)),
    ]


BENCH = Bench(
    "layers",
    "training step of MLPs of 1 to 16 layers",
    "layers",
    _cases,
    _systems,
    _comparisons,
    uses_gpus=True,
)
