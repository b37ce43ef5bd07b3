"""MagmaDNN's comparison with other frameworks: training time against the number of dense layers.

The measurement is that of `magmath bench layers`: every framework in its own process, in
interleaved rounds, on the same cores and data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from magmath.bench import BENCHES, RunOptions
from magmath.bench.case import System
from magmath.bench.layers import training_case
from magmath.bench.result import BenchResult
from magmath.bench.runner import run_bench
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Cell, Finding, Plot, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH, WIDTH, IMAGES = 100, 528, 6400
LAYERS, QUICK_LAYERS = (1, 2, 4, 8, 16), (1, 2, 4)
OWN = "magmath"
QUICK_WITHOUT = ("PyTorch compiled", "bare GEMMs")
"""Systems that a quick run omits: they compile for minutes, or are not frameworks."""
FRAMEWORKS = (OWN, "PyTorch eager", "PyTorch compiled", "JAX", "TensorFlow")
EPOCH = 60_000
"""The images of an epoch of MNIST, for which times are given."""


def run(options: Options) -> Section:
    """Train MLPs of 784-528×L-10 with every installed framework."""
    layers = QUICK_LAYERS if options.quick else LAYERS
    cases = [training_case(BATCH, WIDTH, n, IMAGES) for n in layers]
    bench = replace(BENCHES["layers"], cases=lambda _: cases)
    if options.quick:
        bench = replace(bench, systems=_quick_systems)
    measured = run_bench(
        bench, RunOptions(peers=options.peers, quick=options.quick), options.console
    )
    measured.raise_if_incomplete()
    seconds = epoch_seconds(measured)
    return Section(
        (
            "The poster trains networks with a variable number of dense layers on one GPU (1050Ti) "
            "and finds MagmaDNN the fastest of TensorFlow, PyTorch and Theano. Here the networks "
            f"are 784-{WIDTH}×L-10 (batch {BATCH}, plain gradient descent, float32) on the "
            "processor, and magmath takes MagmaDNN's place.",
            Plot("Training time against the number of hidden layers", _figure(layers, seconds)),
            _table(layers, seconds, measured),
            *_findings(layers, seconds),
        ),
        {"seconds": seconds, "layers": layers, "absent": measured.absent},
    )


def _quick_systems(options: RunOptions) -> list[System]:
    systems = BENCHES["layers"].systems(options)
    return [system for system in systems if system.name not in QUICK_WITHOUT]


def epoch_seconds(measured: BenchResult) -> dict[str, list[float]]:
    """Return by framework the seconds for an epoch of 60,000 images, for each number of layers."""
    return {
        name: [EPOCH / case.rate(name) for case in measured.cases]
        for name in FRAMEWORKS
        if all(
            name in case.systems and case.systems[name].state == "measured"
            for case in measured.cases
        )
    }


def _figure(layers: tuple[int, ...], seconds: dict[str, list[float]]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for name, values in seconds.items():
        axes.plot(layers, values, marker="o", label=name)
    axes.set_xticks(layers)
    axes.set(xlabel="hidden layers", ylabel="seconds for 60,000 images", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _table(
    layers: tuple[int, ...], seconds: dict[str, list[float]], measured: BenchResult
) -> Table:
    absent = "; ".join(f"{name}: absent ({why})" for name, why in measured.absent.items())
    if measured.quick:
        absent = "; ".join([f"Left out of a quick run: {QUICK_WITHOUT[0]}", absent]).strip("; ")
    rows: list[tuple[Cell, ...]] = [(name, *values) for name, values in seconds.items()]
    return Table.of(
        "Seconds for 60,000 images",
        ("framework", *[f"{n} layers" if n > 1 else "1 layer" for n in layers]),
        rows,
        f"Medians of {measured.rounds} rounds in turns. {absent}".strip(),
    )


def _findings(layers: tuple[int, ...], seconds: dict[str, list[float]]) -> list[Finding]:
    own_seconds = seconds[OWN]
    growth = (own_seconds[-1] / own_seconds[0]) / (weights(layers[-1]) / weights(layers[0]))
    return [
        _fastest(layers, seconds),
        Finding.checked(
            "The time scales well with the number of layers",
            "scales well on dense networks (figure without numbers)",
            f"{layers[-1]} layers have {weights(layers[-1]) / weights(layers[0]):.1f} × the "
            f"weights of one and take {own_seconds[-1] / own_seconds[0]:.1f} × the time: "
            f"{growth:.2f} × the time for each weight",
            growth <= 1.1,
            "each weight costs more in the deeper networks",
        ),
    ]


def _fastest(layers: tuple[int, ...], seconds: dict[str, list[float]]) -> Finding:
    statement, paper = "It has the best performance", "faster than TensorFlow, PyTorch and Theano"
    other_seconds = {name: values for name, values in seconds.items() if name != OWN}
    if not other_seconds:
        return Finding(
            statement, paper, "no other framework was measured", None,
            "none is installed, or --peers none was given",
        )  # fmt: skip
    best = [min(values) for values in zip(*other_seconds.values(), strict=True)]
    ratios = [other / own for other, own in zip(best, seconds[OWN], strict=True)]
    text = ", ".join(f"{r:.2f} × with {n}" for n, r in zip(layers, ratios, strict=True))
    return Finding.checked(
        statement,
        paper,
        f"speed over the best of {', '.join(other_seconds)}, by layers: {text}",
        min(ratios) >= 1.0,
        "a ratio below 1 is a case where the other framework is faster, on the processor and with "
        "whatever else this machine was running",
    )


def weights(layers: int) -> int:
    """Return the number of weights of the network without biases."""
    return 784 * WIDTH + (layers - 1) * WIDTH**2 + 10 * WIDTH


EXPERIMENT = Experiment(
    "magmadnn-layers",
    "MagmaDNN: training time against the number of dense layers",
    "MagmaDNN poster, Fig. 4",
    run,
)
