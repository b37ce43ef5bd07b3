"""`bench sequences`: a training step of an LSTM on sequences of 50 to 1,000 steps, against
PyTorch."""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark

# (length, units, batch)
SHAPES = [(50, 32, 32), (200, 32, 32), (1000, 32, 32), (50, 256, 32), (200, 256, 32)]
QUICK = [(50, 32, 32)]
FLOPS_PER_ROUND = 4e9


def _case(length: int, units: int, batch: int) -> Case:
    flops = 24.0 * length * batch * units**2  # of the products with hidden values
    steps = max(2, round(FLOPS_PER_ROUND / flops))
    return Case(
        name=f"{units} units, length {length}, batch {batch}",
        parameters={"length": length, "units": units, "batch": batch, "epochs": steps},
        work=batch * steps,
        unit="sequences/s",
        group=f"{units} units, batch {batch}",
        x=length,
    )


def _cases(options: RunOptions) -> list[Case]:
    return [_case(*shape) for shape in (QUICK if options.quick else SHAPES)]


def _systems(options: RunOptions) -> list[System]:
    contestant = "magmath.bench.contestants.sequences:lstm"
    return [
        System("magmath compiled", contestant, settings={"compiled": True}),
        System("magmath not compiled", contestant, settings={"compiled": False}),
        System("PyTorch", "magmath.bench.peers.torch_sequences:lstm", peer="torch"),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison("PyTorch, compiled", "magmath compiled", ("PyTorch",), constant_mark(1.0)),
        Comparison(
            "PyTorch, not compiled", "magmath not compiled", ("PyTorch",), lambda case: None
        ),
    ]


BENCH = Bench(
    "sequences",
    "training step of an LSTM, by the length of the sequences",
    "length",
    _cases,
    _systems,
    _comparisons,
)
