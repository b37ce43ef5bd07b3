"""The order of trials: all combinations, a random choice of them, or the proposals of Optuna."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any, Protocol, final

from magmath.errors import OptionError
from magmath.train.parameter_search.results import Trial
from magmath.train.parameter_search.space import Settings, Space

METHODS = ("grid", "random", "optuna")
ABOVE_THRESHOLD = 1e6
"""Added to the area, for Optuna, of a trial whose loss stays above the threshold."""


class Proposals(Protocol):
    """Proposes the settings of trials, and receives their results."""

    def remaining(self) -> Iterator[Settings]:
        """Yield the settings of the next trial, until there are enough."""

    def tell(self, trial: Trial) -> None:
        """Receive a completed trial of this search, or of an earlier interrupted run of it."""


def proposals(
    method: str, space: Space, trials: int | None, seed: int, threshold: float
) -> Proposals:
    """Return the proposals of a method. Raises OptionError for an unknown one, a number of trials
    below 1, or if Optuna is not installed."""
    if method not in METHODS:
        raise OptionError(f"search: unknown method {method!r}; known are {', '.join(METHODS)}")
    if trials is not None and trials < 1:
        raise OptionError(f"search: trials must be at least 1, was given {trials}")
    every = space.settings()
    if method == "optuna":
        return _Optuna(space, trials or len(every), seed, threshold)
    if method == "random":
        chosen = random.Random(seed).sample(every, min(trials or len(every), len(every)))
        return _Listed([settings for settings in every if settings in chosen])
    return _Listed(every[:trials])


@final
class _Listed:
    """A list of settings that does not depend on results."""

    def __init__(self, settings: list[Settings]) -> None:
        self._settings = settings
        self._told: list[Settings] = []

    def remaining(self) -> Iterator[Settings]:
        yield from [settings for settings in self._settings if settings not in self._told]

    def tell(self, trial: Trial) -> None:
        self._told.append(trial.settings)


@final
class _Optuna:
    """The tree-structured Parzen estimator of Optuna, which minimizes the area."""

    def __init__(self, space: Space, trials: int, seed: int, threshold: float) -> None:
        try:
            import optuna
        except ImportError as error:
            raise OptionError(
                "search: method 'optuna' needs the package optuna, which is not installed; run: "
                "pip install 'magmath[search]'"
            ) from error
        self._optuna: Any = optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed)
        self._study: Any = optuna.create_study(direction="minimize", sampler=sampler)
        self._choices = {
            name: optuna.distributions.CategoricalDistribution(range(len(values)))
            for name, values in space.values.items()
        }
        self._space, self._trials, self._threshold = space, trials, threshold
        self._done: list[Trial] = []

    def remaining(self) -> Iterator[Settings]:
        while len(self._done) < self._trials:
            proposal = self._study.ask(self._choices)
            settings = {k: self._space.values[k][i] for k, i in proposal.params.items()}
            known = next((t for t in self._done if t.settings == settings), None)
            if known is None:
                yield settings
                continue
            self._study.tell(proposal, self._value(known))
            if len({repr(t.settings) for t in self._done}) == len(self._space.settings()):
                return

    def tell(self, trial: Trial) -> None:
        self._done.append(trial)
        indices = {k: self._space.values[k].index(v) for k, v in trial.settings.items()}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=indices, distributions=self._choices, value=self._value(trial)
            )
        )

    def _value(self, trial: Trial) -> float:
        """Return the area, increased if the loss is above the threshold or there is no loss."""
        least = trial.curve.minimum
        if trial.state == "diverged" or not math.isfinite(least):
            return 2 * ABOVE_THRESHOLD
        return trial.curve.area + (ABOVE_THRESHOLD if least > self._threshold else 0.0)
