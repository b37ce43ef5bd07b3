"""PyTorch's contestant of `bench sequences`: the usual loop with `nn.LSTM`."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import nn

from magmath.bench.peers.sequence_problem import CLASSES, INPUTS, SequenceProblem
from magmath.bench.peers.service import Contestant, core_count
from magmath.bench.peers.training import PeerTrainer, TrainingContestant


def lstm() -> Contestant:
    """Return the contestant."""
    torch.set_num_threads(core_count())
    return TrainingContestant({"torch": torch.__version__}, SequenceProblem.of, _variants)


def _variants(problem: SequenceProblem) -> dict[str, Callable[[], PeerTrainer]]:
    return {"eager": lambda: _Trainer(problem)}


@final
class _Trainer(PeerTrainer):
    def __init__(self, problem: SequenceProblem) -> None:
        self._problem = problem
        self._sequences, self._labels = map(torch.from_numpy, problem.data())
        self._lstm = nn.LSTM(INPUTS, problem.units, batch_first=True)
        self._last = nn.Linear(problem.units, CLASSES)
        parameters = [*self._lstm.parameters(), *self._last.parameters()]
        self.reset()
        self._optimizer = torch.optim.SGD(parameters, lr=problem.learning_rate)

    @torch.no_grad()
    def reset(self) -> None:
        parameters = [*self._lstm.parameters(), *self._last.parameters()]
        for parameter, value in zip(parameters, self._problem.weights(), strict=True):
            parameter.copy_(torch.from_numpy(value).T)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self._optimizer.zero_grad()
            self._loss().backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

    @torch.no_grad()
    def loss(self) -> float:
        return float(self._loss())

    def _loss(self) -> torch.Tensor:
        outputs, _ = self._lstm(self._sequences)
        return nn.functional.cross_entropy(self._last(outputs[:, -1]), self._labels)
