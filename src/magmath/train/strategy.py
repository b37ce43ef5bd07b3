"""Strategies: where the parameters of each layer lie, chosen by name or by predicted cost.

`data`: every worker holds all parameters (one copy per host where memory is shared) and takes its
share of each batch. `model`: dense layers are split by columns. `rows`: by rows. `auto` tries,
layer by layer, what the planner predicts to be fastest, and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magmath.errors import MagmathError
from magmath.graph import Shape
from magmath.layout import Layout, Mesh, Split

Choice = Mapping[str, str]  # layer → "data", "model" or "rows"
STRATEGIES = ("auto", "data", "model", "rows")
SPLIT_DIMENSION = {"model": -1, "rows": 0}


def check_strategy(name: str) -> None:
    """MagmathError unless this is a strategy's name."""
    if name not in STRATEGIES:
        raise MagmathError(f"strategy {name!r} is not known; there are {', '.join(STRATEGIES)}")


def parameter_layout(choice: str, shape: Shape, mesh: Mesh, shared: bool) -> Layout:
    """The layout of one parameter of a layer under a choice.

    Columns of a weight go with its bias; rows leave the bias whole.
    """
    whole = Layout.whole(shape, mesh, shared=shared and mesh.size > 1)
    if choice == "data" or mesh.size == 1 or (choice == "rows" and len(shape) < 2):
        return whole
    dim = SPLIT_DIMENSION[choice] % len(shape)
    if shape[dim] < mesh.size:
        return whole
    plain = Layout.whole(shape, mesh)
    return plain.replace_split(dim, Split.even(0, shape[dim], mesh.size))


def choose(
    layers: Sequence[str], cost: Callable[[Choice], float], strategy: str
) -> tuple[dict[str, str], dict[str, float]]:
    """A choice for every layer, and the predicted seconds a step of what was compared.

    With `auto`, the uniform choices are priced first, then each layer is varied while the rest
    stands, until nothing gets cheaper.
    """
    if strategy != "auto":
        choice = dict.fromkeys(layers, strategy)
        return choice, {strategy: cost(choice)}
    prices: dict[str, float] = {}
    best: dict[str, str] = {}
    for name in SPLIT_DIMENSION.keys() | {"data"}:
        prices[name] = cost(dict.fromkeys(layers, name))
    first = min(sorted(prices), key=prices.__getitem__)
    best, price = dict.fromkeys(layers, first), prices[first]
    improved = True
    while improved:
        improved = False
        for layer in layers:
            for option in ("data", "model", "rows"):
                trial = {**best, layer: option}
                if option != best[layer] and (trial_price := cost(trial)) < price * 0.999:
                    best, price, improved = trial, trial_price, True
    prices["auto"] = price
    return best, prices
