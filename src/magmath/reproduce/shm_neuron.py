"""SHM-Learn-Dist's experiment with a single neuron: the effect of averaging over workers.

A sigmoid neuron learns f(x) = [x ≥ 0.5] by stochastic gradient descent, one sample a step for each
worker. The workers are logical replicas, an axis of the arrays, so the curves do not depend on the
number of processes. All numbers of workers and all seeds run at once, in one compiled loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

import magmath as mm
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Finding, Plot, Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = npt.NDArray[np.float32]
WORKERS = (2, 4, 8, 16)
RATE = 0.5
STEPS = 10_000
SEEDS, QUICK_SEEDS = 32, 8
EVERY = 10
"""Steps between two averagings of the weights: with one, both methods are the same from the second
step on (Eq. 2.3)."""
GRID = 32
"""Points of [0, 1) over which the true loss is averaged."""
REACHED = 0.03
"""The loss for which the steps are counted."""
LAST = 1000
"""Steps at the end of training in which the noise is measured."""
AVERAGED_STEPS = 100
"""Steps that a point of the plot averages."""
METHODS = ("gradient averaging", "weight averaging")


@final
@dataclass(frozen=True)
class Curves:
    """Losses of one method: `sampled`, (steps, workers, seeds), of the samples of each step, mean
    over the workers; `true`, of the averaged weights, mean over all x."""

    sampled: Numbers
    true: Numbers

    def reached(self) -> list[float]:
        """Return for each number of workers the first step at which the true loss, mean over the
        seeds, is at most `REACHED`; infinite if there is none."""
        below = self.true.mean(axis=2) <= REACHED
        return [float(np.argmax(b)) + 1 if b.any() else float("inf") for b in below.T]

    def noise(self) -> list[float]:
        """Return for each number of workers the standard deviation of the sampled loss over the
        last steps, mean over the seeds."""
        return [float(x) for x in self.sampled[-LAST:].std(axis=0).mean(axis=1)]


def train(steps: int, seeds: int, every: int = EVERY) -> tuple[Curves, Curves]:
    """Return the curves of gradient and weight averaging, in the current pool.

    Weights and bias begin as normal random numbers: for gradient averaging one pair, for weight
    averaging a pair for each worker. The axes of all arrays are (numbers of workers, seeds,
    workers); the workers of smaller numbers are the first ones.
    """
    most = max(WORKERS)
    draw = mm.random.default_rng(0)
    samples = draw.uniform(size=(steps, seeds, most), dtype=mm.float32)
    initial = draw.normal(size=(2, seeds, most), dtype=mm.float32)
    common = [mm.broadcast_to(x[:, :1], (len(WORKERS), seeds, 1)) for x in (initial[0], initial[1])]
    own = [mm.broadcast_to(x, (len(WORKERS), seeds, most)) for x in (initial[0], initial[1])]
    share = np.array([[(i < n) / n for i in range(most)] for n in WORKERS], np.float32)
    shares = mm.asarray(share[:, None, :])
    grid = mm.asarray((np.arange(GRID, dtype=np.float32) + 0.5) / GRID)

    def mean(values: Any) -> Any:
        return mm.sum(values * shares, axis=2, keepdims=True)

    def step(state: Any, row: Any) -> tuple[Any, Any]:
        (common, own), (x, number) = state, row
        common_loss, gradients = _loss_and_gradients(common, x)
        common = [p - RATE * mean(g) for p, g in zip(common, gradients, strict=True)]
        own_loss, gradients = _loss_and_gradients(own, x)
        own = [p - RATE * g for p, g in zip(own, gradients, strict=True)]
        means = [mean(p) for p in own]
        exchanges = mm.astype(number % every == 0, x.dtype)
        own = [p + exchanges * (m - p) for p, m in zip(own, means, strict=True)]
        sampled = [mean(loss)[:, :, 0] for loss in (common_loss, own_loss)]
        return [common, own], mm.stack([*sampled, *[_loss_on(grid, p) for p in (common, means)]])

    numbers = mm.arange(1, steps + 1)
    losses = np.asarray(mm.scan(step, [common, own], (samples, numbers))[1])
    return Curves(losses[:, 0], losses[:, 2]), Curves(losses[:, 1], losses[:, 3])


def _target(x: Any) -> Any:
    """Return the function that the neuron learns."""
    return mm.astype(x >= 0.5, x.dtype)


def _loss_on(grid: Any, parameters: list[Any]) -> Any:
    """Return the mean loss of a weight and a bias over the points of a grid."""
    weight, bias = parameters
    error = mm.sigmoid(weight * grid + bias) - _target(grid)
    return mm.mean(0.5 * error * error, axis=2)


def _loss_and_gradients(parameters: list[Any], x: Any) -> tuple[Any, list[Any]]:
    """Return half the squared error of every sample, and its derivatives by weight and bias."""
    weight, bias = parameters
    output = mm.sigmoid(weight * x + bias)
    error = output - _target(x)
    slope = error * output * (1.0 - output)
    return 0.5 * error * error, [slope * x, slope]


def run(options: Options) -> Section:
    """Train with 2 to 16 logical workers and both averagings."""
    seeds = QUICK_SEEDS if options.quick else SEEDS
    with mm.init(threads=1):
        curves = dict(zip(METHODS, train(STEPS, seeds), strict=True))
    return Section(
        (
            f"A sigmoid neuron learns f(x) = [x ≥ 0.5], x uniform in [0, 1), squared error, "
            f"learning rate {RATE}, {STEPS:,} steps for each worker with one sample a step, "
            f"{seeds} seeds. The report's figure has one run for each number of workers. Weights "
            f"are averaged every {EVERY} steps, from different initial weights; after every step "
            "it would be gradient averaging (Eq. 2.3).",
            Plot(
                "Loss of the samples against the step",
                _figure(curves),
                f"Means over {AVERAGED_STEPS} steps and all seeds; the bands have 80 % of the "
                f"seeds. "
                "Compare the report's Fig. 2.1.",
            ),
            *[_table(*item) for item in curves.items()],
            *[finding for item in curves.items() for finding in _findings(*item)],
        ),
        {
            method: {"workers": WORKERS, "steps_to_loss": c.reached(), "noise": c.noise()}
            for method, c in curves.items()
        },
    )


def _figure(curves_by_method: dict[str, Curves]) -> Figure:
    figure = new_figure(5.6)
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for (method, curves), axes in zip(curves_by_method.items(), panels, strict=True):
        _panel(axes, curves)
        axes.set_title(method)
    panels[1].set_xlabel("steps of each worker")
    panels[0].legend(title="workers")
    return figure


def _panel(axes: Axes, curves: Curves) -> None:
    steps = len(curves.sampled) // AVERAGED_STEPS
    means = (
        curves.sampled[: steps * AVERAGED_STEPS]
        .reshape(steps, AVERAGED_STEPS, len(WORKERS), -1)
        .mean(axis=1)
    )
    middles = (np.arange(steps) + 0.5) * AVERAGED_STEPS
    for i, workers in enumerate(WORKERS):
        low, high = np.quantile(means[:, i], (0.1, 0.9), axis=1)
        (line,) = axes.plot(middles, means[:, i].mean(axis=1), label=str(workers))
        axes.fill_between(middles, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(ylabel="loss", yscale="log")
    axes.grid(alpha=0.3)


def _table(method: str, curves: Curves) -> Table:
    rows = zip(
        WORKERS,
        curves.reached(),
        curves.noise(),
        [float(x) for x in curves.true[-1].mean(axis=1)],
        strict=True,
    )
    return Table.of(
        f"With {method}",
        ("workers", f"steps to a loss of {REACHED}", "noise", "final loss"),
        rows,
        f"Loss: of all x, with the averaged weights. Noise: standard deviation of the loss of the "
        f"samples over the last {LAST} steps.",
    )


def _findings(method: str, curves: Curves) -> list[Finding]:
    reached, noise = curves.reached(), curves.noise()
    slower, calmer = reached[-1] / reached[0], noise[0] / noise[-1]
    fewest, most = WORKERS[0], WORKERS[-1]
    averaged = method.split()[0]
    return [
        Finding.checked(
            f"Convergence is slower with more workers ({method})",
            "slower from 2 to 16 workers (a figure without numbers)",
            f"{most} workers need {slower:.2f} × the steps of {fewest}, that is "
            f"{slower * most / fewest:.1f} × the samples",
            slower > 1.05,
            f"an average of {averaged}s has the expectation of one worker's {averaged}, so a step "
            "makes about the same progress; counted in samples, more workers are slower, as the "
            "report says",
        ),
        Finding.checked(
            f"The loss is less noisy with more workers ({method})",
            "less noisy from 2 to 16 workers (a figure without numbers)",
            f"the noise with {fewest} workers is {calmer:.2f} × that with {most}; the mean of "
            f"independent samples gives √{most // fewest} = {(most / fewest) ** 0.5:.2f}",
            calmer > 1.5,
            "the noise does not fall as the number of samples grows",
        ),
    ]


EXPERIMENT = Experiment(
    "shm-neuron",
    "SHM-Learn-Dist: a single neuron on 2 to 16 workers",
    "SHM-Learn-Dist report, §3, Fig. 2.1",
    run,
)
