"""`bench conv`: every distinct 3×3 convolution of VGG-16, ResNet-18 and ResNet-50, each pass,
against oneDNN through torch."""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System, constant_mark

ORDERS = ("NCHW", "channels-last")
PASSES = ("forward", "data", "filter")


@final
class FilterShape(NamedTuple):
    """The channels and outputs of a 3×3 convolution with padding 1, the extent of its image, and
    its stride."""

    channels: int
    outputs: int
    extent: int
    stride: int = 1


VGG16 = [
    FilterShape(3, 64, 224),
    FilterShape(64, 64, 224),
    FilterShape(64, 128, 112),
    FilterShape(128, 128, 112),
    FilterShape(128, 256, 56),
    FilterShape(256, 256, 56),
    FilterShape(256, 512, 28),
    FilterShape(512, 512, 28),
    FilterShape(512, 512, 14),
]
RESNET18 = [
    FilterShape(64, 64, 56),
    FilterShape(64, 128, 56, stride=2),
    FilterShape(128, 128, 28),
    FilterShape(128, 256, 28, stride=2),
    FilterShape(256, 256, 14),
    FilterShape(256, 512, 14, stride=2),
    FilterShape(512, 512, 7),
]
RESNET50 = [FilterShape(n, n, extent, stride=2) for n, extent in ((128, 56), (256, 28), (512, 14))]
"""Those that ResNet-18 does not have."""
QUICK = [
    FilterShape(64, 64, 56),
    FilterShape(128, 128, 28),
    FilterShape(128, 256, 28, stride=2),
    FilterShape(512, 512, 7),
]
BATCH, QUICK_BATCH = 16, 4
FLOPS_PER_ROUND = 2e10


def _cases(options: RunOptions) -> list[Case]:
    shapes = QUICK if options.quick else [*VGG16, *RESNET18, *RESNET50]
    batch = QUICK_BATCH if options.quick else BATCH
    return [_case(batch, shape, direction) for shape in shapes for direction in PASSES]


def _case(batch: int, shape: FilterShape, direction: str) -> Case:
    channels, outputs, extent, stride = shape
    flops = 18.0 * batch * channels * outputs * (extent // stride) ** 2
    repeats = max(1, round(FLOPS_PER_ROUND / flops))
    step = f", stride {stride}" if stride > 1 else ""
    return Case(
        name=f"{channels}→{outputs} at {extent}×{extent}{step}, {direction}",
        parameters={
            "shape": [batch, *shape],
            "direction": direction,
            "repeats": repeats,
        },
        work=flops * repeats / 1e9,
        unit="GFLOP/s",
        group=direction,
        x=flops,
    )


def _systems(options: RunOptions) -> list[System]:
    contestant, peer = "magmath.bench.contestants.convolution:kernel", f"{PEERS}.convolution:onednn"
    return [
        *[System(f"magmath {order}", contestant, settings={"order": order}) for order in ORDERS],
        *[System(f"oneDNN {order}", peer, "torch", settings={"order": order}) for order in ORDERS],
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    """Compare each memory order with the faster one of oneDNN."""
    peers = tuple(f"oneDNN {order}" for order in ORDERS)
    return [
        Comparison(f"{order} / best oneDNN", f"magmath {order}", peers, constant_mark(1.0))
        for order in ORDERS
    ]


BENCH = Bench(
    "conv", "3×3 convolutions of VGG-16 and ResNet", "flops", _cases, _systems, _comparisons
)
