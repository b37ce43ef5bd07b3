"""Adagrad: steps scaled by the sum of all squared gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from magmath.graph import Node
from magmath.ops.elementwise import sqrt
from magmath.optim.base import Optimizer, State
from magmath.optim.rates import LearningRate


@final
@dataclass(eq=False, repr=False)
class Adagrad(Optimizer):
    """s ← s + g²;  w ← w - rate · g / (√s + epsilon).

    In step t the rate is divided by 1 + (t - 1) · learning_rate_decay. Source: Duchi et al. (2011),
    in PyTorch's form of the equations.
    """

    learning_rate: LearningRate = 0.01
    learning_rate_decay: float = 0.0
    epsilon: float = 1e-10

    @property
    def states(self) -> tuple[str, ...]:
        return ("squares",)

    @property
    def has_step_count(self) -> bool:
        return self.learning_rate_decay != 0

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        squares = state["squares"] + gradient * gradient
        if count is not None:
            rate = rate / (1 + (count - 1) * self.learning_rate_decay)
        return value - rate * (gradient / (sqrt(squares) + self.epsilon)), {"squares": squares}
