"""The contestant that trains or runs a network, for any framework.

A framework has variants (formulations of the step). Each is measured before the first round, and
the fastest one competes, so that no framework is penalized by a slow formulation.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from statistics import median
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, final

from magmath.bench.peers.resident_memory import forget_peak, peak_resident_bytes, resident_bytes
from magmath.bench.peers.service import Contestant

TRIALS = 3


class PeerTrainer(ABC):
    """One formulation of the training of the problem's network, or of its inference."""

    @abstractmethod
    def reset(self) -> None:
        """Restore the initial weights, without recompilation."""

    @abstractmethod
    def train(self, epochs: int) -> None:
        """Train for `epochs`, or compute the outputs so many times; wait for completion."""

    @abstractmethod
    def loss(self) -> float:
        """Return the mean loss over all images with the current weights."""


class Repeated(Protocol):
    """The attributes of a problem that the contestant uses."""

    @property
    def epochs(self) -> int:
        """The epochs of a round."""


@final
class _EpochSeconds(NamedTuple):
    """The seconds of the first epoch, in which a framework compiles, and of a later one."""

    first: float
    steady: float


P = TypeVar("P", bound=Repeated)


@final
class TrainingContestant(Contestant, Generic[P]):
    """Trains with the fastest of a framework's variants.

    `problem` returns the problem of a case's parameters, and `variants` the formulations for it.
    `agree` combines the measurements of all processes of a system, so that all choose the same
    variant.
    """

    def __init__(
        self,
        versions: dict[str, str],
        problem: Callable[[dict[str, Any]], P],
        variants: Callable[[P], dict[str, Callable[[], PeerTrainer]]],
        agree: Callable[[float], float] = float,
    ) -> None:
        self._versions = versions
        self._problem_of = problem
        self._variants = variants
        self._agree = agree
        self._problem: P
        self._trainer: PeerTrainer

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._problem = self._problem_of(case)
        measured: dict[str, _EpochSeconds] = {}
        failed: dict[str, str] = {}
        fastest = float("inf")
        for name, build in self._variants(self._problem).items():
            try:
                trainer = build()
                seconds = self._epoch_seconds(trainer)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"[:300]
                continue
            measured[name] = seconds
            if seconds.steady < fastest:
                fastest, self._trainer, chosen = seconds.steady, trainer, name
        if not measured:
            raise RuntimeError(f"every variant failed: {failed}")
        self._trainer.reset()
        return {
            "variant": chosen,
            "compile_seconds": max(0.0, measured[chosen].first - measured[chosen].steady),
            "variants": {name: seconds.steady for name, seconds in measured.items()},
            "failed_variants": failed,
        }

    def round(self) -> float:
        return self._time(self._trainer, self._problem.epochs)

    def finish(self) -> dict[str, Any]:
        self._trainer.reset()
        self._trainer.train(1)
        return {"loss": self._trainer.loss()}

    def peak_bytes(self, case: dict[str, Any]) -> int:
        before = resident_bytes()
        trainer = self._variants(self._problem_of(case))[case["variant"]]()
        forget_peak()
        self._epoch_seconds(trainer)
        return peak_resident_bytes() - before

    def _epoch_seconds(self, trainer: PeerTrainer) -> _EpochSeconds:
        first = self._time(trainer, 1)
        later = [self._time(trainer, 1) for _ in range(TRIALS)]
        return _EpochSeconds(self._agree(first), self._agree(median(later)))

    def _time(self, trainer: PeerTrainer, epochs: int) -> float:
        start = time.perf_counter()
        trainer.train(epochs)
        return time.perf_counter() - start
