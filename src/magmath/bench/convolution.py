"""`bench conv`: every distinct 3×3 convolution of VGG-16, ResNet-18 and ResNet-50, each pass,
against oneDNN through torch."""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.bench.layers import PEERS

ORDERS = ("NCHW", "channels-last")
PASSES = ("forward", "data", "filter")
# (channels, outputs, extent of the image, stride), padding 1
VGG16 = [
    (3, 64, 224, 1),
    (64, 64, 224, 1),
    (64, 128, 112, 1),
    (128, 128, 112, 1),
    (128, 256, 56, 1),
    (256, 256, 56, 1),
    (256, 512, 28, 1),
    (512, 512, 28, 1),
    (512, 512, 14, 1),
]
RESNET18 = [
    (64, 64, 56, 1),
    (64, 128, 56, 2),
    (128, 128, 28, 1),
    (128, 256, 28, 2),
    (256, 256, 14, 1),
    (256, 512, 14, 2),
    (512, 512, 7, 1),
]
RESNET50 = [(128, 128, 56, 2), (256, 256, 28, 2), (512, 512, 14, 2)]  # the others are ResNet-18's
QUICK = [(64, 64, 56, 1), (128, 128, 28, 1), (128, 256, 28, 2), (512, 512, 7, 1)]
BATCH, QUICK_BATCH = 16, 4
FLOPS_PER_ROUND = 2e10


def _cases(options: RunOptions) -> list[Case]:
    shapes = QUICK if options.quick else [*VGG16, *RESNET18, *RESNET50]
    batch = QUICK_BATCH if options.quick else BATCH
    return [_case(batch, *shape, direction) for shape in shapes for direction in PASSES]


def _case(
    batch: int, channels: int, outputs: int, extent: int, stride: int, direction: str
) -> Case:
    flops = 18.0 * batch * channels * outputs * (extent // stride) ** 2
    repeats = max(1, round(FLOPS_PER_ROUND / flops))
    step = f", stride {stride}" if stride > 1 else ""
    return Case(
        name=f"{channels}→{outputs} at {extent}×{extent}{step}, {direction}",
        parameters={
            "shape": [batch, channels, outputs, extent, stride],
            "direction": direction,
            "repeats": repeats,
        },
        work=flops * repeats / 1e9,
        unit="GFLOP/s",
        group=direction,
        x=flops,
    )


def _systems(options: RunOptions) -> list[System]:
    own, peer = "magmath.bench.contestants.convolution:kernel", f"{PEERS}.convolution:onednn"
    return [
        *[System(f"magmath {order}", own, settings={"order": order}) for order in ORDERS],
        *[System(f"oneDNN {order}", peer, "torch", settings={"order": order}) for order in ORDERS],
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    """Compare each memory order with the faster one of oneDNN."""
    others = tuple(f"oneDNN {order}" for order in ORDERS)
    return [
        Comparison(f"{order} / best oneDNN", f"magmath {order}", others, constant_mark(1.0))
        for order in ORDERS
    ]


BENCH = Bench(
    "conv", "3×3 convolutions of VGG-16 and ResNet", "flops", _cases, _systems, _comparisons
)
