"""NeuralNetwork: a trainer of a list of layers, with the method names of Keras."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Unpack, final

from magmath.api.creation import DTypeLike, asarray
from magmath.arrays.array import Array
from magmath.core.dtypes import DType
from magmath.core.foreign_names import hint, missing_attribute
from magmath.core.foreign_network_names import NETWORK_ATTRIBUTES
from magmath.core.keyword_hints import KeywordHints, takes_options_of
from magmath.data.loader import Loader
from magmath.engine import session
from magmath.errors import OptionError, ShapeError, StateError, WeightsError
from magmath.graph import Shape
from magmath.nn.abstract import abstract_inputs
from magmath.nn.layers import Sequential
from magmath.nn.module import Module, check_module, first_called
from magmath.nn.state_file import IncompatibleKeys, load_arrays, read, write
from magmath.nn.variables import Parameter
from magmath.optim import Optimizer
from magmath.parallel.simulator.program_step import SimulatedStep, Times
from magmath.parallel.strategy_table import StrategyLike, as_strategy
from magmath.train.feeds import EXAMPLE_ROWS
from magmath.train.fit_request import FitOptions, FitRequest
from magmath.train.history import History
from magmath.train.listeners import Reporting, callback_list
from magmath.train.metric_choice import Metrics, metric_functions
from magmath.train.reporter import Reporter
from magmath.train.resident_data import check_no_batches
from magmath.train.trainer import Loss, Trainer

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation


@final
class Kept(Enum):
    """The type of `KEEP`."""

    KEEP = "KEEP"

    def __repr__(self) -> str:
        return self.value


KEEP: Final = Kept.KEEP
"""The default of settings of `fit` that stay as the trainer has them."""


@final
class NeuralNetwork(metaclass=KeywordHints):
    """A network of layers, or a module, with a loss and an optimizer.

    layers      a list from input to output, or an `nn.Module`
    loss        a name in `mm.nn.losses.LOSSES`, such as "cross_entropy" (integer labels or
                probabilities), or a function of (outputs, targets) that returns a 0-d array
    optimizer   an optimizer, or a name in `mm.optim.OPTIMIZERS`, such as "sgd" or "adam"
    precision   "float32", "mixed-bfloat16" or "mixed-float16", in which the network computes (see
                `nn.precision`); None is the type of the parameters
    seed        seed of the initial parameters, the order of samples and dropout; by default they
                draw from the pool's generator

    Parameters have the default floating point type (`set_default_dtype`) at the time when they are
    made. Floating point samples and targets are converted to that type. A network is a thin layer
    over `trainer`, which has more options.
    """

    def __init__(
        self,
        layers: Sequence[Module] | Module,
        *,
        loss: Loss = "cross_entropy",
        optimizer: Optimizer | str = "adam",
        precision: str | None = None,
        seed: int | None = None,
    ) -> None:
        module = layers if isinstance(layers, Module) else _sequential(layers)
        self.trainer = Trainer(module, loss, optimizer, precision=precision, seed=seed)
        self._input_shape: Shape | None = None
        self._built_module: Module | None = None
        """The module that was built for samples of this shape; another one may be assigned."""
        self._input_dtype: DType | None = None
        """The type of the samples with which it was built, if that is none of the parameters."""

    def __repr__(self) -> str:
        inside = repr(self.module).replace("\n", "\n  ")
        built = "" if self.input_shape is None else f" built for samples of {self.input_shape}"
        return f"<NeuralNetwork{built}:\n  {inside}>"

    def __getattr__(self, name: str) -> NoReturn:
        missing = f"{type(self).__name__!r} object"
        for part, kind in (("module", Module), ("trainer", Trainer)):
            if hasattr(kind, name):
                call = "(…)" if callable(getattr(kind, name)) else ""
                raise missing_attribute(missing, name, f"; write net.{part}.{name}{call}")
        raise missing_attribute(missing, name, hint(NETWORK_ATTRIBUTES, name))

    @property
    def module(self) -> Module:
        """The module of the trainer; another one may be assigned."""
        return self.trainer.module

    @module.setter
    def module(self, module: Module) -> None:
        self.trainer.module = module

    @property
    def input_shape(self) -> Shape | None:
        """The shape of the samples for which the module was built; None before."""
        return self._input_shape if self._built_module is self.module else None

    @property
    def layers(self) -> tuple[Module, ...]:
        """The layers of a sequential network, otherwise the module alone."""
        return self.module.layers if isinstance(self.module, Sequential) else (self.module,)

    @property
    def loss(self) -> Callable[[Any, Any], Array]:
        """The loss, a function of outputs and targets."""
        return self.trainer.loss

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer; another one, or its name, may be assigned."""
        return self.trainer.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer | str) -> None:
        self.trainer.optimizer = optimizer

    @property
    def precision(self) -> str | None:
        """The precision in which the network computes."""
        return self.trainer.precision

    @property
    def seed(self) -> int | None:
        """The seed, or None."""
        return self.trainer.seed

    @property
    def history(self) -> History | None:
        """The history of the last `fit`, even if it was interrupted."""
        return self.trainer.history

    @property
    def dtype(self) -> DType:
        """The type of the parameters; before they exist, the default floating point type."""
        return self.trainer.dtype

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters by path; empty before the network is built."""
        return dict(self.module.named_parameters()) if self.module.is_built else {}

    # building ---------------------------------------------------------------------------------

    def build(self, *shapes: Any, dtype: DTypeLike = None) -> NeuralNetwork:
        """Make the parameters for inputs of these shapes, batch included, as `Module.build` does;
        return the network. `fit` and `predict` make them if needed.

        dtype: the type of the inputs, by default that of the parameters; `summary` uses it, and
        `save` writes it for `load`. Raises ShapeError, naming the layer that does not fit, or if
        the network was built for samples of another shape.
        """
        kind = self.dtype if dtype is None else dtype
        inputs = abstract_inputs("build", first_called(self.module), shapes, kind)
        sample = inputs[0].shape[1:] if len(inputs) == 1 else None
        if self.input_shape is None:
            self.trainer.trace(inputs, training=True)
            self._note_samples(sample, inputs[0].dtype)
        elif sample is not None:
            self._check_shape("build", sample)
        return self

    def _note_samples(self, shape: Shape | None, dtype: DType) -> None:
        """Record the shape and the type of the samples with which the network was built."""
        self._input_shape, self._built_module = shape, self.module
        self._input_dtype = None if dtype.is_floating else dtype

    def _check_shape(self, operation: str, sample: Shape) -> None:
        """Raise ShapeError for samples of another shape than that of the network."""
        if sample != self.input_shape:
            raise ShapeError(
                f"{operation}: the network takes samples of shape {self.input_shape}, was given "
                f"{sample}; reshape the samples, or make another network for them (build takes the "
                f"shape of an input, batch included)"
            )

    @property
    def is_built(self) -> bool:
        """True if all layers have their parameters."""
        return self.module.is_built

    @contextmanager
    def _noting_shape(self, operation: str, x: Any) -> Iterator[Any]:
        """Yield the samples; record their shape and type if the network is built within the block.

        Raises ShapeError if the network was built for another shape. They are recorded even if
        training in the block is interrupted.
        """
        if isinstance(x, (tuple, dict)):
            yield x
            return
        check_no_batches(operation, x)
        samples = x if isinstance(x, Loader) or hasattr(x, "shape") else asarray(x)
        shape = x.sample_shape if isinstance(x, Loader) else tuple(samples.shape[1:])
        has_samples = isinstance(x, Loader) or bool(samples.shape)
        dtype: DType | None = None
        if self.input_shape is not None and has_samples:
            self._check_shape(operation, shape)
        elif has_samples:
            dtype = asarray(x.example[0] if isinstance(x, Loader) else samples[:1]).dtype
        try:
            yield samples
        finally:  # without a pool, which may have ended
            if dtype is not None and self.module.is_built:
                self._note_samples(shape, dtype)

    # using ------------------------------------------------------------------------------------

    @takes_options_of(FitRequest.of)
    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        strategy: StrategyLike | Kept = KEEP,
        metrics: Metrics | Kept = KEEP,
        reporter: Reporter | None = None,
        **options: Unpack[FitOptions],
    ) -> History:
        """Train on samples x (N, …) and targets y, or on a `data.Loader`; return the history of all
        epochs.

        strategy    the division of the work over the workers, as for `Trainer`; at first "auto"
        metrics     names or functions; at first None, which is accuracy for classifiers, that is
                    with the loss "cross_entropy" or with integer labels
        reporter    an object whose methods `begin`, `step`, `epoch` and `end` receive the progress;
                    `verbose` prints it

        `strategy` and `metrics` are kept by `trainer`: they apply to later calls, also of
        `evaluate` and `explain`, until they are given again. The other options and the errors are
        those of `Trainer.fit`.
        """
        if strategy is not KEEP:
            as_strategy(strategy)  # an unknown one is not kept
            self.trainer.strategy = strategy
        if metrics is not KEEP:
            metric_functions(metrics or ())
            self.trainer.metrics = metrics
        if reporter is not None:
            callbacks = callback_list(options.get("callbacks", ()))
            options["callbacks"] = [*callbacks, Reporting(reporter)]
            options["verbose"] = False
        with self._noting_shape("fit", x) as samples:
            return self.trainer.fit(samples, y, **options)

    def predict(self, x: Any, *, batch_size: int | None = None) -> Any:
        """Return the outputs for samples x (N, …). `batch_size` bounds the memory of a call; see
        `Trainer.predict`."""
        with self._noting_shape("predict", x) as samples:
            return self.trainer.predict(samples, batch_size=batch_size)

    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None) -> dict[str, Any]:
        """Return the loss, and for classifiers the accuracy, over samples x and targets y, or over
        a loader. `batch_size` as in `predict`."""
        with self._noting_shape("evaluate", x) as samples:
            return self.trainer.evaluate(samples, y, batch_size=batch_size)

    def summary(self) -> str:
        """Return the layers with their output shapes and parameter counts, as text."""
        if self.input_shape is None:
            raise StateError("summary: the network is not built; call net.build(shape) or fit")
        return self.module.summary((1, *self.input_shape), dtype=self._input_dtype or self.dtype)

    def explain(self, strategy: StrategyLike | None = None) -> Explanation:
        """Explain the program of a training step by operation, line and layer; see
        `Trainer.explain`."""
        return self.trainer.explain(strategy)

    def simulate(
        self,
        strategy: StrategyLike | None = None,
        *,
        times: Times = "measured",
        slowdown: Mapping[int, float] | None = None,
    ) -> SimulatedStep:
        """Simulate training steps from the program that the workers run; see
        `Trainer.simulate`."""
        return self.trainer.simulate(strategy, times=times, slowdown=slowdown)

    def state_dict(self) -> dict[str, Array]:
        """Return snapshots of parameters, buffers and random states by path; see
        `Module.state_dict`."""
        return self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Assign values by path; see `Module.load_state_dict`."""
        return self.module.load_state_dict(state, strict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the module to a safetensors file, atomically."""
        if not self.is_built:
            raise StateError(
                "save: the network has no parameters yet, because it is not built; first call fit, "
                "predict, or build with the shape of an input, batch included"
            )
        metadata = {
            "aliases": json.dumps(self.module.aliases()),
            "layers": json.dumps([repr(layer) for layer in self.layers]),
            "input_shape": json.dumps(self.input_shape),
        }
        if self._input_dtype is not None:
            metadata["input_dtype"] = self._input_dtype.name
        write(path, self.module.state_dict(), metadata)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load a file that `save` has written; build the network if it is not built.

        Raises WeightsError if the file belongs to another network or is damaged, and its subclass
        MissingWeightsError, a FileNotFoundError, if there is none.
        """
        tensors, metadata = read(path)
        session.engine()
        if not self.is_built:
            shape = (EXAMPLE_ROWS, *_sample_shape(path, metadata))
            self.build(shape, dtype=metadata.get("input_dtype"))
        load_arrays(self.module, path, tensors, metadata)


def _sequential(layers: Sequence[Module]) -> Sequential:
    if not isinstance(layers, (list, tuple)) or not layers:
        raise OptionError(f"NeuralNetwork: needs a list of layers, was given {layers!r}")
    for i, layer in enumerate(layers):
        if isinstance(layer, (type, str)) or not callable(layer):
            check_module(f"NeuralNetwork: layer {i}", layer)
    return Sequential(*layers)


def _sample_shape(path: str | os.PathLike[str], metadata: dict[str, str]) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in json.loads(metadata["input_shape"]))
    except (KeyError, ValueError, TypeError):
        raise WeightsError(
            f"load: {path} does not contain the shape of samples; call net.build(shape) first"
        ) from None
