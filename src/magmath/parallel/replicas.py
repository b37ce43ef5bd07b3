"""Replicas: several copies of a network, trained on parts of each batch.

Replicas are a logical axis. The parameters of all replicas are arrays (replicas, …), the step of
one replica is written once and batched over that axis as by `vmap`, and the axis is split over the
workers. The number of workers therefore changes no results.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from magmath.api.creation import variable
from magmath.api.data_types import astype
from magmath.api.manipulation import broadcast_to, reshape
from magmath.api.reductions import all
from magmath.api.statistics import mean
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, tuple_tree, unflatten
from magmath.arrays.variables.variable import Variable, assign
from magmath.arrays.variables.variable_map import VariableMap
from magmath.autodiff import is_independent
from magmath.batching import BatchOperand
from magmath.core.integers import require_integer
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Scope, Trace
from magmath.errors import ShapeError, StateError, TracingError
from magmath.graph import Graph, Node
from magmath.layout import Layout, Mesh
from magmath.optim.loss_scale import is_finite
from magmath.optim.states import MASTER, VariableStates, unrounded
from magmath.parallel.joined_outputs import merged_outputs
from magmath.parallel.strategy import (
    ChosenLayouts,
    Forward,
    Strategy,
    Training,
    exchanged,
    require_gradient,
)
from magmath.passes.environment import Environment
from magmath.transform.traced_function import placeholder, trace_function


@final
@dataclass
class _Copies:
    """The copies of a variable: an array (replicas, …), and the version of the module's variable
    that it was made from or collected into; None if training has gone on without them since."""

    stacked: Variable
    number: int | None


class Replicas(Strategy):
    """The base class of strategies with several replicas of the network.

    replicas   the number of replicas, at least 1
    every      the number of steps from one exchange of weights to the next

    Each batch is divided into equal consecutive parts, one for each replica. Every replica has its
    own parameters, optimizer states, running statistics and random numbers. A derived class defines
    `exchange`.
    """

    def __init__(self, replicas: int, every: int = 1) -> None:
        name = type(self).__name__
        self.replicas = self.batch_multiple = require_integer(f"{name}: replicas", replicas, 1)
        self.every = require_integer(f"{name}: every", every, 1)
        self._copies: VariableMap[_Copies] = VariableMap()

    @abstractmethod
    def exchange(self, weights: Array) -> Array:
        """Return the weights after an exchange, from those of a parameter after the update.

        Both have shape (replicas, …). Those of a parameter of a half type are in float32, as the
        update has computed them.
        """

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.replicas}, every={self.every})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(replicas={self.replicas}, every={self.every})"

    def weights(self, parameter: Variable) -> Variable:
        """Return the variable (replicas, …) with the values of a parameter in all replicas.

        Raises StateError before the first step.
        """
        copies = self._copies.find(parameter)
        if copies is None:
            raise StateError(
                f"weights: {parameter.name} has no replicas yet; they are made by the first step"
            )
        return copies.stacked

    # variables --------------------------------------------------------------------------------

    @final
    def prepare(self, training: Training, environment: Environment) -> None:
        """Copy the module's values to all replicas, except values that were collected from them."""
        pool = session.engine().pool
        for v in _owned(training):
            copies = self._copies.find(v)
            is_on_pool = copies is not None and copies.stacked.stored.pool is pool
            if copies is None or not is_on_pool or copies.stacked.dtype is not v.dtype:
                layout = self.layout((self.replicas, *v.shape), environment)
                stacked = variable(v.name, self._stack(v), dtype=v.dtype, layout=layout)
                self._copies[v] = _Copies(stacked, v.number)
            elif copies.number != v.number:
                copies.stacked.assign(self._stack(v))
                copies.number = v.number
        trained = set(map(id, training.parameters))
        named = training.module.named_parameters()
        for _, v in named:
            frozen = None if id(v) in trained else self._copies.find(v)
            if frozen is not None:  # the replicas train with the module's value
                frozen.number = None
        paths = {id(v): path for path, v in named}
        training.optimizer.add_paths([(paths[id(p)], self.weights(p)) for p in training.parameters])

    def _stack(self, v: Variable) -> Array:
        """Return the value of a variable as an array (replicas, …) of equal values."""
        return broadcast_to(Array(v.node), (self.replicas, *v.shape))

    @final
    def layout(self, shape: tuple[int, ...], environment: Environment) -> Layout:
        """Return the layout that splits the first axis, that of the replicas, over the workers."""
        workers = environment.mesh.workers[: self.replicas]
        return Layout.even(shape, Mesh((len(workers),), None, workers), 0)

    @final
    def updated(self, training: Training) -> list[Variable]:
        return [self.weights(p) for p in training.parameters]

    @final
    def state(self, training: Training) -> dict[str, Variable]:
        names = {id(v): path for path, v in training.module.named_parameters()}
        names |= {id(v): path for path, v in training.module.named_buffers()}
        return {names[id(v)]: self.weights(v) for v in _owned(training)}

    @final
    def collect(self, training: Training) -> None:
        """Assign each parameter and each running statistic its mean over the replicas."""
        for v in _owned(training):
            v.assign(mean(self.weights(v), axis=0))
        self.accept(training)

    @final
    def accept(self, training: Training) -> None:
        for v in _owned(training):
            self._copies[v].number = v.number

    @final
    def choose(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> ChosenLayouts:
        entries = training.optimizer.variable_states.of(self.updated(training))
        stacked = [v for entry in entries for v in entry.variables() if v.shape == entry.shape]
        stacked += [self.weights(v) for v in _owned(training)]
        layouts = {v: self.layout(v.shape, environment) for v in stacked}
        return ChosenLayouts(layouts, dict.fromkeys(training.layers, "replicas"))

    # the step ---------------------------------------------------------------------------------

    @final
    def step(
        self, training: Training, forward: Forward, batch: Any, exchanges: bool
    ) -> tuple[Array, Any]:
        leaves, tree = flatten(batch)
        parts = [self._parts(x) for x in leaves]
        placeholders = [placeholder(x.shape[1:], x.dtype) for x in parts]
        operands = {leaf: x.node for leaf, x in zip(placeholders, parts, strict=True)}
        operands |= {v.node: self.weights(v).node for v in _owned(training)}
        states: dict[Variable, Node] = {}
        replica = partial(self._replica, training, forward, states)
        name = type(self).__name__
        traced = trace_function(name, replica, tuple_tree(tree), placeholders, Scope(can_loop=True))
        # A parameter that the module has assigned has no placeholder: its new value is computed.
        operands |= {
            leaf: v.node for v, leaf in states.items() if leaf.is_leaf and leaf is not v.node
        }
        results, assigned = traced.batched(operands, self.replicas)
        loss, outputs, values, flags = traced.unflattened(results)
        self._assign_of_module(assigned)
        self._assign_of_optimizer(
            training, dict(zip(states, values, strict=True)), flags, exchanges
        )
        leaves, tree = flatten(outputs)
        stacked = unflatten(tree, [Array(x.stacked) for x in leaves])
        if leaves:
            with tracing.tracing(Trace(can_loop=True)):  # not computed, and without effects
                _, outputs_of_whole = forward(batch)
            stacked = merged_outputs(stacked, outputs_of_whole)
        return mean(Array(loss.stacked)), stacked

    def _parts(self, x: Array) -> Array:
        """Return a batch (samples, …) as consecutive parts (replicas, samples / replicas, …)."""
        samples = x.shape[0] if x.ndim else 0
        if samples % self.replicas or not samples:
            raise ShapeError(
                f"{type(self).__name__}: each of {self.replicas} replicas needs an equal part of a "
                f"batch, was given a batch of {samples} samples; choose a batch size that is a "
                f"multiple of {self.replicas}; a data.Loader also needs drop_last=True"
            )
        return reshape(x, (self.replicas, samples // self.replicas, *x.shape[1:]))

    def _states(self, training: Training) -> dict[Variable, Node]:
        """Return the variables that the optimizer reads and assigns, in the order of its states,
        each with the node that represents its value in one replica.

        Step counts have one value for all replicas.
        """
        nodes: dict[Variable, Node] = {}
        entries = training.optimizer.variable_states.of(self.updated(training))
        for parameter, entry in zip(training.parameters, entries, strict=True):
            weights, *states = entry.variables()
            nodes[weights] = parameter.node
            for v in states:
                alike = v.shape == weights.shape
                nodes[v] = placeholder(v.shape[1:], v.dtype) if alike else v.node
        return nodes

    def _replica(
        self, training: Training, forward: Forward, states: dict[Variable, Node], batch: Any
    ) -> tuple[Array, Any, list[Array], list[Array]]:
        """Compute a step of one replica: loss, outputs, next values of parameters and states, and
        with a loss scale whether the gradients are finite.

        Stores the variables that the optimizer reads and assigns in `states`, each with its node.
        """
        loss, outputs = forward(batch)
        gradients = [gradient.node for gradient in training.gradients(loss)]
        used = [i for i, gradient in enumerate(gradients) if not is_independent(gradient)]
        require_gradient(training, used)
        updated, nodes = self.updated(training), [gradients[i] for i in used]
        entries = training.optimizer.variable_states.of([updated[i] for i in used])
        states |= self._states(training)
        parameters = [entry.nodes(states.__getitem__) for entry in entries]
        rates = training.rates(updated)
        following = {node: node for node in states.values()}
        following |= training.optimizer.next_values(parameters, nodes, rates)
        flags = [] if training.loss_scale is None else [Array(is_finite(nodes))]
        return loss, outputs, [Array(following[node]) for node in states.values()], flags

    def _assign_of_optimizer(
        self,
        training: Training,
        following: Mapping[Variable, BatchOperand],
        flags: Sequence[BatchOperand],
        exchanges: bool,
    ) -> None:
        """Assign parameters and states their next values. With a loss scale all replicas skip a
        step in which the gradients of one are not finite."""
        read, pairs = {}, []
        for v, value in following.items():
            read[v.node] = v
            stacked = v.shape != value.node.shape or value.varies
            pairs.append((v.node, value.stacked if stacked else value.node))
        if training.loss_scale is not None:
            finite = all(Array(flags[0].stacked)).node
            pairs = training.loss_scale.guarded(pairs, finite)
            read |= training.loss_scale.variables_by_node()
        assigned = {read[node]: value for node, value in pairs}
        if exchanges:
            for entry in training.optimizer.variable_states.of(self.updated(training)):
                assigned |= self._exchanged(entry, assigned)
        assign(list(assigned.items()))

    def _exchanged(
        self, entry: VariableStates, assigned: Mapping[Variable, Node]
    ) -> dict[Variable, Node]:
        """Return the weights of a parameter after an exchange. Those of a half type are exchanged
        in float32: the exchange of rounded ones would lose what updates have changed since they
        were last rounded to another value."""
        weights, master = next(entry.variables()), entry.states.get(MASTER)
        value = assigned[weights]
        if master is not None:
            value = unrounded(value, assigned[master])
        result = exchanged(self, self.exchange(Array(value)), value.shape)
        node = astype(result, value.dtype).node
        return {weights: node} if master is None else {weights: node, master: node}

    def _assign_of_module(self, assigned: Mapping[Variable, BatchOperand]) -> None:
        """Assign the variables that the module assigns: parameters and running statistics of each
        replica, and random states, which are those of all replicas."""
        pairs = []
        for v, value in assigned.items():
            copies = self._copies.find(v)
            if copies is not None and copies.number is not None:  # None: it is frozen now
                pairs.append((copies.stacked, value.stacked))
            elif value.varies:
                raise TracingError(
                    f"{type(self).__name__}: the module assigns variable {v.name} a value that "
                    f"differs between replicas, and only floating point buffers have one value for "
                    f"each; make it an mm.nn.Buffer"
                )
            else:
                pairs.append((v, value.node))
        if pairs:
            assign(pairs)


def _owned(training: Training) -> Iterator[Variable]:
    """Yield the variables of which every replica has its own: parameters and running statistics."""
    yield from training.parameters
    for _, v in training.module.named_buffers():
        if v.dtype.is_floating:
            yield v
