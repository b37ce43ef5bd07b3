"""The training step: one program that selects a batch, computes the loss and updates the module.

It is traced from the same calls that a user's loop makes: the module, the loss, `grad` and the
optimizer's update. So parameters, buffers and random numbers change as in such a loop. The data
are operands, so the same program runs with other data of the same shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, final
from weakref import ref

from magmath.api.creation import variable
from magmath.api.random import drawing_from
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import int64
from magmath.core.identity import are_identical
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.engine import session
from magmath.engine.lifetimes.kept_expressions import keeping_expressions
from magmath.engine.programs.program_modes import RESTORED_TRAINING
from magmath.engine.programs.step_split import AsynchronousDivision
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import Captures, watching_updates
from magmath.engine.traces.stream_state import StreamState
from magmath.engine.traces.tracing import Trace
from magmath.engine.user_line import warn_user
from magmath.graph import Graph, Node
from magmath.nn.abstract import call_module
from magmath.nn.mixed_precision import in_compute_type, precision
from magmath.nn.module import Module
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, scalar
from magmath.optim import LossScale, Optimizer
from magmath.optim.minimizing import rate_dtype
from magmath.optim.rates import EpochRates
from magmath.parallel.scalar_loss import scalar_loss
from magmath.parallel.strategy import DELAYS, Strategy, Training, trainable_parameters
from magmath.train.divided_step import DividedStep
from magmath.train.epoch_metrics import epoch_metric
from magmath.train.feeds import Feed
from magmath.train.metric_choice import MetricFunction, name_of
from magmath.train.resident_data import Samples
from magmath.train.step_explanation import explain_step
from magmath.train.step_programs import SingleProgram, StepPrograms
from magmath.train.weighted_loss import ClassWeights, WeightedLoss
from magmath.transform.divided_specialization import is_divided
from magmath.transform.python_effects import PythonEffects, uncompared_warning
from magmath.transform.subgraph_programs import RepeatedProgram

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation
    from magmath.runtime.run_handle import ProgressCallback


@final
@dataclass(frozen=True)
class StepSettings:
    """The settings of `fit` that a training step is compiled for."""

    strategy: Strategy
    metrics: Mapping[str, MetricFunction]
    precision: str | None
    loss_scale: LossScale | None
    class_weight: ClassWeights | None = None

    @property
    def key(self) -> Hashable:
        """A hashable key, equal for equal settings. The loss is not a part of it: the trainer
        discards its steps when another one is assigned."""
        scale = self.loss_scale and id(self.loss_scale)
        metrics = tuple(self.metrics.items())
        return self.strategy, metrics, self.precision, scale, self.class_weight


@final
class StepSequence(NamedTuple):
    """Consecutive steps of one kind.

    exchanges   True if the workers exchange their results in each of them
    steps       the number of steps
    """

    exchanges: bool
    steps: int


@final
@dataclass(frozen=True)
class _TracedTrainingStep:
    """The trace and graph of a step, and what is needed to compile it."""

    placeholders: list[Node]
    trace: Trace
    graph: Graph
    division: AsynchronousDivision | None

    @property
    def variables(self) -> list[Variable]:
        """The variables that the step updates."""
        return [t.value() for t in self.graph.targets if t is not None]


@final
class TrainingStep:
    """A training step for a feed of one signature, which the constructor traces and compiles.

    loss     a function of outputs and targets
    stream   the generator state for layers without their own, or None for the pool's
    """

    def __init__(
        self,
        module: Module,
        loss: Callable[[Any, Any], Array],
        optimizer: Optimizer,
        feed: Feed,
        settings: StepSettings,
        stream: StreamState | None,
    ) -> None:
        self.engine = session.engine()
        self._given_loss, self._loss = loss, _weighted(loss, settings.class_weight, feed)
        self._module, self._optimizer = module, optimizer
        self.settings, self._stream = settings, stream
        self.count, self.batch_size = feed.count, feed.batch_size
        self._epoch, self._seed = scalar(None, int64), scalar(None, int64)
        self.steps = math.ceil(self.count / self.batch_size)
        """The number of steps in an epoch."""
        self.metrics = {name: epoch_metric(name, m) for name, m in settings.metrics.items()}
        self.reported: tuple[str, ...] = ()
        """The names of the values that each step reports."""
        self._counter = variable("step", 0, dtype=int64)
        self._done = 0
        """The number of steps with full batches so far, which is the value of the counter."""
        self.is_between_epochs = True
        """False during an epoch, and after one that was interrupted or has failed."""
        self.strategy = settings.strategy
        self._build(feed)

    def _build(self, feed: Feed) -> None:
        """Place the variables, then trace and compile the programs for them as they are now."""
        self._feed = feed
        self.parameters = trainable_parameters("fit", self._module)
        self._rates = EpochRates(self._optimizer, rate_dtype(self.parameters), self.steps)
        self.training = Training.of(self._module, self._optimizer, self.settings.loss_scale)
        """The module and the optimizer, for the strategy."""
        self._traced_steps: dict[tuple[int, bool], _TracedTrainingStep] = {}
        self._assigned: dict[ref[Variable], None] = {}
        """The variables that the module or the loss assigns. The trace refers to them: if nothing
        else does, they are local to it."""
        self._place_variables()
        with watching_updates():
            self._trace_steps()
            full = self._traced_step(self.batch_size, True)
            self._captures = self._captures_of(full)
        self._updated = self._updated_variables()
        self._placeholders = {key: x.placeholders for key, x in self._traced_steps.items()}
        self._programs = {key: self._compile(x) for key, x in self._traced_steps.items()}
        graphs = [traced.graph for traced in self._traced_steps.values()]
        read = {leaf for graph in graphs for leaf in graph.leaves if leaf.name == "variable"}
        self._compiled_leaves = [
            (v, leaf, leaf.layout) for leaf in read if (v := leaf.value()) is not None
        ]
        """The variables that the programs read, with their leaves and layouts in the programs."""
        self._traced_steps.clear()
        del self._feed  # the data are operands of each run

    @property
    def outside_variables(self) -> list[Variable]:
        """The variables outside of the module that the steps assign, such as a queue of the loss,
        in the order of their first assignments."""
        of_module = {id(v) for _, v in self._variables_of_module()}
        assigned = [v for x in self._assigned if (v := x()) is not None]
        return [v for v in assigned if id(v) not in of_module]

    def _variables_of_module(self) -> list[tuple[str, Variable]]:
        """Return the parameters, buffers and random states of the module, with their paths."""
        return [*self._module.named_parameters(), *self._module.named_buffers()]

    @property
    def is_current(self) -> bool:
        """True if another trace would give the same program."""
        return (
            self.is_between_epochs
            and self.engine is session.engine()
            and self._captures.is_current
            and self._rates.is_current
            and are_identical(self.parameters, self._module.trainable())
            and are_identical(self._updated, self._updated_variables())
        )

    def _captures_of(self, traced: _TracedTrainingStep) -> Captures:
        """Return what a step reads: the variables of its graph, and those of the module, perhaps
        through copies of the strategy.

        Variables may move: `place` compares their layouts.
        """
        of_module = [v.leaf for _, v in self._variables_of_module()]
        movable = [*traced.graph.leaves, *of_module]
        captures = Captures(traced.graph, traced.placeholders, movable)
        for leaf in of_module:
            captures.add(leaf)
        captures.add_state(traced.trace)
        return captures

    def _updated_variables(self) -> list[Variable]:
        """Return the variables that the optimizer updates, each followed by its states."""
        updated = self.strategy.updated(self.training)
        return [
            v for entry in self._optimizer.variable_states.of(updated) for v in entry.variables()
        ]

    # tracing ------------------------------------------------------------------------------------

    def _trace_steps(self) -> None:
        """Trace the programs of an epoch: for full batches and for the last one, with an exchange
        of the replicas and, if some steps have none, without."""
        remaining = self.count % self.batch_size
        for samples_per_step in filter(None, (self.batch_size, remaining)):
            for exchanges in (True, False)[: 1 + (self.strategy.every > 1)]:
                self._traced_step(samples_per_step, exchanges)
        if self.strategy.is_asynchronous:
            self._share_assigned()

    def _compile(self, traced: _TracedTrainingStep) -> StepPrograms:
        """Return the program of a traced step, or the programs of one that contains loops."""
        if is_divided(traced.trace, traced.graph.roots):
            return DividedStep(traced.trace, traced.graph)
        graph = self.engine.pending_graph(traced.graph)
        compiled = self.engine.compile(
            graph,
            modes=RESTORED_TRAINING,
            division=traced.division,
            in_range=[self._counter.leaf],
            later=self._feed.leaves_sent_later(traced.placeholders),
        )
        return SingleProgram(traced.trace, graph, compiled, traced.variables)

    def _traced_step(self, samples_per_step: int, exchanges: bool) -> _TracedTrainingStep:
        """Return the graph of a step with this number of samples; traces it if there is none."""
        key = samples_per_step, exchanges
        if key not in self._traced_steps:
            self._traced_steps[key] = self._trace(samples_per_step, exchanges)
        return self._traced_steps[key]

    @paused_gc()
    @stage("trace")
    def _trace(self, samples_per_step: int, exchanges: bool) -> _TracedTrainingStep:
        """Return the graph of a step with this number of samples."""
        placeholders = self._feed.placeholders(samples_per_step)
        counter = self._counter.leaf
        read = self._given_loss, self._module, *self.settings.metrics.values()
        effects = PythonEffects("fit", "the loss or the module", *read)
        with self._module.mode(True), _drawing_from(self._stream):
            can_loop = not self.strategy.is_asynchronous
            with tracing.tracing(Trace(step=counter, can_loop=can_loop)) as trace:
                emitted = self._trace_values(placeholders, samples_per_step, exchanges)
            trace.check_effects("fit")
        pairs = dict(trace.assigned)
        if samples_per_step == self.batch_size:
            pairs[counter] = e.add(counter, constant(1, int64))
        graph = Graph(tuple(pairs.values()), tuple(pairs), emitted)
        uncompared = effects.add_reads_to(trace, set(graph.nodes))
        if uncompared and not self._traced_steps:
            warn_user(uncompared_warning("fit: the loss or the module", uncompared))
        division = self.strategy.asynchronous_division(self.training, self._counter)
        return _TracedTrainingStep(placeholders, trace, graph, division)

    def _trace_values(
        self, placeholders: list[Node], samples_per_step: int, exchanges: bool
    ) -> tuple[Node, ...]:
        """Trace a step; return the nodes of the loss and the metrics."""
        step = self._step_in_epoch(samples_per_step)
        samples = self._feed.batch(placeholders, samples_per_step, step, self._epoch, self._seed)
        training = replace(self.training, rates=lambda variables: self._rates.nodes(step))
        loss, outputs = self.strategy.step(training, self._forward, samples, exchanges)
        metric_step = None if self.strategy.is_asynchronous else step
        traced: dict[str, Node | None] = {}
        for name, metric in self.metrics.items():
            with tracing.calling(f"fit compiles the metric {name!r}"):
                traced[name] = metric.trace(outputs, samples[1], metric_step)
        reported = {name: node for name, node in traced.items() if node is not None}
        reported |= {name: x.node for name, x in self.strategy.reported().items()}
        self.reported = ("loss", *reported)
        if self.strategy.is_asynchronous:  # the workers add it to what a step emits
            self.reported = (*self.reported, DELAYS)
        return (loss.node, *reported.values())

    def _forward(self, samples: Samples) -> tuple[Array, Any]:
        """Return the loss and the outputs of a batch."""
        inputs, targets, weights = samples
        trace = tracing.current()
        assert trace is not None
        former = dict(trace.assigned)
        with keeping_expressions():  # gradients in a loss count
            with precision(self.settings.precision):
                outputs = call_module(self._module, inputs)
            operands = (in_compute_type(outputs), targets)
            with tracing.calling(f"fit compiles the loss {name_of(self._given_loss)!r}"):
                loss = self._loss(*operands) if weights is None else self._loss(*operands, weights)
        new = [leaf for leaf, value in trace.assigned.items() if former.get(leaf) is not value]
        self._assigned |= dict.fromkeys([ref(trace.read[leaf]) for leaf in new])
        return scalar_loss("fit", loss), operands[0]

    def _step_in_epoch(self, samples_per_step: int) -> Node:
        """Return the number of this step in the epoch, from 0."""
        full_batches = self.count // self.batch_size
        if samples_per_step != self.batch_size:
            return constant(full_batches, int64)
        return e.call("remainder", self._counter.leaf, constant(full_batches, int64))

    # strategy -----------------------------------------------------------------------------------

    def _place_variables(self) -> None:
        """Choose the layouts of the variables, and move them there."""
        environment = self.engine.environment
        self._prepare()
        self.choice = self.strategy.choose(self.training, environment, self._full_graph)
        self._layouts = self.choice.layouts
        if self.choice.changes_step:
            self._traced_steps.clear()
        self._move_variables()

    def _share_assigned(self) -> None:
        """Store whatever a step assigns, except step counts, once for all workers of a host."""
        replicated = self.engine.environment.replicated
        assigned = {v.leaf: v for traced in self._traced_steps.values() for v in traced.variables}
        for traced in self._traced_steps.values():
            assert traced.division is not None
            for leaf in (*traced.division.steps, *traced.division.updates):
                assigned.pop(leaf, None)
        self._layouts = {**self._layouts}
        self._layouts |= {v: replicated(v.shape, shared=True) for v in assigned.values()}
        self._move_variables()

    def _full_graph(self) -> Graph:
        return self.engine.pending_graph(self._traced_step(self.batch_size, True).graph)

    def _move_variables(self) -> None:
        for v, layout in self._layouts.items():
            v.move(layout)

    def _prepare(self) -> None:
        """Let the strategy use what was assigned to the variables of which it has copies."""
        self.strategy.prepare(self.training, self.engine.environment)

    def place(self, feed: Feed) -> None:
        """Move the variables to the layouts that the programs expect, after other uses of them.

        Compiles the programs again, for a feed of the same signature, if variables that the
        strategy does not place have moved, such as those of a module that only the loss calls, or
        if variables were converted. The learning rates must be set then.
        """
        self._prepare()
        self._move_variables()
        if not self._has_compiled_layouts:
            self._build(feed)

    @property
    def _has_compiled_layouts(self) -> bool:
        """True if the variables have the types and layouts for which the programs were compiled."""
        return all(v.leaf is x and v.layout == layout for v, x, layout in self._compiled_leaves)

    def collect(self) -> None:
        """Assign the trained values of the strategy to the module's variables."""
        self.strategy.collect(self.training)

    # running ------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Set the learning rates of the epoch with this number."""
        self.is_between_epochs = False
        self._rates.set(epoch)
        if self.strategy.is_asynchronous:
            for metric in self.metrics.values():
                metric.begin()

    def set_rates(self, epoch: int, completed_steps: int) -> None:
        """Set the learning rates of the steps after the first `completed_steps` of an epoch, which
        a callback may have changed."""
        self._rates.set(epoch, completed_steps)

    def end_epoch(self) -> None:
        """Record that all steps of the epoch were run."""
        self.is_between_epochs = True

    def step_sequences(self, first: int, steps: int) -> list[StepSequence]:
        """Return the sequences of steps of one kind, from step `first` of the training on."""
        every = self.strategy.every
        exchanges = [(first + i + 1) % every == 0 for i in range(steps)]
        return [StepSequence(kind, len(list(alike))) for kind, alike in groupby(exchanges)]

    def run(
        self,
        samples_per_step: int,
        exchanges: bool,
        data: Sequence[Node],
        epoch: int,
        seed: int,
        steps: int,
        progress: ProgressCallback | None = None,
    ) -> list[float]:
        """Run several steps with batches of this size from these operands, with one message; return
        the values that the steps emit, in order.

        The optimizer counts the steps: of a run that is stopped or fails, those that it has taken,
        of one that goes on after Ctrl-C, those that it will have taken.
        """
        kind = samples_per_step, exchanges
        operands = dict(zip(self._placeholders[kind], data, strict=True))
        numbers = {**self._rates.numbers, self._epoch: epoch, self._seed: seed}
        programs = self._programs[kind]
        try:
            emitted = programs.run(operands, numbers, self._done, steps, progress)
        finally:
            self._optimizer.advance(programs.completed, programs.unfinished)
        if samples_per_step == self.batch_size:
            self._done += steps
        return emitted

    @property
    def _full(self) -> StepPrograms:
        """The programs of a step with a full batch."""
        return self._programs[self.batch_size, True]

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of a step with a full batch, in order.

        A step that contains loops is several programs, which are known after its first run. Before
        that it is one program, in which the loops are unrolled.
        """
        return self._full.programs()

    def explain(self) -> Explanation:
        """Explain the step's program by layer, with the predicted costs of the strategies, and with
        the measurements of the last profiled run.

        For a step that contains loops it lists the programs of the last step.
        """
        return self._full.explain(partial(explain_step, self.strategy, self.training, self.choice))


def _weighted(
    loss: Callable[..., Array], classes: ClassWeights | None, feed: Feed
) -> Callable[..., Array]:
    """Return the loss of outputs, targets and, if the feed has them, the weights of samples."""
    if classes is None and feed.example.weights is None:
        return loss
    return WeightedLoss(loss, classes, "sample_weight" if classes is None else "class_weight")


def _drawing_from(stream: StreamState | None) -> AbstractContextManager[object]:
    """Make layers draw from this generator state; for None, from the pool's."""
    return nullcontext() if stream is None else drawing_from(stream)
