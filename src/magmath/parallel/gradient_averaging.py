"""Gradient averaging: one copy of the parameters, updated by the gradient of the whole batch.

The loss is written for the whole batch, so gradients are sums over all samples, divided over the
workers as the planner chooses. Shards of a batch therefore weigh by their samples.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial, reduce
from itertools import pairwise
from typing import Any, final

from magmath.api.data_types import astype
from magmath.api.elementwise import add
from magmath.arrays.array import Array
from magmath.arrays.tree import Tree, flatten, tuple_tree, unflatten
from magmath.arrays.variables.variable import Variable
from magmath.autodiff import is_independent
from magmath.core.integers import require_integer
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Scope, Trace
from magmath.engine.user_line import warn_user
from magmath.errors import ShapeError
from magmath.graph import Graph, Node, apply_to
from magmath.layout import Layout, even_cuts
from magmath.nn.forward_hooks import forward_hook
from magmath.ops.recomputation import recompute
from magmath.ops.redistribute import redistribute
from magmath.ops.slicing import slice_along
from magmath.parallel.gradient_messages import divided_batch
from magmath.parallel.joined_outputs import joined_outputs
from magmath.parallel.layer_layouts import WHOLE, parameter_layout, state_layout
from magmath.parallel.linear_losses import TracedLoss
from magmath.parallel.parameter_axes import DIVIDING_OPTIONS, LayerAxes
from magmath.parallel.part_losses import (
    InseparableLoss,
    PartLoss,
    part_loss,
    total_divisor,
    weighted_loss,
)
from magmath.parallel.strategy import (
    ChosenLayouts,
    Forward,
    Strategy,
    Training,
    exchanged,
    require_gradient,
)
from magmath.passes.environment import Environment
from magmath.transform.traced_function import TracedFunction, assign_all, trace_function


class GradientAveraging(Strategy):
    """The base class of strategies with one copy of the parameters.

    accumulate   the number of consecutive parts into which a batch is divided, at most half of its
                 samples: each part has two or more, for running statistics. Their gradients are
                 added, weighted by their samples, and exchanged once. A part starts after the
                 gradients of the one before, so only one needs memory for its activations

    A derived class defines `exchange`. By default every worker has all parameters, and the strategy
    has no variables of its own.
    """

    every = 1
    unrolls_loops = False
    """True if a step must be one program: its results depend on how the workers divide it."""

    def __init__(self, accumulate: int = 1) -> None:
        self.accumulate = require_integer(f"{type(self).__name__}: accumulate", accumulate, 1)

    @property
    def label(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        settings = f"accumulate={self.accumulate}" if self.accumulate > 1 else ""
        return f"{type(self).__name__}({settings})"

    def prepare(self, training: Training, environment: Environment) -> None:
        pass

    def state(self, training: Training) -> Mapping[str, Variable]:
        return {}

    def options(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> tuple[Mapping[str, str], Mapping[str, float]]:
        """Return the option of each layer (the table of `layer_layouts.py`), and the predicted
        seconds of the compared options."""
        return dict.fromkeys(training.layers, "data"), {}

    def copies(self, training: Training) -> Mapping[Node, Node]:
        """Return the nodes that the forward and the backward pass read in place of parameters;
        called while a step is traced, with the training of the parameters that it updates."""
        return {}

    def own_layouts(
        self, training: Training, environment: Environment
    ) -> Mapping[Variable, Layout]:
        """Return the layouts of the strategy's own variables."""
        return {}

    def distributed_samples(self, x: Array) -> Array:
        """Return an array of samples, divided over the workers if a batch has several parts, since
        the planner might divide small parts otherwise."""
        return x if self.accumulate == 1 else divided_batch(x, session.engine().environment)

    def summand(self, parameter: Variable, gradient: Array) -> Array:
        """Return the gradient of a part of a batch in the form in which parts are added."""
        return gradient

    def set_layouts(self, training: Training, layouts: Mapping[Variable, Layout]) -> bool:
        """Set the layouts that were chosen for the parameters; none before the choice. Return True
        if steps that are traced from now on differ from those before."""
        return False

    @abstractmethod
    def exchange(self, training: Training, gradients: Sequence[Array]) -> Sequence[Array]:
        """Return the gradients by which the parameters are updated, from the sums of what `summand`
        returns."""

    def update_own_variables(self, training: Training) -> None:
        """Assign variables of the strategy that depend on the updated parameters."""

    # layouts ----------------------------------------------------------------------------------

    @final
    def choose(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> ChosenLayouts:
        """Return the layouts by the options of the layers.

        Buffers are replicated; states of other shapes than their parameter keep their layouts.
        """
        step_graph = cache(step_graph)
        self.set_layouts(training, {})
        layers, seconds = self.options(training, environment, step_graph)
        if environment.workers == 1:
            layers = dict.fromkeys(layers, "data")
        axes = LayerAxes(training, step_graph)
        owner_of = {id(v): owner for owner, v in training.named_parameters()}
        layouts: dict[Variable, Layout] = {}
        for owner, v in training.named_parameters():
            own_axes = axes.of(v) if layers[owner] in DIVIDING_OPTIONS else WHOLE
            layouts[v] = parameter_layout(layers[owner], v.shape, environment, own_axes)
        for _, v in training.module.named_buffers():
            layouts[v] = environment.replicated(v.shape, shared=True)
        for entry in training.variable_states():
            parameter, *states = entry.variables()
            option = layers[owner_of[id(parameter)]]
            own_axes = axes.of(parameter) if option in DIVIDING_OPTIONS else WHOLE
            for v in states:
                alike = v.shape == parameter.shape
                layouts[v] = (
                    state_layout(option, v.shape, environment, own_axes) if alike else v.layout
                )
        return ChosenLayouts(
            layouts | dict(self.own_layouts(training, environment)),
            layers,
            seconds,
            changes_step=self.set_layouts(training, layouts),
        )

    # the step ---------------------------------------------------------------------------------

    @final
    def step(
        self, training: Training, forward: Forward, batch: Any, exchanges: bool
    ) -> tuple[Array, Any]:
        traced = self._traced(training, forward, batch)
        *_, gradients = traced.unflattened([Array(node) for node in traced.results])
        used = [i for i, x in enumerate(gradients) if not is_independent(x.node)]
        require_gradient(training, used)
        updated = training.restricted(used)
        results, assigned = traced.applied(self.copies(updated))
        assign_all(assigned)
        loss, outputs, gradients = traced.unflattened([Array(node) for node in results])
        former = {v: v.node for v in self.state(training).values()}
        updated.update(self._checked_exchange(updated, [gradients[i] for i in used]), former)
        self.update_own_variables(training)
        return loss, outputs

    def _checked_exchange(self, training: Training, gradients: Sequence[Array]) -> list[Array]:
        """Return the gradients by which the parameters are updated. Raises ShapeError unless
        `exchange` returns one of the parameter's shape for each."""
        exchanged_gradients = list(self.exchange(training, gradients))
        if len(exchanged_gradients) != len(gradients):
            raise ShapeError(
                f"{type(self).__name__}.exchange: must return a gradient for each of "
                f"{len(gradients)} parameters, has returned {len(exchanged_gradients)}"
            )
        pairs = zip(exchanged_gradients, training.parameters, strict=True)
        return [exchanged(self, x, v.shape) for x, v in pairs]

    def _traced(self, training: Training, forward: Forward, batch: Any) -> TracedFunction:
        """Return the loss, the outputs and the gradients of a batch, and what the module assigns.

        Warns if they are not those of the whole batch, because the loss of one of its parts has
        another form: then all parts are weighted by their samples.
        """
        leaves, tree = flatten(batch)

        def trace(is_separable: bool) -> TracedFunction:
            accumulated = partial(self._accumulated, training, forward, is_separable)
            nodes, scope = [x.node for x in leaves], Scope(can_loop=not self.unrolls_loops)
            return trace_function(type(self).__name__, accumulated, tuple_tree(tree), nodes, scope)

        with suppress(InseparableLoss):
            return trace(is_separable=True)
        warn_user(
            f"{type(self).__name__}: accumulate={self.accumulate} weights the losses of the "
            f"parts by their samples, because the loss is no linear function of sums and means "
            f"over the samples: its gradient is not that of the whole batch; write it as a sum "
            f"or a mean of values of single samples, or train without accumulate"
        )
        return trace(is_separable=False)

    def _accumulated(
        self, training: Training, forward: Forward, is_separable: bool, batch: Any
    ) -> tuple[Array, Any, list[Array]]:
        """Return the loss, the outputs and the gradients of a batch, computed part by part. Raises
        InseparableLoss if `is_separable` but the loss is not."""
        leaves, tree = flatten(batch)
        cuts = self._cuts(leaves) if self.accumulate > 1 else []
        if len(cuts) <= 2:
            loss, outputs = forward(unflatten(tree, [self.distributed_samples(x) for x in leaves]))
            gradients = self._summands(training, loss)
            return loss, outputs, training.unscaled(gradients)
        samples, parameters = cuts[-1], [v.node for v in training.parameters]
        with tracing.tracing(Trace(can_loop=True)):  # not computed, and without effects
            whole, outputs_of_whole = _forward_pass(training, forward, leaves, tree)
        losses, outputs, sums = [], [], dict[int, Array]()
        for start, stop in pairwise(cuts):
            part = [self.distributed_samples(_rows(x, start, stop)) for x in leaves]
            part = [_after(x, sums.values()) for x in part]
            traced, outputs_of_part = _forward_pass(training, forward, part, tree)
            losses.append(
                part_loss(traced, samples, parameters, whole)
                if is_separable
                else weighted_loss(traced, samples)
            )
            gradients = self._summands(training, losses[-1].summand)
            sums = _added(sums, gradients)
            outputs.append(outputs_of_part)
        loss, sums = self._combined(training, losses, sums, samples)
        gradients = [sums.get(i, independent) for i, independent in enumerate(gradients)]
        shares = [(stop - start) / samples for start, stop in pairwise(cuts)]
        joined = joined_outputs(outputs, outputs_of_whole, shares)
        return loss, joined, training.unscaled(gradients)

    def _combined(
        self, training: Training, losses: Sequence[PartLoss], sums: dict[int, Array], samples: int
    ) -> tuple[Array, dict[int, Array]]:
        """Return the loss of the batch and its gradients, from the losses of its parts and the sums
        of their gradients."""
        loss = reduce(add, [x.summand for x in losses])
        divisor = total_divisor(losses, samples)
        if divisor is not None:
            loss = loss / divisor
            sums = {i: x / astype(divisor, x.dtype) for i, x in sums.items()}
        fixed = losses[0].fixed
        if fixed is not None:
            loss = loss + fixed
            sums = _added(sums, self._summands(training, fixed))
        return loss, sums

    def _cuts(self, leaves: Sequence[Array]) -> list[int]:
        """Return the numbers of the samples at which the parts of a batch begin and end."""
        lengths = {x.shape[:1] for x in leaves}
        if len(lengths) != 1 or () in lengths:
            raise ShapeError(
                f"{type(self).__name__}: accumulate={self.accumulate} divides all arrays of a "
                f"batch along their first axis, which must have the length of the samples; was "
                f"given arrays of the shapes {[x.shape for x in leaves]}; let the loss or the "
                f"module read arrays that do not have it from outside"
            )
        ((samples,),) = lengths
        return list(even_cuts(samples, max(1, min(self.accumulate, samples // 2))))

    def _summands(self, training: Training, loss: Array) -> list[Array]:
        """Return the gradients of the loss of a part in the form in which parts are added."""
        pairs = zip(training.parameters, training.scaled_gradients(loss), strict=True)
        return [x if is_independent(x.node) else self.summand(v, x) for v, x in pairs]

    # what other strategies need -----------------------------------------------------------------

    @final
    def updated(self, training: Training) -> Sequence[Variable]:
        return training.parameters

    @final
    def collect(self, training: Training) -> None:
        pass

    def accept(self, training: Training) -> None:
        pass


def _forward_pass(
    training: Training, forward: Forward, leaves: Sequence[Array], tree: Tree
) -> tuple[TracedLoss, Any]:
    """Return the loss of samples, with what the module and its parts have returned, and the outputs
    of the forward pass."""
    modules = set(map(id, training.module.modules()))
    returned: list[Node] = []

    def record(module: object, outputs: Any) -> None:
        if id(module) in modules:
            returned.extend([x.node for x in flatten(outputs)[0] if isinstance(x, Array)])

    with forward_hook(record):
        loss, outputs = forward(unflatten(tree, leaves))
    return TracedLoss(loss.node, [x.node for x in leaves], returned), outputs


def whole_copies(training: Training) -> dict[Node, Node]:
    """Return a copy on all workers for each parameter that is stored otherwise."""
    environment = session.engine().environment
    nodes = [v.node for _, v in training.named_parameters()]
    copies = {x: redistribute(x, environment.replicated(x.shape, shared=True)) for x in nodes}
    return {x: copy for x, copy in copies.items() if copy is not x}


def _rows(x: Array, start: int, stop: int) -> Array:
    """Return some samples of a batch. Of samples that are taken by their numbers, these alone are
    taken, so that no worker receives others."""
    node = x.node
    if node.name == "take" and node.attributes["at"] == 0 and node.attributes["axes"] == (0,):
        source, numbers = node.inputs
        if numbers.ndim == 1:
            rows = slice_along(numbers, 0, start, stop)
            return Array(apply_to(node.operation, (source, rows), node.line, node.attributes))
    return x[start:stop]


def _added(sums: Mapping[int, Array], gradients: Sequence[Array]) -> dict[int, Array]:
    """Return sums to which gradients are added, by position, without the gradients by parameters on
    which a loss does not depend: they remain known as such."""
    used = {i: x for i, x in enumerate(gradients) if not is_independent(x.node)}
    return {**sums, **{i: sums[i] + x if i in sums else x for i, x in used.items()}}


def _after(x: Array, others: Iterable[Array]) -> Array:
    """Return an array that is read after the others have been computed."""
    return Array(recompute(x.node, *[other.node for other in others]))
