"""Strategies that choose the division of each layer: by samples, by outputs, or by inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, final

from magmath.api.reductions import sum
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_map import VariableMap
from magmath.engine import session
from magmath.errors import OptionError
from magmath.graph import Graph
from magmath.layout import Layout
from magmath.optim.states import VariableStates
from magmath.parallel.gradient_averaging import GradientAveraging
from magmath.parallel.gradient_messages import parts_of
from magmath.parallel.layer_layouts import COMPARED_OPTIONS, layer_options
from magmath.parallel.parameter_axes import DIVIDING_OPTIONS, LayerAxes
from magmath.parallel.strategy import Training
from magmath.passes.environment import Environment
from magmath.passes.expand import with_first_steps
from magmath.passes.parameter_layouts import choose_options
from magmath.passes.subgraphs import leaves_of_loops


class PerLayer(GradientAveraging):
    """The base class of strategies that have an option for each layer and no other state."""

    def __init__(self, accumulate: int) -> None:
        super().__init__(accumulate)
        self._is_whole: VariableMap[bool] = VariableMap()

    @final
    def set_layouts(self, training: Training, layouts: Mapping[Variable, Layout]) -> bool:
        """Store which parameters every worker has whole: the parts of a batch make an array of the
        workers' summands of their gradients, which is reduced when it is complete. Return True if
        there are such parameters, since the step must then be traced again."""
        if self.accumulate == 1:
            return False
        for v in training.parameters:
            whole = v in layouts and layouts[v].is_replicated and layouts[v].mesh.size > 1
            self._is_whole[v] = whole
        return any(self._is_whole[v] for v in training.parameters)

    @final
    def summand(self, parameter: Variable, gradient: Array) -> Array:
        if not self._is_whole.find(parameter):
            return gradient
        return parts_of(gradient, session.engine().environment)

    @final
    def exchange(self, training: Training, gradients: Sequence[Array]) -> Sequence[Array]:
        pairs = zip(training.parameters, gradients, strict=True)
        return [sum(x, axis=0) if self._is_whole.find(v) else x for v, x in pairs]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerLayer) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        return f"{type(self).__name__}({', '.join(settings)})"

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The arguments that differ from their defaults."""


@final
class ModelParallel(PerLayer):
    """Split the parameters of every layer, and exchange activations instead of gradients.

    split        "output": each worker computes some outputs of a layer, such as output channels;
                 "input": some summands of all, from its share of the inputs
    accumulate   the number of parts of a batch whose gradients are added

    Layers with fewer outputs, or inputs, than workers are replicated, which the history reports as
    "data"; so are those that have no such axis, such as convolutions in groups. Raises OptionError
    if all layers are.
    """

    def __init__(self, split: str = "output", *, accumulate: int = 1) -> None:
        super().__init__(accumulate)
        if split not in DIVIDING_OPTIONS:
            raise OptionError(
                f"ModelParallel: split={split!r} is not known; there are "
                f"{', '.join(DIVIDING_OPTIONS)}"
            )
        self.split = split

    @property
    def settings(self) -> Mapping[str, Any]:
        return _differing({"split": (self.split, "output"), "accumulate": (self.accumulate, 1)})

    def options(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> tuple[Mapping[str, str], Mapping[str, float]]:
        option, workers = self.split, environment.workers
        if workers == 1:
            return dict.fromkeys(training.layers, "data"), {}
        axes = LayerAxes(training, step_graph)
        chosen = {layer: axes.possible(layer, option, workers) for layer in training.layers}
        if option not in chosen.values():
            max_parts = max(axes.extent(layer, option) for layer in training.layers)
            raise OptionError(
                f"ModelParallel: {workers} workers divide the {option}s of layers, but no layer "
                f"has more than {max_parts}; use fewer workers, or DataParallel"
            )
        return chosen, {}


def _is_match(path: str, pattern: str) -> bool:
    """Return True if a pattern names a layer, or a module that contains it."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")


@final
class Hybrid(PerLayer):
    """Choose an option for each layer: "data", "output" or "input".

    layers       options by the path of a layer, or of a module that contains layers, such as
                 {"features": "data", "classifier.*": "output"}; * matches any characters, and the
                 first pattern that matches is used. A layer that no pattern matches has the option
                 "data"
    accumulate   the number of parts of a batch whose gradients are added

    Raises OptionError without patterns, for one without a layer, and if a layer has fewer outputs
    or inputs than workers.
    Source: Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks.
    """

    def __init__(self, layers: Mapping[str, str], *, accumulate: int = 1) -> None:
        super().__init__(accumulate)
        is_named = isinstance(layers, Mapping) and all(isinstance(x, str) for x in layers)
        if not is_named or not layers:
            raise OptionError(
                f"Hybrid: layers must be a dictionary from layers to options, not empty, with "
                f"texts as keys, such as {{'0': 'output'}}, was given {layers!r}"
            )
        for pattern, option in layers.items():
            if option not in COMPARED_OPTIONS:
                raise OptionError(
                    f"Hybrid: option {option!r} of {pattern!r} is not known; there are "
                    f"{', '.join(COMPARED_OPTIONS)}"
                )
        self.layers = dict(layers)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"layers": self.layers} | _differing({"accumulate": (self.accumulate, 1)})

    def options(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> tuple[Mapping[str, str], Mapping[str, float]]:
        paths = training.layers
        for pattern in self.layers:
            if not any(_is_match(path, pattern) for path in paths):
                raise OptionError(
                    f"Hybrid: no layer with parameters has the path {pattern!r}; the paths are "
                    f"{', '.join(paths)}"
                )
        chosen = {path: self._option(path) for path in paths}
        workers, axes = environment.workers, LayerAxes(training, step_graph)
        for path, option in chosen.items():
            if workers > 1 and axes.possible(path, option, workers) != option:
                extent = axes.extent(path, option)
                problem, remedy = f"{extent} {option}s for {workers} workers", ", or fewer workers"
                if not extent:
                    problem, remedy = f"no {option}s by which its parameters can be divided", ""
                raise OptionError(
                    f"Hybrid: layer {path!r} has {problem} with the option {option!r}; "
                    f"choose the option 'data' for it{remedy}"
                )
        return chosen, {}

    def _option(self, path: str) -> str:
        options = (o for pattern, o in self.layers.items() if _is_match(path, pattern))
        return next(options, "data")


@final
class Auto(PerLayer):
    """Choose for each layer the option that the planner predicts to be fastest; "data" for layers
    whose parameters the steps of a long loop read.

    accumulate   the number of parts of a batch whose gradients are added

    See `passes/parameter_layouts.py`.
    """

    def __init__(self, *, accumulate: int = 1) -> None:
        super().__init__(accumulate)

    @property
    def settings(self) -> Mapping[str, Any]:
        return _differing({"accumulate": (self.accumulate, 1)})

    def options(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> tuple[Mapping[str, str], Mapping[str, float]]:
        every = dict.fromkeys(training.layers, "data")
        if environment.workers == 1:
            return every, {}
        owner_of = {id(v): owner for owner, v in training.named_parameters()}
        states_of: dict[str, list[VariableStates]] = {}
        for parameter, entry in zip(training.parameters, training.variable_states(), strict=True):
            states_of.setdefault(owner_of[id(parameter)], []).append(entry)
        step = step_graph()
        repeated = leaves_of_loops(step)
        layers = layer_options(states_of, LayerAxes(training, step_graph), environment)
        fixed = [not repeated.isdisjoint(layer.leaves) for layer in layers]
        layers = [
            layer.restricted("data") if is_fixed else layer
            for layer, is_fixed in zip(layers, fixed, strict=True)
        ]
        planned = choose_options(with_first_steps(step), layers, environment)
        options = ["data" if x else y for x, y in zip(fixed, planned.options, strict=True)]
        return every | dict(zip(states_of, options, strict=True)), dict(planned.seconds)


def _differing(settings: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    return {name: value for name, (value, default) in settings.items() if value != default}
