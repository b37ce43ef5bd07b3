"""The interface of strategies: a rule of layouts and a rule of exchange.

The rule of layouts says how parameters and optimizer states are stored. The rule of exchange writes
a training step in array expressions: which gradients or weights the workers combine, and when. Both
end in the same graph as all other code, so the passes choose the transfers, and `explain` shows
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

from magmath.arrays.array import Array, as_array
from magmath.arrays.variables.variable import Variable
from magmath.engine.programs.step_split import AsynchronousDivision
from magmath.errors import GradientError, ShapeError, StateError
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.nn.module import Module
from magmath.nn.variables import Parameter
from magmath.optim import LossScale, Optimizer
from magmath.optim.states import VariableStates
from magmath.passes.environment import Environment
from magmath.transform.grad import grad

DELAYS = "delays"
"""The name under which strategies report the delays of updates."""
Forward: TypeAlias = Callable[[Any], tuple[Array, Any]]
"""A function of a batch that returns the loss (0-d) and the outputs."""


def trainable_parameters(operation: str, module: Module) -> list[Parameter]:
    """Return the parameters that are not frozen. Raises StateError if there are none."""
    parameters = module.trainable()
    if not parameters:
        reason = "the module has no parameters"
        if module.parameters():
            reason = "all parameters are frozen; call module.unfreeze()"
        raise StateError(f"{operation}: there is nothing to train: {reason}")
    return parameters


def require_gradient(training: Training, used: Sequence[int]) -> None:
    """Raise GradientError unless the loss depends on a trained parameter; `used` has the positions
    of those on which it depends."""
    if not used:
        raise GradientError(
            f"training: the loss depends on none of the {len(training.parameters)} parameters "
            f"that are trained, such as {training.parameters[0].name!r}; compute it from the "
            f"outputs of the module, without mm.stop_gradient, integers or comparisons"
        )


@final
@dataclass(frozen=True, eq=False)
class Training:
    """The module and the optimizer that a strategy trains.

    parameters   the parameters that are trained
    rates        returns the learning rates of a step as nodes, in the order of `Optimizer.rates`;
                 the arguments are the variables that are updated
    loss_scale   the scale of the loss in float16, or None
    """

    module: Module
    optimizer: Optimizer
    parameters: Sequence[Variable]
    rates: Callable[[Sequence[Variable]], Sequence[Node]]
    loss_scale: LossScale | None = None

    @staticmethod
    def of(module: Module, optimizer: Optimizer, loss_scale: LossScale | None = None) -> Training:
        """Return the training of all parameters that are not frozen, with the rates of `update`.

        Raises OptionError for a group of the optimizer without parameters.
        """
        named = module.named_parameters()
        optimizer.add_paths(named)
        optimizer.check_groups(named)
        rates = optimizer.rates_of_update
        return Training(module, optimizer, module.trainable(), rates, loss_scale)

    @property
    def layers(self) -> list[str]:
        """The paths of all modules that have parameters of their own."""
        return list(dict.fromkeys([owner for owner, _ in self.named_parameters()]))

    def named_parameters(self) -> list[tuple[str, Variable]]:
        """Return all parameters of the module, each with the path of the module that owns it."""
        return [(path.rpartition(".")[0], v) for path, v in self.module.named_parameters()]

    def variable_states(self) -> list[VariableStates]:
        """Return the states that the optimizer stores for the parameters."""
        return self.optimizer.variable_states.of(self.parameters)

    def gradients(self, loss: Array) -> list[Array]:
        """Return the gradients of the loss by the parameters; a loss scale does not change them,
        but those that overflow are not finite."""
        return self.unscaled(self.scaled_gradients(loss))

    def scaled_gradients(self, loss: Array) -> list[Array]:
        """Return the gradients of the loss times the loss scale, which may be added to others."""
        scaled = loss if self.loss_scale is None else self.loss_scale.scaled(loss)
        return list(grad(scaled, list(self.parameters)))

    def unscaled(self, gradients: Sequence[Array]) -> list[Array]:
        """Return the gradients from those of the scaled loss, or from their parts."""
        return list(gradients) if self.loss_scale is None else self.loss_scale.unscaled(gradients)

    def restricted(self, positions: Sequence[int]) -> Training:
        """Return the training of the parameters at some positions."""
        return replace(self, parameters=[self.parameters[i] for i in positions])

    def update(self, gradients: Sequence[Array], others: Mapping[Variable, Node]) -> None:
        """Take a step of the optimizer: assign the parameters and states their next values.

        With a loss scale, the step is skipped unless all gradients are finite. Then the variables
        `others`, which were assigned before, have their former values, the given nodes, again.
        """
        nodes, rates = [gradient.node for gradient in gradients], self.rates(self.parameters)
        self.optimizer.assign_next_values(self.parameters, nodes, rates, self.loss_scale, others)


@final
@dataclass(frozen=True)
class ChosenLayouts:
    """The result of a rule of layouts.

    layouts        the layouts of the variables that the strategy places
    layers         the name of the option of each layer, by the path of its module
    seconds        predicted seconds per step of the compared options, if several were compared
    changes_step   True if a step must be traced again, since its exchanges depend on the choice
    """

    layouts: Mapping[Variable, Layout]
    layers: Mapping[str, str]
    seconds: Mapping[str, float] = field(default_factory=dict)
    changes_step: bool = False


class Strategy(ABC):
    """A way to divide training over the workers.

    Pass a strategy, or its name, to `NeuralNetwork.fit` or `Trainer`, or compile a step of a custom
    loop with `parallel.CompiledStep`. Derive strategies from `GradientAveraging` (one copy of the
    parameters) or `Replicas` (one copy for each logical replica).
    """

    every: int
    """The number of steps from one exchange to the next: steps every - 1, 2·every - 1, …, counted
    from 0, exchange."""

    batch_multiple = 1
    """The number of equal parts into which each batch is divided: `fit` leaves out the samples of
    the last batch of an epoch beyond a multiple of it."""

    is_asynchronous = False
    """True if workers take steps on their own, as `asynchronous_division` says."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short description for histories and listings."""

    @abstractmethod
    def prepare(self, training: Training, environment: Environment) -> None:
        """Make the variables of the strategy; called before tracing, and before each `fit`."""

    @abstractmethod
    def choose(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> ChosenLayouts:
        """Return the layouts of parameters, buffers, optimizer states and own variables.

        `step_graph` returns the graph of a step, for rules that depend on it.
        """

    @abstractmethod
    def step(
        self, training: Training, forward: Forward, batch: Any, exchanges: bool
    ) -> tuple[Array, Any]:
        """Trace a training step on a batch; return the loss and the outputs of the whole batch.

        Assigns parameters, states and own variables. `exchanges`: the step is one of `every` in
        which the workers combine their results.
        """

    def reported(self) -> Mapping[str, Array]:
        """Return values (0-d) of the step that was traced last, which histories report by name."""
        return {}

    def asynchronous_division(
        self, training: Training, counter: Variable
    ) -> AsynchronousDivision | None:
        """Return the division of the step that was traced last into parts that workers run on their
        own, for asynchronous strategies.

        `counter`: the number of the step.
        """
        return None

    @abstractmethod
    def updated(self, training: Training) -> Sequence[Variable]:
        """Return the variables that the optimizer updates."""

    @abstractmethod
    def state(self, training: Training) -> Mapping[str, Variable]:
        """Return the variables of the strategy by name, which checkpoints include."""

    def fitted_state(
        self, training: Training, saved: Mapping[str, Any], prefix: str
    ) -> Mapping[str, Any]:
        """Return the saved values of `state`, tensors by prefix and name, for the workers of the
        current pool, whose number may differ from that of the pool that has saved them."""
        return saved

    @abstractmethod
    def collect(self, training: Training) -> None:
        """Assign the module's variables the values that the strategy has trained."""

    @abstractmethod
    def accept(self, training: Training) -> None:
        """Use the current values of the strategy's variables, which a checkpoint has restored."""


def exchanged(strategy: Strategy, value: Any, shape: tuple[int, ...]) -> Array:
    """Return the result of a strategy's `exchange` for a parameter, as an array.

    Raises ShapeError unless it has the given shape, TypeError if it is no array.
    """
    operation = f"{type(strategy).__name__}.exchange"
    array = as_array(operation, value)
    if array.shape != shape:
        raise ShapeError(
            f"{operation}: must return an array of shape {shape} here, has returned one of shape "
            f"{array.shape}"
        )
    return array


def loss_scale_for(precision: str | None, loss_scale: LossScale | None) -> LossScale | None:
    """Return the given loss scale; without one, a new one for "mixed-float16"."""
    if loss_scale is None and precision == "mixed-float16":
        return LossScale()
    return loss_scale
