"""The interface of strategies: a rule of layouts and a rule of exchange.

The rule of layouts says how parameters and optimizer states are stored. The rule of exchange writes
a training step in array expressions: which gradients or weights the workers combine, and when. Both
end in the same graph as all other code, so the passes choose the transfers, and `explain` shows
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from magmath.arrays.array import Array
from magmath.arrays.variable import Variable, assign
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.nn.module import Module
from magmath.optim import Optimizer
from magmath.optim.states import Kept
from magmath.passes.environment import Environment

Forward: TypeAlias = Callable[[Any], tuple[Array, Any]]
"""A function of a batch that returns the loss (0-d) and the outputs."""


@dataclass(frozen=True, eq=False)
class Training:
    """The module and the optimizer that a strategy trains.

    parameters   the parameters that are trained
    rates        returns the learning rates of a step as nodes, in the order of `Optimizer.rates`;
                 the arguments are the variables that are updated
    """

    module: Module
    optimizer: Optimizer
    parameters: Sequence[Variable]
    rates: Callable[[Sequence[Variable]], Sequence[Node]]

    @staticmethod
    def of(module: Module, optimizer: Optimizer) -> Training:
        """Return the training of all parameters that are not frozen, with the rates of `update`."""
        return Training(module, optimizer, module.trainable(), optimizer.rates_of_update)

    @property
    def layers(self) -> list[str]:
        """The paths of all modules that have parameters of their own."""
        return list(dict.fromkeys([owner for owner, _ in self.named_parameters()]))

    def named_parameters(self) -> list[tuple[str, Variable]]:
        """Return all parameters of the module, each with the path of the module that owns it."""
        return [(path.rpartition(".")[0], v) for path, v in self.module.named_parameters()]

    def kept(self) -> list[Kept]:
        """Return the states that the optimizer stores for the parameters."""
        return self.optimizer.kept.of(self.parameters)

    def update(self, gradients: Sequence[Array]) -> None:
        """Take a step of the optimizer: assign the parameters and states their next values."""
        kept = self.kept()
        read = {v.node: v for one in kept for v in one.variables()}
        slots = [one.slot(lambda v: v.node) for one in kept]
        rates = self.rates(self.parameters)
        slopes = [gradient.node for gradient in gradients]
        pairs = self.optimizer.next_values(slots, slopes, rates)
        assign([(read[node], value) for node, value in pairs])


@dataclass(frozen=True)
class Choice:
    """The result of a rule of layouts.

    layouts   the layouts of the variables that the strategy places
    layers    the name of the option of each layer, by the path of its module
    seconds   predicted seconds per step of the compared options, if several were compared
    """

    layouts: Mapping[Variable, Layout]
    layers: Mapping[str, str]
    seconds: Mapping[str, float] = field(default_factory=dict)


class Strategy(ABC):
    """A way to divide training over the workers.

    Pass a strategy, or its name, to `NeuralNetwork.fit` or `Trainer`, or compile a step of a custom
    loop with `parallel.CompiledStep`. Derive strategies from `Averaging` (one copy of the
    parameters) or `Replicas` (one copy for each logical replica).
    """

    every: int
    """The number of steps from one exchange to the next: steps every - 1, 2·every - 1, …, counted
    from 0, exchange."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short description for histories and listings."""

    @abstractmethod
    def prepare(self, training: Training, environment: Environment) -> None:
        """Make the variables of the strategy; called before tracing, and before each `fit`."""

    @abstractmethod
    def choose(
        self, training: Training, environment: Environment, trace: Callable[[], Graph]
    ) -> Choice:
        """Return the layouts of parameters, buffers, optimizer states and own variables.

        `trace` returns the graph of a step, for rules that depend on it.
        """

    @abstractmethod
    def step(
        self, training: Training, forward: Forward, batch: Any, exchanges: bool
    ) -> tuple[Array, Any]:
        """Trace a training step on a batch; return the loss and the outputs of the whole batch.

        Assigns parameters, states and own variables. `exchanges`: the step is one of `every` in
        which the workers combine their results.
        """

    @abstractmethod
    def updated(self, training: Training) -> Sequence[Variable]:
        """Return the variables that the optimizer updates."""

    @abstractmethod
    def state(self, training: Training) -> Mapping[str, Variable]:
        """Return the variables of the strategy by name, which checkpoints include."""

    @abstractmethod
    def collect(self, training: Training) -> None:
        """Assign the module's variables the values that the strategy has trained."""

    @abstractmethod
    def accept(self, training: Training) -> None:
        """Use the current values of the strategy's variables, which a checkpoint has restored."""
