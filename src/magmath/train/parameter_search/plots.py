"""Plots of a search, as in the SHM-Learn-Dist report: areas as histograms (Fig. 5.1–5.4) and as
matrices (Fig. 5.5–5.8), a panel for each number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.train.parameter_search.results import SearchResults, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.0  # inches
TICK_POINTS = 260  # of all labels of an axis in total
COLORS = {
    "finished": "tab:blue",
    "stopped": "tab:gray",
    "eliminated": "tab:gray",
    "diverged": "tab:red",
}
MARKS = {"stopped": ("≥", "black"), "eliminated": ("≥", "black"), "diverged": ("×", "tab:red")}
"""The marks in matrices, and their colors."""
LIGHT = {"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 1.0}


def histograms(results: SearchResults) -> Figure:
    """Return the areas of all trials, in the order of their least losses, the lowest first.

    Trials above the threshold are pale; trials that were stopped have the area at that time.
    """
    groups = _by_workers(results)
    figure, panels = _panels(len(groups), 2.6)
    for (workers, trials), axes in zip(groups.items(), panels, strict=True):
        shown = sorted([t for t in trials if t.state != "diverged"], key=lambda t: t.curve.minimum)
        for position, trial in enumerate(shown):
            opacity = 1.0 if trial.curve.minimum <= results.threshold else 0.35
            axes.bar(position, trial.curve.area, color=COLORS[trial.state], alpha=opacity)
        labels = [", ".join(map(str, _settings(trial).values())) for trial in shown]
        size = min(7.0, TICK_POINTS / max(len(shown), 1))
        axes.set_xticks(range(len(shown)), labels, rotation=90, fontsize=size)
        best = results.best_by_workers[workers]
        winner = "none" if best is None else _text(best)
        axes.set(
            title=f"{_title(workers)}best: {winner}",
            xlabel=", ".join(_settings(trials[0])),
            ylabel="area (loss · s)",
        )
    return figure


def matrices(
    results: SearchResults, rows: str = "batch_per_worker", columns: str = "learning_rate"
) -> Figure:
    """Return the areas as matrices of two settings.

    × marks a diverged trial, ≥ one that was stopped, whose area would have been larger; the winner
    has a frame. With other settings in the search, each cell has the smallest area.
    """
    from matplotlib.patches import Rectangle

    groups = _by_workers(results)
    figure, panels = _panels(len(groups), 2.8)
    for (workers, trials), axes in zip(groups.items(), panels, strict=True):
        downwards = sorted({t.settings[rows] for t in trials})
        across = sorted({t.settings.get(columns, "") for t in trials})
        areas = np.full((len(downwards), len(across)), np.nan)
        for (i, j), trial in _cells(trials, rows, columns, downwards, across).items():
            if trial.state in MARKS:
                mark, color = MARKS[trial.state]
                axes.text(j, i, mark, ha="center", va="center", color=color, bbox=LIGHT)
            if trial.state != "diverged":
                areas[i, j] = trial.curve.area
            if trial == results.best_by_workers[workers]:
                corner = (j - 0.5, i - 0.5)
                axes.add_patch(
                    Rectangle(
                        corner, 1, 1, fill=False, edgecolor="tab:red", linewidth=2, clip_on=False
                    )
                )
        image = axes.imshow(areas, aspect="auto", cmap="viridis")
        axes.set_xticks(range(len(across)), [str(value) for value in across])
        axes.set_yticks(range(len(downwards)), [str(value) for value in downwards])
        title = f"{_title(workers)}area (loss · s)"
        axes.set(title=title, xlabel=columns.replace("_", " "), ylabel=rows)
        figure.colorbar(image, ax=axes)
    return figure


def _cells(
    trials: list[Trial], rows: str, columns: str, downwards: list[Any], across: list[Any]
) -> dict[tuple[int, int], Trial]:
    """Return for each place in a matrix the trial with the smallest area; a diverged one only if
    there is no other."""
    cells: dict[tuple[int, int], Trial] = {}
    for trial in sorted(trials, key=lambda t: (t.state != "diverged", -t.curve.area)):
        i = downwards.index(trial.settings[rows])
        cells[i, across.index(trial.settings.get(columns, ""))] = trial
    return cells


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height * count), layout="constrained")
    return figure, [figure.add_subplot(count, 1, i + 1) for i in range(count)]


def _by_workers(results: SearchResults) -> dict[Any, list[Trial]]:
    groups: dict[Any, list[Trial]] = {}
    for trial in results.trials:
        groups.setdefault(trial.workers, []).append(trial)
    return groups


def _title(workers: int | None) -> str:
    return "" if workers is None else f"{workers} worker{'s' * (workers != 1)}; "


def _settings(trial: Trial) -> dict[str, Any]:
    """Return the settings that differ within a panel, by readable names."""
    return {k.replace("_", " "): v for k, v in trial.settings.items() if k != "workers"}


def _text(trial: Trial) -> str:
    return ", ".join(f"{name} {value}" for name, value in _settings(trial).items())
