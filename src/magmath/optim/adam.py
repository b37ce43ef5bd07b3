"""Adam and AdamW: steps scaled by running moments of the gradient, with bias correction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from magmath.graph import Node
from magmath.ops.elementwise import call, sqrt
from magmath.optim.base import Optimizer, State
from magmath.optim.rates import LearningRate


@dataclass(eq=False, repr=False)
class _Moments(Optimizer):
    """The base class of Adam and AdamW."""

    learning_rate: LearningRate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("first", "second", "largest") if self.amsgrad else ("first", "second")

    @property
    def has_step_count(self) -> bool:
        return True

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        beta1, beta2 = self.beta1, self.beta2
        first = beta1 * state["first"] + (1 - beta1) * gradient
        second = beta2 * state["second"] + (1 - beta2) * (gradient * gradient)
        following, square = {"first": first, "second": second}, second
        if self.amsgrad:
            square = following["largest"] = call("maximum", state["largest"], second)
        root = sqrt(square / (1 - beta2**count)) + self.epsilon
        return value - rate / (1 - beta1**count) * (first / root), following


@final
@dataclass(eq=False, repr=False)
class Adam(_Moments):
    """Adam; with `amsgrad` the second moment never decreases.

    `weight_decay` is an L2 penalty, part of the gradients whose moments are computed; `AdamW`
    decays the weights themselves.
    Source: Kingma and Ba (2015), algorithm 1; Reddi et al. (2018), algorithm 2.
    """


@final
@dataclass(eq=False, repr=False)
class AdamW(_Moments):
    """Adam after w ← (1 - rate · weight_decay) · w: the decay is not scaled by the moments.

    Source: Loshchilov and Hutter (2019), algorithm 2.
    """

    weight_decay: float = field(default=0.01, kw_only=True)

    decays_in_rule: ClassVar[bool] = True

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        value = value - rate * self.weight_decay * value
        return super().rule(value, gradient, state, rate, count)
