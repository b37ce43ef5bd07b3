"""The results of a search: trials, the best ones, and files."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal, final

from magmath.core.atomic_replace import atomic_replace
from magmath.core.json_text import json_text
from magmath.train.parameter_search.curve import LossCurve
from magmath.train.parameter_search.space import Settings

TrialState = Literal["finished", "stopped", "eliminated", "diverged"]


@final
@dataclass(frozen=True)
class Trial:
    """A trial: its settings and its loss curve.

    state   "finished"; "stopped", since its area exceeded the best admissible one; "eliminated" by
            successive halving; "diverged" to an infinite loss or nan
    """

    number: int
    settings: Settings
    state: TrialState
    curve: LossCurve = field(repr=False)

    @property
    def workers(self) -> int | None:
        """The number of workers, if it is part of the search."""
        return self.settings.get("workers")

    def is_admissible(self, threshold: float) -> bool:
        """Return True for a finished trial whose least loss is at most the threshold."""
        return self.state == "finished" and self.curve.minimum <= threshold

    def row(self, threshold: float) -> dict[str, Any]:
        """Return settings and figures by name, for tables; the least loss is None before the first
        point of the curve."""
        return {
            "trial": self.number,
            **self.settings,
            "state": self.state,
            "minimum_loss": self.curve.minimum if self.curve.losses else None,
            "area": self.curve.area,
            "seconds": self.curve.seconds[-1] if self.curve.seconds else 0.0,
            "admissible": self.is_admissible(threshold),
        }


@final
@dataclass(frozen=True)
class SearchResults:
    """The trials of a search, in their order; `best` is the winner."""

    trials: tuple[Trial, ...]
    threshold: float
    images: int

    @property
    def best(self) -> Trial | None:
        """The admissible trial with the smallest area, or None."""
        return best_of(self.trials, self.threshold)

    @property
    def best_by_workers(self) -> dict[int | None, Trial | None]:
        """The best trial for each number of workers, as the report's Table 5.1."""
        counts = dict.fromkeys(trial.workers for trial in self.trials)
        return {
            count: best_of([t for t in self.trials if t.workers == count], self.threshold)
            for count in counts
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each trial: number, settings, state, minimum loss, area, seconds
        and whether it is admissible."""
        return [trial.row(self.threshold) for trial in self.trials]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all trials to a file: a table if the name ends with ".csv", otherwise JSON with the
        curves."""
        with atomic_replace(path) as draft:
            Path(draft).write_text(self._csv() if str(path).endswith(".csv") else self._json())

    def _csv(self) -> str:
        stream = StringIO()
        rows = self.rows()
        writer = csv.DictWriter(stream, list(rows[0]) if rows else ["trial"])
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue()

    def _json(self) -> str:
        best = self.best
        content = {
            "threshold": self.threshold,
            "images": self.images,
            "best": None if best is None else best.number,
            "best_by_workers": [
                {"workers": count, "trial": None if trial is None else trial.number}
                for count, trial in self.best_by_workers.items()
            ],
            "trials": [
                {**row, "curve": {"seconds": t.curve.seconds, "losses": t.curve.losses}}
                for row, t in zip(self.rows(), self.trials, strict=True)
            ],
        }
        return json_text(content) + "\n"


def best_of(trials: Sequence[Trial], threshold: float) -> Trial | None:
    """Return the admissible trial with the smallest area, or None."""
    admissible = [trial for trial in trials if trial.is_admissible(threshold)]
    return min(admissible, key=lambda trial: trial.curve.area, default=None)
