"""NeuralNetwork: a list of layers, a loss and an optimizer, trained on the workers of the pool.

The data set is put on the workers once; a step, from taking its batch to writing the new
parameters, is one program, and an epoch is one message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import magmath as mm
from magmath.array import session
from magmath.array.array import Array
from magmath.array.creation import asarray, variable
from magmath.array.variable import Variable
from magmath.core.dtypes import DType, int64
from magmath.core.promotion import get_default_dtype
from magmath.errors import DataError, MagmathError, ShapeError
from magmath.graph import Shape, apply
from magmath.nn.layers import Layer, Noise, ParameterSpec
from magmath.nn.losses import cross_entropy, loss_function
from magmath.ops import creation
from magmath.ops.leaves import parameter
from magmath.optim import OPTIMIZERS, Optimizer
from magmath.train.history import History

if TYPE_CHECKING:
    from magmath.array.explanation import Explanation
    from magmath.train.fit import Fit
    from magmath.train.report import Reporter

SCORING_ROWS = 4096  # samples that evaluate and predict pass through the network at once


class NeuralNetwork:
    """A network of layers.

    layers      in order, from input to output
    loss        a name in `mm.nn.losses.LOSSES`, such as "cross_entropy" (integer labels or
                probabilities), or a function of (outputs, targets) that returns a 0-d array
    optimizer   an optimizer, or a name in `mm.optim.OPTIMIZERS`, such as "sgd" or "adam"
    seed        of the first parameters, the order of batches and dropout; the pool's by default

    Parameters are of the default floating point type (`set_default_dtype`) at the time when they
    are made. Samples, and targets that are floating point, are converted to that type.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        loss: str | Callable[[Array, Array], Array] = "cross_entropy",
        optimizer: Optimizer | str = "adam",
        seed: int | None = None,
    ) -> None:
        _check_layers(layers)
        self.layers = tuple(layers)
        self.loss = loss_function(loss)
        self.classifies = self.loss is cross_entropy
        self.optimizer = optimizer if isinstance(optimizer, Optimizer) else _named(optimizer)
        self.seed = seed
        self.input_shape: Shape | None = None
        self.parameters: dict[str, Variable] = {}
        self._trained: Fit | None = None
        self.history: History | None = None
        """The figures of the last `fit`, also of one that was interrupted."""

    def __repr__(self) -> str:
        inside = "\n".join([f"  {i}: {layer}" for i, layer in enumerate(self.layers)])
        built = "" if self.input_shape is None else f", built for samples of {self.input_shape}"
        return f"<NeuralNetwork of {len(self.layers)} layers{built}:\n{inside}>"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: everything but the training step, which belongs to a pool."""
        return self.__dict__ | {"_trained": None}

    # building ---------------------------------------------------------------------------------

    def build(self, input_shape: Shape) -> None:
        """Make the parameters for samples of this shape; `fit` and `predict` do it by themselves.

        Raises ShapeError naming the layer that does not fit, or if it was built for another shape.
        """
        shape = tuple(input_shape)
        if self.input_shape is not None:
            if shape != self.input_shape:
                raise ShapeError(
                    f"the network takes samples of shape {self.input_shape}, was given {shape}"
                )
            return
        specs = self._specs(shape)
        for i, (name, spec) in enumerate(specs.items()):
            first = _initial(spec, self.dtype, self.seed_or_pool(), i)
            self.parameters[name] = variable(name, first)
        self.input_shape = shape

    def seed_or_pool(self) -> int:
        """This network's seed, else the pool's."""
        return session.engine().rng_state.seed if self.seed is None else self.seed

    @property
    def dtype(self) -> DType:
        """The type of the parameters; before they are made, the default floating point type."""
        first = next(iter(self.parameters.values()), None)
        return get_default_dtype() if first is None else first.dtype

    def _specs(self, shape: Shape) -> dict[str, ParameterSpec]:
        specs: dict[str, ParameterSpec] = {}
        for i, layer in enumerate(self.layers):
            try:
                for name, spec in layer.parameters(shape).items():
                    specs[f"{i}.{name}"] = spec
                shape = layer.output_shape(shape)
            except ShapeError as error:
                raise ShapeError(f"layer {i} ({layer}): {error}") from None
        return specs

    def forward(
        self, x: Array, parameters: Mapping[str, Array] | None = None, noise: Noise | None = None
    ) -> Array:
        """The outputs for a batch, as an expression of the parameters."""
        own: Mapping[str, Array] = self.parameters if parameters is None else parameters
        of_layer: dict[str, dict[str, Array]] = {}
        for name, value in own.items():
            index, _, attribute = name.partition(".")
            of_layer.setdefault(index, {})[attribute] = value
        for i, layer in enumerate(self.layers):
            x = layer(x, of_layer.get(str(i), {}), noise, i)
        return x

    # using ------------------------------------------------------------------------------------

    def fit(
        self,
        x: Any,
        y: Any,
        *,
        batch_size: int = 32,
        epochs: int = 1,
        strategy: str = "auto",
        validation: tuple[Any, Any] | None = None,
        shuffle: bool = True,
        metrics: Sequence[str] | None = None,
        reporter: Reporter | None = None,
        verbose: bool = False,
    ) -> History:
        """Train on samples x (N, …) and targets y; returns the figures of every epoch.

        strategy    "auto", "data", "model" or "rows": see `train/strategy.py`
        validation  (x, y), scored after every epoch
        metrics     ["accuracy"] or []; by default accuracy of classifiers, that is with the loss
                    "cross_entropy" or with integer labels
        reporter    an object told of progress (`begin`, `step`, `epoch`, `end`); `verbose` prints

        Raises DataError for labels out of range or lengths that differ, NonFiniteLoss with the step
        at which the loss stopped being a number. Ctrl-C stops between steps: the parameters keep
        what was learnt, and `net.history` the figures until then.
        """
        from magmath.train.fit import Fit

        pair = isinstance(validation, (tuple, list)) and len(validation) == 2
        if validation is not None and not pair:
            raise DataError(
                f"fit: validation must be a pair (samples, targets), was given "
                f"{type(validation).__name__}"
            )
        settings = batch_size, strategy, shuffle, None if metrics is None else tuple(metrics)
        run = self._trained
        if run is None or not run.serves(x, y, settings):
            run = Fit(self, x, y, settings)
        run.validation = validation
        return run.epochs(epochs, reporter, verbose)

    def predict(self, x: Any) -> Array:
        """The outputs for samples x (N, …)."""
        samples = asarray(x, dtype=self.dtype)
        self.build(samples.shape[1:])
        rows = range(0, max(samples.shape[0], 1), SCORING_ROWS)
        parts = [self.forward(samples[i : i + SCORING_ROWS]) for i in rows]
        return parts[0] if len(parts) == 1 else mm.concat(parts, axis=0)

    def evaluate(self, x: Any, y: Any) -> dict[str, float]:
        """The mean loss, and of classifiers the accuracy, over samples x and targets y."""
        from magmath.train.fit import score

        return score(self, x, y)

    def summary(self) -> str:
        """The layers with their output shapes and parameter counts, as text."""
        from magmath.train.summary import summary

        return summary(self)

    def explain(self) -> Explanation:
        """The program of a training step, its cost, and what strategies were predicted to cost."""
        if self._trained is None:
            raise MagmathError("explain: call fit first; there is no training step yet")
        return self._trained.explain()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameters to a safetensors file, complete or not at all."""
        from magmath.train.weights import save

        save(self, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read parameters that `save` wrote.

        Raises WeightsError if the file belongs to another network or is damaged.
        """
        from magmath.train.weights import load

        load(self, path)


def _check_layers(layers: Sequence[object]) -> None:
    """MagmathError for what is no list of layers."""
    if not isinstance(layers, (list, tuple)) or not layers:
        raise MagmathError(f"NeuralNetwork: needs a list of layers, was given {layers!r}")
    for i, layer in enumerate(layers):
        if isinstance(layer, Layer):
            continue
        remedy = "a layer is an object such as mm.nn.Dense(10)"
        if isinstance(layer, type) and issubclass(layer, Layer):
            remedy = f"write mm.nn.{layer.__name__}(…), with parentheses"
        elif isinstance(layer, str) or callable(layer):
            name = layer if isinstance(layer, str) else getattr(layer, "__name__", "relu")
            remedy = f'for an activation write mm.nn.Activation("{name}")'
        raise MagmathError(f"NeuralNetwork: layer {i} is {layer!r}, which is no layer; {remedy}")


def _named(name: object) -> Optimizer:
    if isinstance(name, type) and issubclass(name, Optimizer):
        raise MagmathError(f"optimizer: needs an object; write mm.optim.{name.__name__}(…)")
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise MagmathError(f"optimizer {name!r} is not known; there are {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]()


def _initial(
    spec: ParameterSpec, dtype: DType, seed: int, index: int
) -> np.ndarray[Any, Any] | Array:
    """The first values of a parameter: the same for every pool, from the seed and its position."""
    if spec.limit == 0.0:
        return np.zeros(spec.shape, dtype=dtype.name)
    stream = (1 << 40) + index  # apart from the streams that users draw
    drawn = Array(
        apply(
            creation.UNIFORM,
            parameter(seed, int64),
            parameter(stream, int64),
            shape=spec.shape,
            dtype=dtype,
        )
    )
    return drawn * (2 * spec.limit) - spec.limit
