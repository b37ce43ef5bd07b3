"""Adadelta: steps scaled by the ratio of running means of squared steps and squared gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from magmath.graph import Node
from magmath.ops.elementwise import sqrt
from magmath.optim.base import Optimizer, State
from magmath.optim.rates import LearningRate


@final
@dataclass(eq=False, repr=False)
class Adadelta(Optimizer):
    """s ← decay · s + (1 - decay) · g²;  d = g · √(u + epsilon) / √(s + epsilon);
    u ← decay · u + (1 - decay) · d²;  w ← w - rate · d.

    Source: Zeiler (2012), in PyTorch's form of the equations.
    """

    learning_rate: LearningRate = 1.0
    decay: float = 0.9
    epsilon: float = 1e-6

    @property
    def states(self) -> tuple[str, ...]:
        return ("squared_gradients", "squared_updates")

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        squares = self.decay * state["squared_gradients"] + (1 - self.decay) * (gradient * gradient)
        scale = sqrt(state["squared_updates"] + self.epsilon) / sqrt(squares + self.epsilon)
        step = scale * gradient
        updates = self.decay * state["squared_updates"] + (1 - self.decay) * (step * step)
        return value - rate * step, {"squared_gradients": squares, "squared_updates": updates}
