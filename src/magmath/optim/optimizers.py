"""Optimizers: rules that turn a parameter, its gradient and a state into their next values.

A rule is written on nodes, so an update is part of the graph: it is fused into the gradient's
product, split over workers, and stored in place. The same rule serves `update` in a loop of the
user's own, `minimize`, and the training step of a network. The state belongs to the optimizer and
the variable: it is the same however the loss was written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from magmath.array import tracing
from magmath.array.array import Array, as_array
from magmath.array.variable import Variable, assign
from magmath.core.dtypes import compute_dtype
from magmath.core.integers import require_integer
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, parameter
from magmath.optim.minimizing import Minimizer, check_finite, rate_dtype
from magmath.optim.states import MASTER, Slot, States

if TYPE_CHECKING:
    from magmath.array.explanation import Explanation

LearningRate = float | Callable[[int], float]
State = dict[str, Node]


class Optimizer(ABC):
    """A rule with a learning rate: a number, or a function of the step (in `fit`: of the epoch,
    counted on from one call to the next).

    The rate is a parameter of the program: changing it compiles nothing. Rules compute in float32
    at least: of a variable of a half type a float32 copy is kept, which takes the updates.
    Source: Micikevicius et al. (2018), Mixed precision training, section 3.1.
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
        self.kept = States(self.states, self.counts)
        """What is kept of the variables that were updated."""
        self._steps = 0
        self._minimizer = Minimizer(self)

    def __repr__(self) -> str:
        hidden = ("kept", "_steps", "_minimizer")
        settings = [f"{k}={v!r}" for k, v in self.__dict__.items() if k not in hidden]
        return f"{type(self).__name__}({', '.join(settings)})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the settings. What is kept belongs to the variables, which the copy
        does not know."""
        return {k: v for k, v in self.__dict__.items() if k not in ("kept", "_minimizer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.kept = States(self.states, self.counts)
        self._minimizer = Minimizer(self)

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
    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Node | None
    ) -> tuple[Node, State]:
        """The parameter's and the states' next values; `rate` and `count`, the step, are 0-d.

        All are of one type, float32 at least.
        """

    def next_values(
        self, slots: Sequence[Slot], gradients: Sequence[Node], rate: Node
    ) -> list[tuple[Node, Node]]:
        """The nodes of parameters and of what is kept of them, each with that of its next value."""
        counted: dict[Node, Node] = {}
        pairs: dict[Node, Node] = {}
        for slot, gradient in zip(slots, gradients, strict=True):
            if slot.count is not None and slot.count not in counted:
                counted[slot.count] = e.add(slot.count, constant(1, slot.count.dtype))
            count = None if slot.count is None else counted[slot.count]
            pairs |= zip(slot.nodes(), self._next(slot, gradient, rate, count).nodes(), strict=True)
        return list(pairs.items())

    def _next(self, slot: Slot, gradient: Node, rate: Node, count: Node | None) -> Slot:
        dtype, state = compute_dtype(slot.value.dtype), dict(slot.states)
        value, master = slot.value, state.pop(MASTER, None)
        if master is not None:  # which counts unless the variable was given another value since
            same = e.call("equal", e.astype(master, value.dtype), value)
            value = e.where(same, master, e.astype(value, dtype))
        number = None if count is None else e.astype(count, dtype)
        slope, rate = e.astype(gradient, dtype), e.astype(rate, dtype)
        value, state = self.rule(value, slope, state, rate, number)
        if master is not None:
            state[MASTER] = value
        states = {name: state[name] for name in slot.states}
        return Slot(e.astype(value, slot.value.dtype), states, count)

    def update(self, gradients: Mapping[Variable, Array]) -> None:
        """Take a step: give each variable its next value, by its gradient.

        All are computed together. Within a compiled function this is part of its program. Raises
        ShapeError for a gradient of another shape than its variable.
        """
        variables = list(gradients)
        _check_variables("update", variables)
        gradients = {v: as_array("update", gradient) for v, gradient in gradients.items()}
        for v, gradient in gradients.items():
            if gradient.shape != v.shape:
                raise ShapeError(
                    f"update: variable {v.name} has shape {v.shape}, its gradient {gradient.shape}"
                )
        kept = self.kept.of(variables)
        owners = [v for one in kept for v in one.variables()]
        read = {v.node: v for v in owners}
        slots = [one.slot(lambda v: v.node) for one in kept]
        slopes = [gradients[v].node for v in variables]
        pairs = self.next_values(slots, slopes, self._rate_of_update(variables))
        assign([(read[node], value) for node, value in pairs])

    def _rate_of_update(self, variables: Sequence[Variable]) -> Node:
        dtype, trace = rate_dtype(variables), tracing.current()
        if trace is not None and trace.is_loop and callable(self.learning_rate):
            raise MagmathError(
                "fori_loop: a loop on the workers cannot ask for a learning rate that is a "
                "function of the step; loop in Python over a compiled step, or give a number"
            )
        if trace is not None:
            return trace.number(self._next_rate, dtype)
        return parameter(self._next_rate(), dtype)

    def _next_rate(self) -> float:
        self._steps += 1
        return self.rate(self._steps - 1)

    def minimize(
        self,
        expression: Array,
        variables: Sequence[Variable],
        steps: int = 1,
        *,
        check_finite: bool = True,
    ) -> float:
        """Take `steps` steps that lower a 0-d expression; returns its value before the last one.

        The expression is taken as a function of its variables, and of the random numbers that it
        draws: steps go on from the values that the variables have, with new random numbers. They
        run on the workers, in one message. Whether the expression is written anew or given again,
        the optimizer goes on from its state.

        Raises ShapeError if the expression is not 0-d, NonFiniteLoss if it becomes nan or infinite
        (not with `check_finite=False`).
        """
        _check_variables("minimize", variables)
        _check_expression(expression)
        steps = require_integer("minimize: steps", steps, 1)
        if tracing.current() is not None:
            raise MagmathError(
                "minimize: returns a number, which a compiled function has none of while it is "
                "traced; take the step with optimizer.update({v: mm.grad(loss, v), …}) in it"
            )
        if callable(self.learning_rate):
            rates, each = [self.rate(self._steps + i) for i in range(steps)], 1
        else:
            rates, each = [self.rate(0)], steps
        values = self._minimizer.run(expression, variables, rates, each)
        self._steps += steps
        if check_finite:
            _finite(values)
        return values[-1]

    def explain(self) -> Explanation:
        """The program of the last `minimize`. Raises MagmathError before the first one."""
        from magmath.array import session
        from magmath.array.explain import explain_program

        last = self._minimizer.last
        if last is None:
            raise MagmathError("explain: call minimize first; there is no step yet")
        return explain_program(last.compiled.program, session.engine().environment)


_finite = check_finite


def _check_expression(expression: Array) -> None:
    if not isinstance(expression, Array):
        raise TypeError(f"minimize: needs a 0-d array, was given {type(expression).__name__}")
    if expression.shape != ():
        raise ShapeError(
            f"minimize: needs a 0-d expression, was given shape {expression.shape}; reduce it with "
            f"mm.mean or mm.sum"
        )
    if not expression.dtype.is_floating:
        raise DTypeError(f"minimize: needs real floating point, was given {expression.dtype}")


def _check_variables(what: str, variables: Sequence[Variable]) -> None:
    """TypeError for what an optimizer cannot change."""
    single = isinstance(variables, Array) or not isinstance(variables, Sequence)
    given: Sequence[object] = [variables] if single else variables
    if single or not all(isinstance(v, Variable) for v in given):
        kinds = ", ".join([type(v).__name__ for v in given])
        raise TypeError(
            f"{what}: needs a sequence of variables, was given {kinds}"
            f"{' alone' if single else ''}; make them with mm.variable(name, value)"
        )


@final
class GradientDescent(Optimizer):
    """w ← w - rate · g. Source: MagmaDNN's GradientDescent; Robbins and Monro (1951)."""

    def __init__(self, learning_rate: LearningRate = 0.01) -> None:
        super().__init__(learning_rate)

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    def rule(
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

    def rule(
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

    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Node | None
    ) -> tuple[Node, State]:
        assert count is not None
        dtype, t = value.dtype, count

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
