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
REACHED = 0.03
LAST = 1000
WINDOW = 100
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
    averaging a pair for each worker.
    """
    most = max(WORKERS)
    draw = mm.random.default_rng(0)
    samples = draw.uniform(size=(steps, seeds, most), dtype=mm.float32)
    own = draw.normal(size=(2, seeds, most), dtype=mm.float32)
    share = np.array([[(i < n) / n for i in range(most)] for n in WORKERS], np.float32)
    shares = mm.asarray(share[:, None, :])
    grid = mm.asarray((np.arange(GRID, dtype=np.float32) + 0.5) / GRID)
    first = [mm.broadcast_to(x[:, :1], (len(WORKERS), seeds, 1)) for x in (own[0], own[1])]
    apart = [mm.broadcast_to(x, (len(WORKERS), seeds, most)) for x in (own[0], own[1])]

    def mean(values: Any) -> Any:
        return mm.sum(values * shares, axis=2, keepdims=True)

    def true_loss(weight: Any, bias: Any) -> Any:
        error = mm.sigmoid(weight * grid + bias) - _wanted(grid)
        return mm.mean(0.5 * error * error, axis=2)

    def step(state: Any, given: Any) -> tuple[Any, Any]:
        (w, b, v, c), (x, number) = state, given
        loss, slopes = _slopes(w, b, x)
        w, b = (p - RATE * mean(g) for p, g in zip((w, b), slopes, strict=True))
        own_loss, slopes = _slopes(v, c, x)
        v, c = (p - RATE * g for p, g in zip((v, c), slopes, strict=True))
        exchanges = mm.astype(number % every == 0, x.dtype)
        means = mean(v), mean(c)
        v, c = (p + exchanges * (m - p) for p, m in zip((v, c), means, strict=True))
        losses = [mean(loss)[:, :, 0], true_loss(w, b), mean(own_loss)[:, :, 0], true_loss(*means)]
        return (w, b, v, c), mm.stack(losses)

    numbers = mm.arange(1, steps + 1)
    _, found = mm.scan(step, (*first, *apart), (samples, numbers))
    losses = np.asarray(found)
    return Curves(losses[:, 0], losses[:, 1]), Curves(losses[:, 2], losses[:, 3])


def _wanted(x: Any) -> Any:
    return mm.astype(x >= 0.5, x.dtype)


def _slopes(weight: Any, bias: Any, x: Any) -> tuple[Any, tuple[Any, Any]]:
    """Return half the squared error of every sample, and its derivatives by weight and bias."""
    output = mm.sigmoid(weight * x + bias)
    error = output - _wanted(x)
    slope = error * output * (1.0 - output)
    return 0.5 * error * error, (slope * x, slope)


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
                f"Means over {WINDOW} steps and all seeds; the bands have 80 % of the seeds. "
                "Compare the report's Fig. 2.1.",
            ),
            *[_table(name, found) for name, found in curves.items()],
            *[finding for name, found in curves.items() for finding in _findings(name, found)],
        ),
        {
            name: {"workers": WORKERS, "steps_to_loss": c.reached(), "noise": c.noise()}
            for name, c in curves.items()
        },
    )


def _figure(curves: dict[str, Curves]) -> Figure:
    figure = new_figure(5.6)
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for (name, found), axes in zip(curves.items(), panels, strict=True):
        _panel(axes, found)
        axes.set_title(name)
    panels[1].set_xlabel("steps of each worker")
    panels[0].legend(title="workers")
    return figure


def _panel(axes: Axes, found: Curves) -> None:
    steps = len(found.sampled) // WINDOW
    means = found.sampled[: steps * WINDOW].reshape(steps, WINDOW, len(WORKERS), -1).mean(axis=1)
    at = (np.arange(steps) + 0.5) * WINDOW
    for i, workers in enumerate(WORKERS):
        low, high = np.quantile(means[:, i], (0.1, 0.9), axis=1)
        (line,) = axes.plot(at, means[:, i].mean(axis=1), label=str(workers))
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(ylabel="loss", yscale="log")
    axes.grid(alpha=0.3)


def _table(name: str, found: Curves) -> Table:
    rows = zip(
        WORKERS,
        found.reached(),
        found.noise(),
        [float(x) for x in found.true[-1].mean(axis=1)],
        strict=True,
    )
    return Table.of(
        f"With {name}",
        ("workers", f"steps to a loss of {REACHED}", "noise", "final loss"),
        rows,
        f"Loss: of all x, with the averaged weights. Noise: standard deviation of the loss of the "
        f"samples over the last {LAST} steps.",
    )


def _findings(name: str, found: Curves) -> list[Finding]:
    reached, noise = found.reached(), found.noise()
    slower, calmer = reached[-1] / reached[0], noise[0] / noise[-1]
    return [
        Finding(
            f"Convergence is slower with more workers ({name})",
            "slower from 2 to 16 workers (a figure without numbers)",
            f"{WORKERS[-1]} workers need {slower:.2f} × the steps of {WORKERS[0]}, that is "
            f"{slower * WORKERS[-1] / WORKERS[0]:.1f} × the samples",
            agrees=slower > 1.05,
            reason=""
            if slower > 1.05
            else f"an average of {name.split()[0]}s has the expectation of one worker's "
            f"{name.split()[0]}, so a step makes about the same progress; counted in samples, more "
            "workers are slower, as the report says",
        ),
        Finding(
            f"The loss is less noisy with more workers ({name})",
            "less noisy from 2 to 16 workers (a figure without numbers)",
            f"the noise with {WORKERS[0]} workers is {calmer:.2f} × that with {WORKERS[-1]}; "
            f"the mean of independent samples gives √{WORKERS[-1] // WORKERS[0]} = "
            f"{(WORKERS[-1] / WORKERS[0]) ** 0.5:.2f}",
            agrees=calmer > 1.5,
            reason="" if calmer > 1.5 else "the noise does not fall as the number of samples grows",
        ),
    ]


EXPERIMENT = Experiment(
    "shm-neuron",
    "SHM-Learn-Dist: a single neuron on 2 to 16 workers",
    "SHM-Learn-Dist report, §3, Fig. 2.1",
    run,
)
