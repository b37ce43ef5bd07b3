"""Compiled training steps under a strategy, for custom loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, final

from magmath.arrays.array import Array, as_array
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.identity import are_identical
from magmath.diagnostics.explain import explain
from magmath.engine import session
from magmath.engine.lifetimes.kept_expressions import keeping_expressions
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.engine.traces.tracing import Trace
from magmath.errors import OptionError, TracingError
from magmath.graph import Graph, Node
from magmath.nn.abstract import call_module
from magmath.nn.losses import loss_function
from magmath.nn.mixed_precision import check_parameters, check_precision, in_compute_type
from magmath.nn.mixed_precision import precision as in_precision
from magmath.nn.module import Module, check_module
from magmath.nn.module_call import converted_argument
from magmath.optim import LossScale, Optimizer
from magmath.parallel.scalar_loss import scalar_loss
from magmath.parallel.strategy import Training, loss_scale_for, trainable_parameters
from magmath.parallel.strategy_table import StrategyLike, as_strategy
from magmath.transform.compiled import compile
from magmath.transform.traced_function import placeholder

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation


@final
class CompiledStep:
    """A training step: call it with a batch, and it updates the module and returns the loss.

        step = mm.parallel.CompiledStep(loss, model, optimizer, strategy="sharded")
        for x, y in batches:
            value = step(x, y)
        step.collect()

    loss       a function of the arrays of a batch, which calls the module and returns a 0-d array,
               usually the mean over the samples; other losses are possible with `accumulate=` as
               docs/parallel.md says. Or a name in `mm.nn.losses.LOSSES`, such as "cross_entropy",
               for batches `step(inputs, targets)`
    module     a built module
    strategy   as for `Trainer`
    precision  "float32", "mixed-bfloat16" or "mixed-float16", in which modules compute (see
               `nn.precision`); None is the type of the parameters
    loss_scale the scale of the loss; by default a new `optim.LossScale` for "mixed-float16"

    `steps` counts the calls that have not raised an error. `collect` assigns the module's
    parameters what the strategy has trained, for strategies with several replicas; others need no
    call.
    """

    def __init__(
        self,
        loss: str | Callable[..., Array],
        module: Module,
        optimizer: Optimizer,
        strategy: StrategyLike = "auto",
        *,
        precision: str | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        check_module("CompiledStep(loss, module, optimizer)", module)
        if isinstance(loss, str):
            loss = _loss_of_outputs(loss_function(loss), module)
        if not callable(loss):
            raise OptionError(
                f"CompiledStep: the loss is a name or a function of a batch that calls the module, "
                f"was given {loss!r}; write lambda x, y: mm.nn.cross_entropy(model(x), y)"
            )
        self.strategy = as_strategy(strategy)
        self.precision = check_precision("CompiledStep", precision)
        self.loss_scale = loss_scale_for(self.precision, loss_scale)
        if self.strategy.is_asynchronous:
            raise OptionError(
                f"CompiledStep: a call is one step, which cannot run concurrently with others as "
                f"{self.strategy.label} requires; use fit, or give the strategy a schedule"
            )
        self.steps = 0
        self._loss, self._module, self._optimizer = loss, module, optimizer
        self._training: Training | None = None
        self._engine: object = None
        self._leaves_of_module: list[Node] = []
        self._programs = {exchanges: compile(self._step(exchanges)) for exchanges in (True, False)}
        self._last = self._programs[True]

    def __call__(self, *batch: Any) -> Array:
        """Take a step on a batch: arrays whose first axis numbers the samples.

        Lists of numbers are converted. Strategies that do not divide the batch, by `accumulate=` or
        among replicas, take any arrays, or none. Raises TracingError within a compiled function,
        ShapeError for a batch that the strategy cannot divide.
        """
        if tracing.current() is not None:
            raise TracingError(
                "CompiledStep: a step is a program of its own, and is counted when it is called, "
                "but this call is traced as part of a compiled function or a loop, which runs "
                "later; call the step in a Python loop that is not compiled"
            )
        arrays, tree = flatten(tuple([converted_argument(x, converts_lists=True) for x in batch]))
        leaves = [as_array("CompiledStep", x) for x in arrays]
        self._prepare(tree, leaves)
        program = self._programs[(self.steps + 1) % self.strategy.every == 0]
        value: Array = program(*unflatten(tree, leaves))
        self.steps, self._last = self.steps + 1, program
        return value

    def collect(self) -> None:
        """Assign the module's variables the values that the strategy has trained."""
        if self._training is not None:
            self.strategy.collect(self._training)

    def explain(self) -> Explanation:
        """Explain the program of the last step. Raises StateError before the first step."""
        return explain(self._last)

    def _prepare(self, tree: Tree, leaves: list[Array]) -> None:
        """Place the variables at the first step, and after the trained parameters, the types of
        variables or the pool have changed.

        A compiled function sees conversions of the variables that it reads; of those of which the
        strategy has copies it reads the copies, so the leaves of all are compared here.
        """
        trainable_parameters("CompiledStep", self._module)
        engine, former = session.engine(), self._training
        training = Training.of(self._module, self._optimizer, self.loss_scale)
        check_parameters("CompiledStep", self.precision, self._module.named_parameters())
        leaves_of_module = [v.leaf for v in (*training.parameters, *self._module.buffers())]
        is_same = False
        if former is not None and engine is self._engine:
            is_same = are_identical(former.parameters, training.parameters)
            if not is_same:
                self.strategy.prepare(former, engine.environment)  # with what was assigned since
                self.strategy.collect(former)
        self.strategy.prepare(training, engine.environment)
        if is_same and are_identical(self._leaves_of_module, leaves_of_module):
            return
        invalidate_captures(former)  # the programs update other variables, or of another type
        self._training, self._engine = training, engine
        self._leaves_of_module = leaves_of_module
        graph = partial(self._graph, tree, leaves)
        for v, layout in self.strategy.choose(training, engine.environment, graph).layouts.items():
            v.move(layout)

    def _step(self, exchanges: bool) -> Callable[..., Array]:
        """Return the function of a batch that is compiled, which reads what the loss reads."""

        @wraps(self._loss, updated=())  # the attributes of a module are its own
        def step(*batch: Any) -> Array:
            return self._trace(exchanges, *batch)

        return step

    def _trace(self, exchanges: bool, *batch: Any) -> Array:
        trace = tracing.current()
        assert self._training is not None
        assert trace is not None
        trace.depend_on_state(self._training)
        value, _ = self.strategy.step(self._training, self._forward, batch, exchanges)
        return value

    def _forward(self, batch: Any) -> tuple[Array, Any]:
        with in_precision(self.precision), keeping_expressions():  # gradients in a loss count
            value = self._loss(*batch)
        return scalar_loss("CompiledStep", value), ()

    def _graph(self, tree: Tree, leaves: list[Array]) -> Graph:
        """Return the graph of a step on a batch of these shapes."""
        with tracing.tracing(Trace(can_loop=True)) as trace:
            inputs = [Array(placeholder(x.shape, x.dtype)) for x in leaves]
            loss = self._trace(True, *unflatten(tree, inputs))
        pairs = trace.assigned
        graph = Graph(tuple(pairs.values()), tuple(pairs), (loss.node,))
        return session.engine().pending_graph(graph)


def _loss_of_outputs(loss: Callable[[Any, Any], Array], module: Module) -> Callable[..., Array]:
    """Return the loss of the module's outputs as a function of inputs and targets, as in `fit`."""

    def of_batch(*batch: Any) -> Array:
        if len(batch) != 2:
            raise OptionError(
                f"CompiledStep: a step with the name of a loss takes inputs and targets, was given "
                f"{len(batch)} arguments; write step(inputs, targets)"
            )
        inputs, targets = batch
        return loss(in_compute_type(call_module(module, inputs)), targets)

    return of_batch
