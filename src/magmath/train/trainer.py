"""Trainer: a module, a loss and an optimizer, and the loop over epochs.

Arrays are copied to the workers once. A step, from the selection of its batch to the update of the
parameters, is one program (`train/step.py`), and the full batches of an epoch need one message. The
batches of a `data.Loader` are sent one by one, while its threads prepare the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, final

from magmath.api.creation import zeros
from magmath.api.random import initial_values_from
from magmath.arrays.array import Array
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.dtypes import DType
from magmath.core.identity import are_identical
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import KeywordHints, takes_options_of
from magmath.core.promotion import get_default_dtype
from magmath.data.loader import Loader
from magmath.engine import session
from magmath.engine.traces.stream_ranges import INITIAL_STREAMS, TRAINER_STREAMS
from magmath.engine.traces.stream_state import StreamState
from magmath.errors import OptionError, StateError
from magmath.nn.abstract import trace_call
from magmath.nn.losses import loss_function
from magmath.nn.mixed_precision import check_parameters, check_precision
from magmath.nn.mixed_precision import precision as in_precision
from magmath.nn.module import Module, check_module
from magmath.optim import LossScale, Optimizer
from magmath.parallel.simulator.program_step import SimulatedStep, Times, simulate_programs
from magmath.parallel.strategy import Strategy, Training, loss_scale_for
from magmath.parallel.strategy_table import NamedStrategies, StrategyLike
from magmath.train.checkpoint import Checkpoint
from magmath.train.epoch_loop import EpochLoop
from magmath.train.feeds import EXAMPLE_ROWS, Feed, ResidentFeed
from magmath.train.fit_request import FitOptions, FitRequest
from magmath.train.history import History
from magmath.train.inference import Inference
from magmath.train.listeners import callback_list, has_step_callback
from magmath.train.metric_choice import Metrics, metric_functions
from magmath.train.optimizer_choice import optimizer_of
from magmath.train.resident_data import Samples
from magmath.train.restarts import restarted_on_loss
from magmath.train.step import StepSettings, TrainingStep
from magmath.train.trainer_data import TrainerData
from magmath.train.weighted_loss import ClassWeights

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation

KEPT_STEPS = 8
Loss = str | Callable[[Any, Any], Array]


@final
class Trainer(metaclass=KeywordHints):
    """Trains a module.

    module      an `nn.Module`
    loss        a name in `mm.nn.losses.LOSSES`, such as "cross_entropy" (integer labels or
                probabilities), or a function of (outputs, targets) that returns a 0-d array
    optimizer   an optimizer, or a name in `mm.optim.OPTIMIZERS`, such as "sgd" or "adam"
    metrics     names in `mm.nn.metrics.METRICS`, such as "accuracy", or functions of (outputs,
                targets), which are recorded by their names: "<lambda>", "<lambda>_2" …; by default
                accuracy for classifiers, that is with the loss "cross_entropy" or with integer
                labels
    callbacks   `Callback` objects, or functions of the epoch's record
    strategy    the division of the work: a name in `mm.parallel.STRATEGIES`, an object of
                `mm.parallel`, or a dictionary from layers to options; see `docs/parallel.md`
    precision   "float32", "mixed-bfloat16" or "mixed-float16", in which the module computes for
                `fit`, `predict` and `evaluate` (see `nn.precision`); None is the type of the
                parameters
    loss_scale  the scale of the loss; by default a new `optim.LossScale` for "mixed-float16"
    seed        seed of the initial parameters, the order of the samples, and layers that draw
                random numbers; by default these draw from `mm.random`, as in a user's loop

    Inputs and targets are arrays, or tuples and dictionaries of arrays: a tuple has the arguments
    of the module, a dictionary its keyword arguments. Floating point arrays are converted to the
    type of the parameters. A `data.Loader` replaces both.
    """

    def __init__(
        self,
        module: Module,
        loss: Loss = "cross_entropy",
        optimizer: Optimizer | str = "adam",
        *,
        metrics: Metrics = None,
        callbacks: Sequence[Any] = (),
        strategy: StrategyLike = "auto",
        precision: str | None = None,
        loss_scale: LossScale | None = None,
        seed: int | None = None,
    ) -> None:
        self._module = check_module("Trainer", module)
        self._loss = loss_function(loss)
        self._optimizer = optimizer_of(optimizer)
        self.metrics = metrics
        self.callbacks = callback_list(callbacks)
        self.strategy = strategy
        self._default_scale: LossScale | None = None
        """The scale that the precision needs by default, which another precision replaces."""
        self._set_precision(precision, loss_scale)
        self.epochs_done = 0
        """The number of finished epochs, in all calls of `fit`."""
        self.history: History | None = None
        """The history of the last `fit`, even if it was interrupted."""
        self._forget_pool()
        self.seed = seed

    def _forget_pool(self) -> None:
        """Discard programs and data, which belong to a module and a pool."""
        self._last_inference: Inference | None = None
        self._steps: RecentlyUsed[Hashable, TrainingStep] = RecentlyUsed(KEPT_STEPS)
        self._data = TrainerData(self)
        self._strategies = NamedStrategies()
        self._last_feed: Feed | None = None
        self.stop_requested = False

    @property
    def module(self) -> Module:
        """The module that is trained; another one may be assigned."""
        return self._module

    @module.setter
    def module(self, module: Module) -> None:
        self._module = check_module("Trainer", module)
        self._forget_pool()

    @property
    def loss(self) -> Callable[..., Any]:
        """The loss of outputs and targets; another one, or its name, may be assigned."""
        return self._loss

    @loss.setter
    def loss(self, loss: Loss) -> None:
        self._loss = loss_function(loss)
        self._steps.clear()

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer; another one, or its name, may be assigned."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer | str) -> None:
        self._optimizer = optimizer_of(optimizer)

    @property
    def precision(self) -> str | None:
        """The precision in which the module computes; another one may be assigned."""
        return self._precision

    @precision.setter
    def precision(self, precision: str | None) -> None:
        is_default = self.loss_scale is self._default_scale and precision != self._precision
        self._set_precision(precision, None if is_default else self.loss_scale)

    def _set_precision(self, precision: str | None, loss_scale: LossScale | None) -> None:
        """Set the precision and the scale of the loss, by default the one that it needs."""
        self._precision = check_precision("Trainer", precision)
        self.loss_scale = loss_scale_for(self._precision, loss_scale)
        if loss_scale is None:
            self._default_scale = self.loss_scale

    @property
    def seed(self) -> int | None:
        """The seed of orders and layers. Assigning a seed restarts its streams."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = seed
        self._stream = None if seed is None else StreamState(seed, TRAINER_STREAMS)
        self._steps.clear()

    def __repr__(self) -> str:
        return f"Trainer({self.module!r}, optimizer={self.optimizer!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except programs and data, which belong to a pool, for pickle."""
        of_pool = ("_last_inference", "_steps", "_data", "_strategies", "_last_feed")
        return {name: value for name, value in self.__dict__.items() if name not in of_pool}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget_pool()

    # building -----------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """The floating point type of the parameters; before they exist, the default type."""
        if self.module.is_built:
            for parameter in self.module.parameters():
                if parameter.dtype.is_floating:
                    return parameter.dtype
        return get_default_dtype()

    def stream(self) -> StreamState:
        """Return the generator state for layers without their own."""
        return session.engine().stream_state if self._stream is None else self._stream

    def trace(self, inputs: Any, training: bool) -> Any:
        """Return abstract outputs for abstract inputs; makes the parameters."""
        first = nullcontext() if self.seed is None else _initial_values(self.module, self.seed)
        with first, self.module.mode(training), in_precision(self.precision):
            outputs = trace_call(self.module, inputs)
        check_parameters("Trainer", self.precision, self.module.named_parameters())
        return outputs

    # training -----------------------------------------------------------------------------------

    def prepare_strategy(self) -> tuple[Strategy, Training]:
        """Return the strategy, with its variables, and the module and optimizer that it trains."""
        strategy = self._strategies.of(self.strategy)
        training = Training.of(self.module, self.optimizer, self.loss_scale)
        strategy.prepare(training, session.engine().environment)
        return strategy, training

    @takes_options_of(FitRequest.of)
    def fit(self, x: Any, y: Any = None, **options: Unpack[FitOptions]) -> History:
        """Train on samples x (N, …) and targets y; return the history of all epochs.

        x            samples, or a `data.Loader`, which has the targets, batch size and order
        y            targets (N, …); none with a loader
        epochs       passes over the data, by default 1; 0 only builds and compiles the step
        batch_size   samples in a step, by default 32
        validation   (x, y), (x, y, weights) or a loader, scored after every epoch; weights (N,) are
                     factors of the losses. `validation_data` is the same
        validation_split   the share of the samples, the last ones, that are not trained on and
                     scored after every epoch, as in Keras
        class_weight   factors of the losses of samples by their class, a dictionary or a list; the
                     weight of other classes is 1. The loss is the mean over the samples. Metrics
                     and validation are not weighted by class
        sample_weight   factors (N,) of the losses of the samples, in addition to `class_weight`,
                     also of those that `validation_split` selects. Metrics are not weighted
        shuffle      draw a new order of the samples for each epoch; the default
        checkpoint   a folder, to which the complete training state is written after each epoch
        resume       continue from the checkpoint, if there is one, until `epochs` epochs are done
                     in total. The weights are those of an uninterrupted run: a learning rate that
                     is a number is that of the checkpoint, until a callback assigns another one;
                     callbacks continue from their states (`Callback.state_dict`). A training that
                     a callback has stopped continues only with a larger `epochs` than before
        restarts     how often training may continue from the checkpoint, in a new pool, after a
                     worker was lost; with fewer workers or hosts if the same do not start. Arrays
                     of the lost pool are lost: data must be arrays of NumPy or a loader
        verbose      print a line for each epoch
        callbacks    callbacks for this call, in addition to those of the trainer

        Raises DataError for labels out of range or lengths that differ, NonFiniteLoss, with the
        step number, if the loss becomes nan or infinite. Ctrl-C stops between steps: parameters and
        `history` keep the results of the completed steps. It does not wait for a step that goes on
        for more than 5 s: `history` lacks that, parameters and the count of the optimizer do not.
        """
        request = FitRequest.of(x, y, self.callbacks, **options)
        metric_functions(self.metrics or ())
        saved: list[Checkpoint] = []  # with a file of this training
        return restarted_on_loss(
            partial(self._train, request, saved),
            request.restarts,
            lambda: bool(saved),
            self._drop_pool_state,
        )

    def _train(self, request: FitRequest, saved: list[Checkpoint]) -> History:
        """Train in the current pool; add the checkpoint to `saved` once it has a file of this
        training."""
        self.history = History()  # an interrupt during the preparation leaves that
        feed_now = self._feeds(request)
        feed_now()  # the first call makes the parameters, to which a checkpoint may assign values
        validation = self._data.validation_feed(request.validation)
        checkpoint = request.checkpoint_of(self)
        resumes = checkpoint is not None and (request.resume or saved)
        restored = checkpoint.restore() if checkpoint is not None and resumes else None
        history = self.history if restored is None else restored

        def step_now() -> tuple[TrainingStep, Feed]:
            feed = feed_now()
            step = self._step(feed, request.class_weights)
            if checkpoint is not None:
                checkpoint.include(step.outside_variables)
            history.strategy = ", ".join(f"{k}: {v}" for k, v in step.choice.layers.items())
            self._last_feed = feed
            return step, feed

        self.history = history
        loop = EpochLoop(self, step_now, validation, checkpoint, request.listeners)
        if checkpoint is not None and request.restarts:
            if restored is None:
                checkpoint.save(history, request.epochs)  # a worker may be lost in the first epoch
            saved.append(checkpoint)
        loop.run(len(history.records), request.epochs, history)
        return history

    def _feeds(self, request: FitRequest) -> Callable[[], Feed]:
        """Return a function that returns the feed of `fit` for the trainer as it is now: another
        one after a change of the strategy, the module or the loss, which divide, convert or check
        the data, and always for a loader, whose sizes and transforms may have changed."""
        made_for: tuple[object, ...] = ()
        feed: Feed | None = None
        is_stream = isinstance(request.samples[0], Loader)

        def feed_now() -> Feed:
            nonlocal feed, made_for
            strategy = self._strategies.of(self.strategy)
            present = strategy, self.module, self.loss, self.dtype
            if feed is None or is_stream or not are_identical(made_for, present):
                alone = has_step_callback(request.listeners) and not strategy.is_asynchronous
                feed = self._data.training_feed(
                    request.samples, request.batch_size, request.shuffle, strategy, alone=alone,
                    former=feed,
                )  # fmt: skip
                # Read again, since checking the data builds the module, which sets the type.
                made_for = strategy, self.module, self.loss, self.dtype
            return feed

        return feed_now

    def _drop_pool_state(self) -> None:
        """Drop what belongs to the pool that was lost; give variables a place in the current one,
        for the values of the checkpoint."""
        variables = [v for step in self._steps.values() for v in step.outside_variables]
        variables += [*self.module.parameters(), *self.module.buffers()]
        strategies = self._strategies  # whose numbers of replicas are those of the checkpoint
        self._forget_pool()
        self._strategies = strategies
        for v in variables:
            v.assign(zeros(v.shape, dtype=v.dtype))

    def stop(self) -> None:
        """Make the current epoch the last one of `fit`; for callbacks."""
        self.stop_requested = True

    def _step(self, feed: Feed, weights: ClassWeights | None) -> TrainingStep:
        """Return the compiled step for a feed of this signature; reuses a cached one if it is
        current."""
        metrics = self._data.metrics_of(feed, feed.batch_size, training=True)
        strategy = self._strategies.of(self.strategy)
        settings = StepSettings(strategy, metrics, self.precision, self.loss_scale, weights)
        key = feed.signature, settings.key, id(self.optimizer), get_default_dtype()
        step = self._steps.pop(key, None)
        if step is None or not step.is_current:
            step = TrainingStep(
                self.module, self.loss, self.optimizer, feed, settings, self._stream
            )
        else:
            step.place(feed)
        self._steps.store(key, step)
        return step

    @property
    def step(self) -> TrainingStep | None:
        """The most recently used step, or None."""
        return self._steps.newest

    # using --------------------------------------------------------------------------------------

    def predict(self, x: Any, *, batch_size: int | None = None) -> Any:
        """Return the outputs for samples x (N, …), in evaluation mode; of a loader in the order of
        its source, also if it shuffles. Its labels are not used.

        batch_size   the maximum number of samples in one call of the module, which bounds its
                     memory; by default as many as suit the size of a sample
        """
        rows = _rows_of_call("predict", x, batch_size)
        if isinstance(x, Loader):
            return self._outputs_of(self._data.unlabelled_feed("predict", x))[0]
        return self._inference.outputs(self._data.unlabelled("predict", x), rows)

    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None) -> dict[str, Any]:
        """Return the loss and the metrics over samples x and targets y, or over a loader, in
        evaluation mode. `batch_size` as in `predict`."""
        rows = _rows_of_call("evaluate", x, batch_size)
        return self.score(self._data.evaluation_feed(x, y), rows)

    def score(self, feed: Feed, rows: int | None = None) -> dict[str, Any]:
        """Return the loss and the metrics of a feed, in evaluation mode, with at most `rows`
        samples in one call of the module."""
        metrics = self._data.metrics_of(feed, EXAMPLE_ROWS, training=False)
        return self._inference.score(self._outputs_of(feed, rows), metrics)

    @property
    def _inference(self) -> Inference:
        """The module in evaluation mode, with the present loss and precision."""
        inference, of = self._last_inference, (self.module, self.loss, self.precision)
        if inference is None or not inference.is_of(*of):
            inference = self._last_inference = Inference(*of)
        return inference

    def _outputs_of(self, feed: Feed, rows: int | None = None) -> Samples:
        """Return the outputs, the targets and the weights of all samples of a feed."""
        return self._inference.outputs_of_samples(feed.data_sets(), rows)

    def explain(self, strategy: StrategyLike | None = None) -> Explanation:
        """Explain the program of a training step: bytes, messages, memory and predicted time, by
        operation, line and layer.

        For a step that contains long loops it lists the programs of the last run, each loop with
        one step; before the first run, its loops are unrolled.

        strategy   another strategy than that of the last `fit`, for the same data

        Raises StateError before the first `fit`, of which `epochs=0` is enough.
        """
        last = self._last_step("explain")
        return last.explain() if strategy is None else self._step_under(strategy, last).explain()

    def simulate(
        self,
        strategy: StrategyLike | None = None,
        *,
        times: Times = "measured",
        slowdown: Mapping[int, float] | None = None,
    ) -> SimulatedStep:
        """Simulate training steps, event by event, from the programs that the workers run.

        A step that contains long loops is several programs, which are known after its first run;
        before that, its loops are simulated unrolled.

        strategy   another strategy than that of the last `fit`, for the same data
        times      "measured": the calls of each worker are measured in this process, one worker at
                   a time; "predicted": by the cost model, without any measurement
        slowdown   worker → factor by which its computations take longer

        Where each worker takes steps on its own, the seconds are those between two updates.

        Raises StateError before the first `fit`, of which `epochs=0` is enough, and OptionError for
        measured times of workers on GPUs.
        """
        last = self._last_step("simulate")
        step = last if strategy is None else self._step_under(strategy, last)
        engine = session.engine()
        if times == "measured" and engine.pool.topology.device != "cpu":
            raise OptionError(
                f"simulate: calls are measured on processors, and the workers of this pool compute "
                f"on {engine.pool.topology.device}; pass times='predicted'"
            )
        environment = engine.environment
        return simulate_programs(step.programs(), environment, times=times, slowdown=slowdown)

    def _last_step(self, operation: str) -> TrainingStep:
        if self.step is None or self._last_feed is None:
            raise StateError(f"{operation}: call fit first; there is no training step yet")
        return self.step

    def _step_under(self, strategy: StrategyLike, last: TrainingStep) -> TrainingStep:
        """Return a step for the data of the last `fit` under another strategy, whose variables go
        with the step unless the trainer has used it."""
        last_feed = self._last_feed
        assert last_feed is not None
        shown = self._strategies.known_or_new(strategy)
        feed, settings = last_feed, replace(last.settings, strategy=shown)
        if isinstance(feed, ResidentFeed):
            feed = feed.divided(settings.strategy.batch_multiple)
        step = TrainingStep(self.module, self.loss, self.optimizer, feed, settings, self._stream)
        last.place(last_feed)
        return step


@contextmanager
def _initial_values(module: Module, seed: int) -> Iterator[None]:
    """Draw initial parameters from a seed within this block, unless the module is built."""
    if module.is_built:
        yield
        return
    with initial_values_from(StreamState(seed, INITIAL_STREAMS)):
        yield


def _rows_of_call(operation: str, x: Any, batch_size: int | None) -> int | None:
    """Return the batch size for a call without gradients. Raises OptionError if a loader has its
    own."""
    if batch_size is None:
        return None
    if isinstance(x, Loader):
        raise OptionError(f"{operation}: a Loader has its own batch_size; pass it to the Loader")
    return require_integer(f"{operation}: batch_size", batch_size, 1)
