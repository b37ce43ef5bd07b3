"""The loss of a trial against time, and the metric of the search: the area under it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import final

POINTS = 64
"""The approximate number of points of the curve of a complete trial."""


@final
@dataclass(frozen=True)
class LossCurve:
    """Mean losses of consecutive groups of steps, and the seconds of training at their ends."""

    seconds: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()

    @property
    def minimum(self) -> float:
        """The least loss; infinite before the first point."""
        return min(self.losses, default=float("inf"))

    @property
    def area(self) -> float:
        """The area between the curve and 0, in seconds; the first loss counts from the start.

        For losses of at least 0 it never falls as points are appended.
        """
        if not self.losses:
            return 0.0
        points = list(zip(self.seconds, self.losses, strict=True))
        joined = sum((t - s) * (a + b) / 2 for (s, a), (t, b) in pairwise(points))
        return self.seconds[0] * self.losses[0] + joined

    def extended(self, losses: list[float], seconds: float, points: int) -> LossCurve:
        """Return the curve with the losses of further steps, which took `seconds`, as about
        `points` points."""
        start = self.seconds[-1] if self.seconds else 0.0
        count = len(losses)
        bounds = [round(i * count / min(points, count)) for i in range(min(points, count) + 1)]
        means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(bounds)]
        times = [start + seconds * b / count for b in bounds[1:]]
        return LossCurve((*self.seconds, *times), (*self.losses, *means))
