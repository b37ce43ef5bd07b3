"""`bench overlap`: communication overlapped with computation, compared with waiting for it."""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark

BANDWIDTHS = (1.25e9, 1.25e8)  # bytes a second: 10 and 1 gigabit
TRAINED = ((64, 1024, 4), (256, 1024, 4))  # batch, width, layers
STEPS = 8


def _cases(options: RunOptions) -> list[Case]:
    bandwidths: tuple[float, ...] = BANDWIDTHS[:1] if options.quick else BANDWIDTHS
    if options.hosts is not None:
        bandwidths = (0.0,)
    trained = [_training(*shape, b) for shape in TRAINED for b in bandwidths]
    return [*trained, *[_replication(b) for b in bandwidths]]


def _training(batch: int, width: int, layers: int, bandwidth: float) -> Case:
    parameters = {"what": "training", "batch": batch, "width": width, "layers": layers}
    return Case(
        name=f"step of {width}×{layers}, batch {batch}, {_network(bandwidth)}",
        parameters={**parameters, "steps": STEPS, "bandwidth": bandwidth},
        work=batch * STEPS,
        unit="images/s",
        group=f"batch {batch}",
        x=bandwidth,
    )


def _replication(bandwidth: float) -> Case:
    return Case(
        name=f"replicate 32 MB concurrently with products, {_network(bandwidth)}",
        parameters={"what": "replication", "bandwidth": bandwidth, "steps": STEPS},
        work=STEPS,
        unit="s",
        group="replicate",
        x=bandwidth,
    )


def _network(bandwidth: float) -> str:
    return f"{bandwidth / 1.25e8:g} Gb/s" if bandwidth else "between the hosts"


def _systems(options: RunOptions) -> list[System]:
    contestant = "magmath.bench.contestants.overlap:overlap"
    return [
        System(
            name,
            contestant,
            settings={"workers": options.workers, "hosts": options.hosts, "overlapped": overlapped},
        )
        for name, overlapped in (("overlapped", True), ("waiting", False))
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [Comparison("waiting", "overlapped", ("waiting",), constant_mark(1.0))]


BENCH = Bench(
    "overlap",
    "messages over a network, concurrent with computation",
    "bytes a second",
    _cases,
    _systems,
    _comparisons,
    uses_hosts=True,
)
"""The workers have one thread each. Without hosts they share no memory, and messages take as long
as on a link of the bandwidth."""
