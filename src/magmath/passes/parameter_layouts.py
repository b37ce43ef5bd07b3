"""Parameter layouts: chooses the cheapest layouts of a step's parameters, layer by layer.

Each layer of a step has a few options for the layouts of its parameters. Planning the whole step
for every layer and option takes time that is quadratic in the number of layers. This pass divides
the step into one block per layer (`passes/layer_blocks.py`), whose cost is estimated once for each
option and each pair of layouts at its borders; equal blocks share these costs. Dynamic programming
(Viterbi) then finds the cheapest path through the chain of blocks, in time linear in the number of
layers. The result is exact for a chain, given the layouts that are allowed at borders. A value that
skips over layers, as in residual networks, has the layout of the first option's plan.

The pass compares the path with each option applied to all layers, by the predicted seconds of the
whole step, and chooses the cheapest. No plan is built for that (`passes/plan_seconds.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import final

from magmath.core.bounded_memo import store_bounded
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.graph import Graph, Node
from magmath.ops.leaves import variable_leaf
from magmath.passes.environment import Environment
from magmath.passes.layer_blocks import BORDERS, LayerBlock, LayerOptions, block_seconds, blocks_of
from magmath.passes.plan_decisions import decisions_of
from magmath.passes.plan_seconds import PlanSeconds
from magmath.passes.simplify import simplify

MAX_CACHED_CHOICES = 4096
"""Maximum number of steps whose options are cached."""
WORTH = 0.999
"""A mixture of options must be cheaper than the best single option by this factor."""


@final
@dataclass(frozen=True)
class ChosenOptions:
    """The chosen option of each layer, and the predicted seconds per step of the compared choices:
    each option for all layers, and "auto", the chosen one."""

    options: tuple[str, ...]
    seconds: Mapping[str, float]


@paused_gc()
def choose_options(
    step: Graph, layers: Sequence[LayerOptions], environment: Environment
) -> ChosenOptions:
    """Return the cheapest options for the layers of a step; cached for steps with the same key."""
    with stage("parameter layouts"):
        first = next(iter(layers[0].options))
        step, layers = _with_options(step, layers, [first] * len(layers))
        key = (step.key, tuple([layer.signature for layer in layers]), environment)
        chosen = _chosen.get(key)
        if chosen is None:
            chosen = _choose(step, layers, environment)
            store_bounded(_chosen, key, chosen, MAX_CACHED_CHOICES)
        return chosen


def clear_option_caches() -> None:
    """Clear the caches of earlier steps and blocks, for measurements of planning."""
    _chosen.clear()
    block_seconds.clear()
    decisions_of.cache_clear()


_chosen: dict[Hashable, ChosenOptions] = {}


def _choose(step: Graph, layers: Sequence[LayerOptions], environment: Environment) -> ChosenOptions:
    """Return the options for an uncached step whose layers have their first option."""
    step = simplify(step)
    plan = PlanSeconds(step, environment)
    names = list(layers[0].options)
    first, layouts = plan.placement({})
    seconds = {names[0]: first}
    for name in names[1:]:
        seconds[name] = _whole_seconds(plan, layers, [name] * len(layers))
    best = min(names, key=seconds.__getitem__)
    choice, seconds["auto"] = [best] * len(layers), seconds[best]
    path = _cheapest_path(blocks_of(step, layers, layouts, environment), names)
    if len(set(path)) > 1:
        along_path = _whole_seconds(plan, layers, path)
        if along_path < WORTH * seconds["auto"]:
            choice, seconds["auto"] = path, along_path
    return ChosenOptions(tuple(choice), seconds)


def _with_options(
    step: Graph, layers: Sequence[LayerOptions], choice: Sequence[str]
) -> tuple[Graph, list[LayerOptions]]:
    """Return the step and its layers with the parameters in the layouts of one option per layer."""
    new: dict[Node, Node] = {}
    for layer, name in zip(layers, choice, strict=True):
        for leaf, layout in layer.layouts(name):
            new[leaf] = variable_leaf(leaf.shape, leaf.dtype, layout, None)
    changed = [
        replace(layer, leaves=tuple([new[leaf] for leaf in layer.leaves])) for layer in layers
    ]
    return step.substituted(new), changed


def _whole_seconds(
    plan: PlanSeconds, layers: Sequence[LayerOptions], choice: Sequence[str]
) -> float:
    """Return the predicted seconds of a step with one option per layer."""
    pairs = zip(layers, choice, strict=True)
    return plan.seconds({x: y for layer, name in pairs for x, y in layer.layouts(name)})


# the cheapest path ------------------------------------------------------------------------------


def _cheapest_path(blocks: Sequence[LayerBlock], options: Sequence[str]) -> list[str]:
    """Return the option of each block on the cheapest path through the layouts at the borders."""
    best = dict.fromkeys(BORDERS, 0.0)
    steps: list[dict[str, tuple[str, str]]] = []  # border → the previous border and the option
    for block in blocks:
        reached: dict[str, float] = {}
        arrivals: dict[str, tuple[str, str]] = {}
        for left, option, right in product(BORDERS, options, BORDERS):
            total = best[left] + block.seconds(left, option, right)
            if right not in reached or total < reached[right]:
                reached[right], arrivals[right] = total, (left, option)
        best = reached
        steps.append(arrivals)
    border = min(best, key=best.__getitem__)
    path: list[str] = []
    for arrivals in reversed(steps):
        border, option = arrivals[border]
        path.append(option)
    return path[::-1]
