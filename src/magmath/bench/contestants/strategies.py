"""magmath's contestant of `bench parallel` and `bench scaling`: the MLPs by `fit`, and networks of
the zoo by compiled steps, with the workers and the strategy of the case."""

from __future__ import annotations

from typing import Any, final

import magmath as mm
from magmath.bench.contestants.mlp import MagmathMlp
from magmath.bench.contestants.networks import CompiledNetwork
from magmath.bench.peers.service import Contestant


def train() -> Contestant:
    """Return the contestant that trains the network of the case."""
    return _Either()


@final
class _Either(Contestant):
    """The contestant of MLPs, or that of the zoo's networks, whichever the case has."""

    def __init__(self) -> None:
        self._mlp, self._network = MagmathMlp(), _Steps()
        self._chosen: Contestant = self._mlp

    def versions(self) -> dict[str, str]:
        return self._mlp.versions()

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._chosen = self._network if "network" in case else self._mlp
        return self._chosen.prepare(case)

    def round(self) -> float:
        return self._chosen.round()

    def finish(self) -> dict[str, Any]:
        return self._chosen.finish()


@final
class _Steps(CompiledNetwork):
    """Steps of a strategy, from its own program."""

    variant = "compiled step"

    def _function(self, case: dict[str, Any]) -> Any:
        network = self._network
        optimizer = mm.optim.GradientDescent(self._problem.learning_rate)

        def loss(images: Any, labels: Any) -> Any:
            return mm.nn.cross_entropy(network(images), labels)

        strategy = case.get("strategy", "auto")
        return mm.parallel.CompiledStep(loss, network, optimizer, strategy)
