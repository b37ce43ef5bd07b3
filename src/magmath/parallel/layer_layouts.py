"""Layouts of the parameters and optimizer states of a layer, by the name of an option.

| option | parameters | optimizer states |
|---|---|---|
| data | on every worker; one copy per host if memory is shared | like the parameters |
| model | split by columns | like the parameters |
| rows | split by rows | like the parameters |
| sharded | as `data` with shared memory; otherwise each worker stores its chunk | chunks |
| server | on the first worker | on the first worker |

The forward pass of `sharded` and `server` reads a copy of the whole parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magmath.graph import Shape
from magmath.layout import Layout
from magmath.optim.states import VariableStates
from magmath.passes.environment import Environment
from magmath.passes.parameter_layouts import LayerOptions

COMPARED_OPTIONS = ("data", "model", "rows")
"""The options that planning by cost compares."""
SPLIT_DIMENSION = {"model": -1, "rows": 0}


def parameter_layout(option: str, shape: Shape, environment: Environment) -> Layout:
    """Return the layout of a parameter under an option.

    A split by columns also splits the bias; a split by rows replicates it.
    """
    if option == "server":
        return Layout.whole(shape, environment.first_worker)
    if option == "sharded" and not environment.shares_memory:
        return state_layout(option, shape, environment)
    if option not in SPLIT_DIMENSION or len(shape) < (2 if option == "rows" else 1):
        return environment.whole(shape, shared=True)
    return _split(shape, SPLIT_DIMENSION[option] % len(shape), environment)


def state_layout(option: str, shape: Shape, environment: Environment) -> Layout:
    """Return the layout of an optimizer state of a parameter's shape under an option."""
    if option != "sharded":
        return parameter_layout(option, shape, environment)
    long = (d for d, extent in enumerate(shape) if extent >= environment.workers)
    return _split(shape, next(long, 0), environment) if shape else environment.whole(shape)


def _split(shape: Shape, dim: int, environment: Environment) -> Layout:
    """Return the layout split evenly along a dimension; replicated if it is too short."""
    workers = environment.workers
    if workers == 1 or shape[dim] < workers:
        return environment.whole(shape, shared=True)
    return Layout.even(shape, environment.mesh, dim)


def layer_options(
    layers: Mapping[str, Sequence[VariableStates]], environment: Environment
) -> list[LayerOptions]:
    """Return the parameters of each layer with their optimizer states, under every option."""
    return [_options_of(layer, environment) for layer in layers.values()]


def _options_of(layer: Sequence[VariableStates], environment: Environment) -> LayerOptions:
    pairs = [(v, entry) for entry in layer for v in entry.variables()]
    alike = [v for v, entry in pairs if v.shape == entry.shape]
    options = {
        name: tuple([parameter_layout(name, v.shape, environment) for v in alike])
        for name in COMPARED_OPTIONS
    }
    return LayerOptions(tuple([v.leaf for v in alike]), options)
