"""Optimizers: rules that turn a parameter, its gradient and a state into their next values.

A rule is written on nodes, so an update is part of the graph: it is fused into the gradient's
product, split over workers, and stored in place. The same rule serves `minimize` on any expression
and the training step of a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

from magmath.array import session
from magmath.array.array import Array
from magmath.array.creation import variable, zeros
from magmath.array.engine import Compiled, Engine, Progress
from magmath.array.variable import Variable
from magmath.autodiff import gradients
from magmath.errors import MagmathError
from magmath.graph import Graph, Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, parameter

LearningRate = float | Callable[[int], float]
State = dict[str, Node]


class Optimizer(ABC):
    """A rule with a learning rate: a number, or a function of the step (in `fit`: of the epoch,
    counted on from one call to the next).

    The rate is a parameter of the program: changing it compiles nothing.
    """

    def __init__(self, learning_rate: LearningRate) -> None:
        if not callable(learning_rate):
            if not hasattr(learning_rate, "__float__"):
                raise TypeError(
                    f"learning_rate must be a positive number or a function of the step, was given "
                    f"{learning_rate!r}"
                )
            if not learning_rate > 0:
                raise MagmathError(f"learning_rate must be positive, was given {learning_rate}")
        self.learning_rate = learning_rate
        self._steps = 0
        self._minimizing: _Minimizing | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: everything but the compiled update, which belongs to a pool."""
        return self.__dict__ | {"_minimizing": None}

    def rate(self, step: int) -> float:
        """The learning rate at a step (or epoch)."""
        rate = self.learning_rate
        return float(rate(step)) if callable(rate) else float(rate)

    @property
    @abstractmethod
    def states(self) -> tuple[str, ...]:
        """The names of the arrays, of the parameter's shape and first zero, that the rule keeps."""

    @property
    def counts(self) -> bool:
        """True if the rule needs the number of the step (from 1)."""
        return False

    @abstractmethod
    def update(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Node | None
    ) -> tuple[Node, State]:
        """The parameter's and the states' next values; `rate` and `count`, the step, are 0-d."""

    def minimize(self, expression: Array, variables: Sequence[Variable], steps: int = 1) -> float:
        """Take `steps` steps that lower a 0-d expression; returns its value before the last one.

        The variables change in place, on the workers; a further call with the same expression
        sends one message. Raises ShapeError if the expression is not 0-d.
        """
        _check_variables(variables)
        known = self._minimizing
        if known is None or not known.fits(expression, variables):
            known = self._minimizing = _Minimizing(self, expression, variables)
        if callable(self.learning_rate):
            values = [known.run(self.rate(self._steps + i), 1) for i in range(steps)]
            self._steps += steps
            return values[-1]
        self._steps += steps
        return known.run(self.rate(0), steps)


class _Minimizing:
    """A compiled update of certain variables, and its states."""

    def __init__(
        self, optimizer: Optimizer, expression: Array, variables: Sequence[Variable]
    ) -> None:
        self.expression = expression
        self.variables = tuple(variables)
        self.engine = session.engine()
        self.rate = parameter(optimizer.rate(0), expression.dtype)
        states = make_states(optimizer, self.variables)
        count = variable("count", 0.0) if optimizer.counts else None
        graph = update_graph(
            optimizer,
            expression.node,
            self.variables,
            states,
            self.rate,
            count,
            emitted=(expression.node,),
        )
        self.graph = self.engine.cut(graph)
        self.compiled: Compiled = self.engine.compile(self.graph)

    def fits(self, expression: Array, variables: Sequence[Variable]) -> bool:
        """True if this was made for the same expression and variables, on the current pool."""
        same = len(variables) == len(self.variables) and all(
            a is b for a, b in zip(variables, self.variables, strict=True)
        )
        return same and expression is self.expression and self.engine is session.engine()

    def run(self, rate: float, steps: int) -> float:
        """Run the update; the last value of the expression."""
        self.rate.value = rate
        return run_updates(self.engine, self.compiled, self.graph, steps)[-1]


def _check_variables(variables: Sequence[Variable]) -> None:
    """TypeError for what an optimizer cannot change."""
    single = isinstance(variables, Array) or not isinstance(variables, Sequence)
    given: Sequence[object] = [variables] if single else variables
    if single or not all(isinstance(v, Variable) for v in given):
        kinds = ", ".join([type(v).__name__ for v in given])
        raise TypeError(
            f"minimize: needs a sequence of variables, was given {kinds}"
            f"{' alone' if single else ''}; make them with mm.variable(name, value)"
        )


def run_updates(
    engine: Engine, compiled: Compiled, graph: Graph, steps: int, progress: Progress | None = None
) -> list[float]:
    """Run a program whose outputs have variables as targets; gives these their new data."""
    outputs, run = engine.run(compiled, graph.leaves, steps=steps, progress=progress)
    for target, data in zip(graph.targets, outputs, strict=True):
        assert target is not None
        target.value.set(data)
    return run.values()


def make_states(optimizer: Optimizer, variables: Sequence[Variable]) -> list[dict[str, Variable]]:
    """Zero states for every variable, in the variable's layout."""
    return [
        {
            name: variable(
                f"{v.name}.{name}",
                zeros(v.shape, dtype=v.dtype, layout=v.node.layout),
                layout=v.node.layout,
            )
            for name in optimizer.states
        }
        for v in variables
    ]


def update_graph(
    optimizer: Optimizer,
    loss: Node,
    variables: Sequence[Variable],
    states: Sequence[dict[str, Variable]],
    rate: Node,
    count: Variable | None,
    emitted: Sequence[Node],
) -> Graph:
    """The graph of one step: every variable's and state's next value, going to its own storage."""
    outputs: list[Node] = []
    targets: list[Node] = []
    number = None
    if count is not None:
        number = e.add(count.node, constant(1.0, count.dtype))
        outputs.append(number)
        targets.append(count.node)
    slopes = gradients(loss, [v.node for v in variables])
    for v, slope, own in zip(variables, slopes, states, strict=True):
        state = {name: s.node for name, s in own.items()}
        local_rate = e.astype(rate, v.dtype)
        value, state = optimizer.update(v.node, slope, state, local_rate, number)
        outputs += [value, *state.values()]
        targets += [v.node, *(own[name].node for name in state)]
    return Graph(tuple(outputs), tuple(targets), tuple(emitted))


@final
class GradientDescent(Optimizer):
    """w ← w - rate · g. Source: MagmaDNN's GradientDescent; Robbins and Monro (1951)."""

    def __init__(self, learning_rate: LearningRate = 0.01) -> None:
        super().__init__(learning_rate)

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    def update(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Node | None
    ) -> tuple[Node, State]:
        return e.subtract(value, e.multiply(rate, gradient)), {}


@final
class Momentum(Optimizer):
    """v ← momentum · v + g;  w ← w - rate · v, or with `nesterov` w - rate · (g + momentum · v).

    Source: Polyak (1964); Sutskever et al. (2013), in PyTorch's form of the equations.
    """

    def __init__(
        self, learning_rate: LearningRate = 0.01, momentum: float = 0.9, nesterov: bool = False
    ) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum
        self.nesterov = nesterov

    @property
    def states(self) -> tuple[str, ...]:
        return ("velocity",)

    def update(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Node | None
    ) -> tuple[Node, State]:
        momentum = constant(self.momentum, value.dtype)
        velocity = e.add(e.multiply(momentum, state["velocity"]), gradient)
        slope = e.add(gradient, e.multiply(momentum, velocity)) if self.nesterov else velocity
        return e.subtract(value, e.multiply(rate, slope)), {"velocity": velocity}


@final
class Adam(Optimizer):
    """Adam: steps scaled by running moments of the gradient, with bias correction.

    Source: Kingma and Ba (2015), algorithm 1.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(learning_rate)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    @property
    def states(self) -> tuple[str, ...]:
        return ("first", "second")

    @property
    def counts(self) -> bool:
        return True

    def update(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Node | None
    ) -> tuple[Node, State]:
        assert count is not None
        dtype, t = value.dtype, e.astype(count, value.dtype)

        def c(number: float) -> Node:
            return constant(number, dtype)

        first = e.add(
            e.multiply(c(self.beta1), state["first"]), e.multiply(c(1 - self.beta1), gradient)
        )
        second = e.add(
            e.multiply(c(self.beta2), state["second"]),
            e.multiply(c(1 - self.beta2), e.multiply(gradient, gradient)),
        )
        correction1 = e.subtract(c(1), e.call("power", c(self.beta1), t))
        correction2 = e.subtract(c(1), e.call("power", c(self.beta2), t))
        root = e.add(e.call("sqrt", e.divide(second, correction2)), c(self.epsilon))
        step = e.multiply(e.divide(rate, correction1), e.divide(first, root))
        return e.subtract(value, step), {"first": first, "second": second}


OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "sgd": GradientDescent,
    "momentum": Momentum,
    "adam": Adam,
}
