"""Strategies: the layouts of the parameters of each layer, chosen by name or by predicted cost.

`data`: every worker stores all parameters (one copy per host if memory is shared) and computes its
share of each batch. `model`: dense layers are split by columns. `rows`: by rows. `auto` uses for
each layer the option that the planner predicts to be fastest (`passes/partition.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magmath.errors import MagmathError
from magmath.graph import Shape
from magmath.layout import Layout, Mesh, Split
from magmath.optim.states import Kept
from magmath.passes.environment import Environment
from magmath.passes.partition import Part

Choice = Mapping[str, str]  # layer → "data", "model" or "rows"
OPTIONS = ("data", "model", "rows")
STRATEGIES = ("auto", *OPTIONS)
SPLIT_DIMENSION = {"model": -1, "rows": 0}


def check_strategy(name: str) -> None:
    """Raise MagmathError unless this is the name of a strategy."""
    if name not in STRATEGIES:
        raise MagmathError(f"strategy {name!r} is not known; there are {', '.join(STRATEGIES)}")


def parameter_layout(choice: str, shape: Shape, mesh: Mesh, shared: bool) -> Layout:
    """Return the layout of a parameter of a layer under a choice.

    A split by columns also splits the bias; a split by rows replicates it.
    """
    whole = Layout.whole(shape, mesh, shared=shared and mesh.size > 1)
    if choice == "data" or mesh.size == 1 or (choice == "rows" and len(shape) < 2):
        return whole
    dim = SPLIT_DIMENSION[choice] % len(shape)
    if shape[dim] < mesh.size:
        return whole
    plain = Layout.whole(shape, mesh)
    return plain.replace_split(dim, Split.even(0, shape[dim], mesh.size))


def parts_of(layers: Mapping[str, Sequence[Kept]], environment: Environment) -> list[Part]:
    """Return the parameters of each layer with their optimizer states, under every option."""
    return [_part(kept, environment) for kept in layers.values()]


def _part(layer: Sequence[Kept], environment: Environment) -> Part:
    pairs = [(v, kept) for kept in layer for v in kept.variables()]
    alike = [v for v, kept in pairs if v.shape == kept.shape]
    mesh, shared = environment.mesh, environment.shares_memory
    options = {
        name: tuple([parameter_layout(name, v.shape, mesh, shared) for v in alike])
        for name in OPTIONS
    }
    return Part(tuple([v.leaf for v in alike]), options)
