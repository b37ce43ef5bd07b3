"""Gradient descent, plain and with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from magmath.graph import Node
from magmath.optim.base import Optimizer, State
from magmath.optim.rates import LearningRate


@final
@dataclass(eq=False, repr=False)
class GradientDescent(Optimizer):
    """w ← w - rate · g. Source: MagmaDNN's GradientDescent; Robbins and Monro (1951)."""

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        return value - rate * gradient, {}


@final
@dataclass(eq=False, repr=False)
class Momentum(Optimizer):
    """v ← momentum · v + g;  w ← w - rate · v, or with `nesterov` w - rate · (g + momentum · v).

    Source: Polyak (1964); Sutskever et al. (2013), in PyTorch's form of the equations.
    """

    learning_rate: LearningRate = 0.01
    momentum: float = 0.9
    nesterov: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("velocity",)

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        velocity = self.momentum * state["velocity"] + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return value - rate * direction, {"velocity": velocity}
