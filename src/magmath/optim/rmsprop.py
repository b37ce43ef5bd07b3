"""RMSprop: steps scaled by a running mean of squared gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from magmath.graph import Node
from magmath.ops.elementwise import call, sqrt
from magmath.ops.leaves import constant
from magmath.optim.base import Optimizer, State
from magmath.optim.rates import LearningRate


@final
@dataclass(eq=False, repr=False)
class RMSprop(Optimizer):
    """s ← decay · s + (1 - decay) · g²;  w ← w - rate · g / (√s + epsilon).

    With `centered` s is reduced by the square of a running mean of g, as a variance is; with
    `momentum` v ← momentum · v + g / (√s + epsilon) and w ← w - rate · v. Source: Hinton (2012),
    lecture 6e; Graves (2013), section 4.2, in PyTorch's form of the equations.
    """

    learning_rate: LearningRate = 0.01
    decay: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        means = ("squares", "mean") if self.centered else ("squares",)
        return (*means, "velocity") if self.momentum else means

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        squares = self.decay * state["squares"] + (1 - self.decay) * (gradient * gradient)
        following, spread = {"squares": squares}, squares
        if self.centered:
            mean = self.decay * state["mean"] + (1 - self.decay) * gradient
            following["mean"] = mean
            spread = call("maximum", squares - mean * mean, constant(0, value.dtype))
        step = gradient / (sqrt(spread) + self.epsilon)
        if self.momentum:
            following["velocity"] = step = self.momentum * state["velocity"] + step
        return value - rate * step, following
