"""`bench conv`: every distinct 3×3 convolution of VGG-16, ResNet-18 and ResNet-50, each pass,
against oneDNN through torch; `bench conv-large`: convolutions with larger filters."""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System, constant_mark

ORDERS = ("NCHW", "channels-last")
PASSES = ("forward", "data", "filter")


@final
class FilterShape(NamedTuple):
    """The channels and outputs of a convolution, the extent of its image, its stride, and the
    extent of its filter; the padding is half of the filter."""

    channels: int
    outputs: int
    extent: int
    stride: int = 1
    kernel: int = 3


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
LARGE_FILTERS = [
    FilterShape(64, 192, 27, kernel=5),  # AlexNet
    FilterShape(64, 64, 56, kernel=7),
    FilterShape(128, 128, 28, kernel=7),
    FilterShape(64, 32, 48, kernel=9),
    FilterShape(32, 32, 64, kernel=11),
    FilterShape(64, 64, 32, kernel=11),
]
QUICK = [
    FilterShape(64, 64, 56),
    FilterShape(128, 128, 28),
    FilterShape(128, 256, 28, stride=2),
    FilterShape(512, 512, 7),
]
BATCH, QUICK_BATCH = 16, 4
FLOPS_PER_ROUND = 2e10


def _cases(options: RunOptions) -> list[Case]:
    return _cases_of(QUICK if options.quick else [*VGG16, *RESNET18, *RESNET50], options)


def _large_cases(options: RunOptions) -> list[Case]:
    return _cases_of(LARGE_FILTERS[1::2] if options.quick else LARGE_FILTERS, options)


def _cases_of(shapes: list[FilterShape], options: RunOptions) -> list[Case]:
    batch = QUICK_BATCH if options.quick else BATCH
    return [_case(batch, shape, direction) for shape in shapes for direction in PASSES]


def _case(batch: int, shape: FilterShape, direction: str) -> Case:
    channels, outputs, extent, stride, kernel = shape
    flops = 2.0 * kernel**2 * batch * channels * outputs * (extent // stride) ** 2
    repeats = max(1, round(FLOPS_PER_ROUND / flops))
    step = f", stride {stride}" if stride > 1 else ""
    size = f", {kernel}×{kernel}" if kernel != 3 else ""
    return Case(
        name=f"{channels}→{outputs} at {extent}×{extent}{step}{size}, {direction}",
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
LARGE_FILTERS_BENCH = Bench(
    "conv-large", "convolutions with large filters", "flops",
    _large_cases, _systems, _comparisons,
)  # fmt: skip
