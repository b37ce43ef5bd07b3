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
COLORS = {
    "finished": "tab:blue",
    "stopped": "tab:gray",
    "eliminated": "tab:gray",
    "diverged": "tab:red",
}


def histograms(results: SearchResults) -> Figure:
    """Return the areas of all trials, in the order of their least losses, the lowest first.

    Trials above the threshold are pale; trials that were stopped have the area at that time.
    """
    groups = _by_workers(results)
    figure, panels = _panels(len(groups), 2.6)
    for (workers, trials), axes in zip(groups.items(), panels, strict=True):
        shown = sorted([t for t in trials if t.state != "diverged"], key=lambda t: t.curve.minimum)
        for place, trial in enumerate(shown):
            pale = 1.0 if trial.curve.minimum <= results.threshold else 0.35
            axes.bar(place, trial.curve.area, color=COLORS[trial.state], alpha=pale)
        axes.set_xticks(
            range(len(shown)), [_label(t, ("workers",)) for t in shown], rotation=90, fontsize=7
        )
        best = results.best_by_workers[workers]
        winner = "none" if best is None else _label(best, ("workers",))
        axes.set(title=f"{_title(workers)}best: {winner}", ylabel="area (loss · s)")
    return figure


def matrices(results: SearchResults, rows: str = "batch", columns: str = "learning_rate") -> Figure:
    """Return the areas as matrices of two settings; a diverged trial is empty, marked by ×.

    With other settings in the search, each cell has the smallest area.
    """
    groups = _by_workers(results)
    figure, panels = _panels(len(groups), 2.8)
    for (workers, trials), axes in zip(groups.items(), panels, strict=True):
        downwards = sorted({t.settings[rows] for t in trials})
        across = sorted({t.settings.get(columns, "") for t in trials})
        areas = np.full((len(downwards), len(across)), np.nan)
        for trial in trials:
            if trial.state != "diverged":
                place = (
                    downwards.index(trial.settings[rows]),
                    across.index(trial.settings.get(columns, "")),
                )
                areas[place] = np.fmin(areas[place], trial.curve.area)
        image = axes.imshow(areas, aspect="auto", cmap="viridis")
        for i, j in np.argwhere(np.isnan(areas)):
            axes.text(int(j), int(i), "×", ha="center", va="center", color="tab:red")
        axes.set_xticks(range(len(across)), [str(value) for value in across])
        axes.set_yticks(range(len(downwards)), [str(value) for value in downwards])
        axes.set(title=f"{_title(workers)}area (loss · s)", xlabel=columns, ylabel=rows)
        figure.colorbar(image, ax=axes)
    return figure


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
    return "" if workers is None else f"{workers} workers; "


def _label(trial: Trial, without: tuple[str, ...]) -> str:
    return ", ".join(f"{k} {v}" for k, v in trial.settings.items() if k not in without)
