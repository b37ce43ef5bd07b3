"""Layouts of the parameters and optimizer states of a layer, by the name of an option.

| option | parameters | optimizer states |
|---|---|---|
| data | on every worker; one copy per host if memory is shared | like the parameters |
| output | split along the axis of outputs | like the parameters |
| input | split along the axis of inputs | like the parameters |
| sharded | as `data` with shared memory; otherwise each worker stores its chunk | chunks |
| server | on the first worker | on the first worker |

The forward pass of `sharded` and `server` reads a copy of the whole parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magmath.graph import Shape
from magmath.layout import Layout
from magmath.optim.states import VariableStates
from magmath.parallel.parameter_axes import LayerAxes, ParameterAxes
from magmath.passes.environment import Environment
from magmath.passes.layer_blocks import LayerOptions

COMPARED_OPTIONS = ("data", "output", "input")
"""The options that planning by cost compares."""
WHOLE = ParameterAxes()


def parameter_layout(
    option: str, shape: Shape, environment: Environment, axes: ParameterAxes = WHOLE
) -> Layout:
    """Return the layout of a parameter under an option.

    A split of the outputs also splits the bias; a split of the inputs replicates it.
    """
    if option == "server":
        return Layout.replicated_on(shape, environment.first_worker)
    if option == "sharded" and not environment.shares_memory:
        return state_layout(option, shape, environment)
    dim = axes.dimension(option)
    if dim is None:
        return environment.replicated(shape, shared=True)
    return _split(shape, dim, environment)


def state_layout(
    option: str, shape: Shape, environment: Environment, axes: ParameterAxes = WHOLE
) -> Layout:
    """Return the layout of an optimizer state of a parameter's shape under an option."""
    if option != "sharded":
        return parameter_layout(option, shape, environment, axes)
    long = (d for d, extent in enumerate(shape) if extent >= environment.workers)
    return _split(shape, next(long, 0), environment) if shape else environment.replicated(shape)


def _split(shape: Shape, dim: int, environment: Environment) -> Layout:
    """Return the layout split evenly along a dimension; replicated if it is too short."""
    workers = environment.workers
    if workers == 1 or shape[dim] < workers:
        return environment.replicated(shape, shared=True)
    return Layout.even(shape, environment.mesh, dim)


def layer_options(
    layers: Mapping[str, Sequence[VariableStates]], axes: LayerAxes, environment: Environment
) -> list[LayerOptions]:
    """Return the parameters of each layer with their optimizer states, under every option."""
    return [_options_of(name, layer, axes, environment) for name, layer in layers.items()]


def _options_of(
    name: str, layer: Sequence[VariableStates], axes: LayerAxes, environment: Environment
) -> LayerOptions:
    """Return the parameters of a layer with the optimizer states of their shapes, under every
    option; "data" replaces an option that cannot divide the layer."""
    divided = []
    for entry in layer:
        parameter, *states = entry.variables()
        own_axes = axes.of(parameter)
        divided += [(v, own_axes) for v in (parameter, *states) if v.shape == entry.shape]
    layouts = {}
    for option in COMPARED_OPTIONS:
        possible = axes.possible(name, option, environment.workers)
        layouts[option] = tuple(
            [parameter_layout(possible, v.shape, environment, v_axes) for v, v_axes in divided]
        )
    return LayerOptions(tuple([v.leaf for v, _ in divided]), layouts)
