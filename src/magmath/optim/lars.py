"""LARS: a learning rate for each variable, by the ratio of its norm to that of its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from magmath.graph import Node
from magmath.ops.elementwise import call, sqrt, where
from magmath.ops.leaves import constant
from magmath.ops.sums import sum_
from magmath.optim.base import Optimizer, State
from magmath.optim.rates import LearningRate


@final
@dataclass(eq=False, repr=False)
class LARS(Optimizer):
    """Layer-wise adaptive rate scaling, with momentum, for large batches:

        λ = trust_coefficient · ‖w‖ / (‖g‖ + weight_decay · ‖w‖)
        v ← momentum · v + rate · λ · (g + weight_decay · w);  w ← w - v

    The norms are over all elements of a variable, on all workers. A variable that is zero, or has
    neither gradient nor decay, has λ = 1; the paper's 0 would never change a zero bias. Biases and
    scales of normalization often have no decay: `groups={"*.bias": {"weight_decay": 0.0}}`.
    Source: You, Gitman and Ginsburg (2017), algorithm 1.
    """

    learning_rate: LearningRate = 0.1
    momentum: float = 0.9
    trust_coefficient: float = 1e-3

    decays_in_rule: ClassVar[bool] = True

    @property
    def states(self) -> tuple[str, ...]:
        return ("velocity",)

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        length, gradient_length = _norm(value), _norm(gradient)
        whole, zero = gradient_length + self.weight_decay * length, constant(0, value.dtype)
        known = call("logical_and", call("greater", length, zero), call("greater", whole, zero))
        one = constant(1, value.dtype)
        ratio = where(known, self.trust_coefficient * length / where(known, whole, one), one)
        step = rate * ratio * (gradient + self.weight_decay * value)
        velocity = self.momentum * state["velocity"] + step
        return value - velocity, {"velocity": velocity}


def _norm(x: Node) -> Node:
    return sqrt(sum_(x * x))
