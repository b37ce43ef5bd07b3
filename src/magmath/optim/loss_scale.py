"""Loss scaling: gradients of half types without underflow, and steps that are skipped on overflow.

The smallest positive float16 is 6e-8, and many gradients are smaller. The loss is multiplied by a
scale, so all gradients are, and the gradients of the parameters are divided by it in float32. A
step whose gradients are not all finite changes nothing and lowers the scale. The scale is state: it
changes on the workers, within compiled steps and loops, and is part of checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, final

from magmath.api.creation import variable
from magmath.arrays.array import Array, as_array
from magmath.arrays.variables.gradient_map import GradientMap
from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import DType, compute_dtype, float32, int64
from magmath.core.integers import require_integer
from magmath.engine.traces import tracing
from magmath.errors import OptionError, StateError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.ops.sums import sum_
from magmath.optim.states import is_of_current_pool
from magmath.transform.grad import value_and_grad

Pairs = Sequence[tuple[Node, Node]]
"""Nodes of variables, each with the node of its next value."""


@final
class LossScale:
    """A dynamic scale of the loss, for training in float16.

        scale = mm.optim.LossScale()

        @mm.compile
        def step(x, y):
            with mm.nn.precision("mixed-float16"):
                loss, gradients = scale.value_and_grad(
                    lambda: mm.nn.cross_entropy(model(x), y), model.trainable()
                )
            optimizer.update(gradients, scale)
            return loss

    initial          the first scale
    growth_factor    factor of the scale after `growth_interval` consecutive steps with finite
                     gradients
    backoff_factor   factor of the scale after a step that was skipped
    growth_interval  the number of steps before the scale grows

    `Trainer`, `NeuralNetwork` and `parallel.CompiledStep` make one for precision="mixed-float16".
    With scales that are powers of two, scaling and unscaling are exact. Raises OptionError for
    settings out of range, StateError if one is assigned later. Source: Micikevicius et al. (2018),
    Mixed precision training, section 3.2; the rule and its defaults are those of PyTorch's
    GradScaler.
    """

    def __init__(
        self,
        initial: float = 65536.0,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if not initial > 0 or not growth_factor > 1 or not 0 < backoff_factor < 1:
            raise OptionError(
                f"LossScale: initial must be positive, growth_factor above 1 and backoff_factor "
                f"between 0 and 1; were given {initial}, {growth_factor} and {backoff_factor}"
            )
        self.initial, self.growth_factor = float(initial), float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = require_integer("LossScale: growth_interval", growth_interval, 1)
        self._variables: dict[str, Variable] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ and not name.startswith("_"):
            raise StateError(
                f"LossScale: {name} is part of compiled steps and cannot be assigned; make another "
                f"one: LossScale({name}={value!r})"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"LossScale({self.initial:g}, growth_interval={self.growth_interval})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings and the state as numbers, for pickle and copy."""
        numbers = {name: v.item() for name, v in self._variables.items() if is_of_current_pool(v)}
        return {**self.__dict__, "_variables": {}, "_numbers": numbers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        numbers = state.pop("_numbers")
        self.__dict__ |= state
        if numbers:
            self._variables = _state_variables(numbers)

    # state ------------------------------------------------------------------------------------

    def state(self) -> dict[str, Variable]:
        """Return the variables by name: "scale", the consecutive "finite" steps since the scale
        has changed, and the "skipped" steps."""
        if not all(map(is_of_current_pool, self._variables.values())) or not self._variables:
            with tracing.suspended():
                self._variables = _state_variables(
                    {"scale": self.initial, "finite": 0, "skipped": 0}
                )
        return self._variables

    @property
    def value(self) -> float:
        """The current scale."""
        return float(self.state()["scale"])

    @property
    def skipped(self) -> int:
        """The number of steps that were skipped."""
        return int(self.state()["skipped"])

    # gradients --------------------------------------------------------------------------------

    def scaled(self, loss: Array) -> Array:
        """Return the loss times the scale."""
        return as_array("LossScale", loss) * self._factor(compute_dtype(loss.dtype))

    def unscaled(self, gradients: Sequence[Array]) -> list[Array]:
        """Return gradients of the scaled loss divided by the scale, in float32 at least."""
        inverse = {
            dtype: 1.0 / self._factor(dtype)
            for dtype in {compute_dtype(g.dtype) for g in gradients}
        }
        wide = [Array(e.astype(g.node, compute_dtype(g.dtype))) for g in gradients]
        return [g * inverse[g.dtype] for g in wide]

    def _factor(self, dtype: DType) -> Array:
        return Array(e.astype(self.state()["scale"].node, dtype))

    def value_and_grad(
        self, function: Callable[[], Array], variables: Sequence[Variable]
    ) -> tuple[Array, GradientMap]:
        """Call `function`, which returns a 0-d loss; return the loss, and the gradients of the
        variables, computed from the scaled loss and divided by the scale."""

        def scaled() -> tuple[Array, Array]:
            loss = function()
            return self.scaled(loss), loss

        (_, loss), gradients = value_and_grad(scaled, variables, has_aux=True)
        unscaled = self.unscaled(list(gradients.values()))
        return loss, GradientMap(zip(gradients.keys(), unscaled, strict=True))

    # updates ----------------------------------------------------------------------------------

    def guarded(self, pairs: Pairs, finite: Node) -> list[tuple[Node, Node]]:
        """Return the next values of an update, which keeps the former ones unless `finite`, and
        those of the scale.

        pairs    nodes of parameters and their states, and of their next values
        finite   a 0-d bool: all gradients are finite
        """
        next_values = [(former, e.where(finite, following, former)) for former, following in pairs]
        return [*next_values, *self._next_state(finite)]

    def _next_state(self, finite: Node) -> list[tuple[Node, Node]]:
        """Return the state and its next values: the rule of GradScaler."""
        scale, count, skipped = [v.node for v in self.state().values()]
        one, zero = constant(1, int64), constant(0, int64)
        reached = e.call("equal", e.add(count, one), constant(self.growth_interval, int64))
        grown = e.where(reached, _times(scale, self.growth_factor), scale)
        # A scale that would overflow stays as it is.
        grown = e.where(e.call("isfinite", grown), grown, scale)
        next_count = e.where(reached, zero, e.add(count, one))
        return [
            (scale, e.where(finite, grown, _times(scale, self.backoff_factor))),
            (count, e.where(finite, next_count, zero)),
            (skipped, e.where(finite, skipped, e.add(skipped, one))),
        ]

    def variables_by_node(self) -> Mapping[Node, Variable]:
        """Return the variables by the nodes that read them now."""
        return {v.node: v for v in self.state().values()}


def is_finite(gradients: Sequence[Node]) -> Node:
    """Return a 0-d bool: all elements of all gradients, on all workers, are finite."""
    counts = [sum_(_non_finite(g)) for g in gradients]
    return e.call("equal", reduce(add, counts), constant(0, float32))


def _non_finite(x: Node) -> Node:
    return e.astype(e.call("logical_not", e.call("isfinite", x)), float32)


def _times(x: Node, factor: float) -> Node:
    return e.multiply(x, constant(factor, x.dtype))


def _state_variables(numbers: Mapping[str, float]) -> dict[str, Variable]:
    """Return new variables with these numbers, by name."""
    types = {"scale": float32, "finite": int64, "skipped": int64}
    return {
        name: variable(f"loss_scale.{name}", numbers[name], dtype=dtype)
        for name, dtype in types.items()
    }
