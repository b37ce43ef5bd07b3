"""The explanation of a training step: its program by layer, and predicted costs of strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magmath.diagnostics.asynchronous_costs import explain_asynchronous
from magmath.diagnostics.explain import explain_program
from magmath.diagnostics.program_layers import layers_of
from magmath.engine import session
from magmath.engine.programs.program_build import CompiledProgram
from magmath.graph import Node
from magmath.parallel.strategy import ChosenLayouts, Strategy, Training

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation
    from magmath.runtime.run_handle import RunHandle


def explain_step(
    strategy: Strategy,
    training: Training,
    choice: ChosenLayouts,
    compiled: CompiledProgram,
    leaves: Sequence[Node],
    profiled: RunHandle | None,
) -> Explanation:
    """Explain the program of a step by layer, with the predicted costs of the strategies.

    choice    the options of the layers
    leaves    the leaves of the graph that was compiled
    profiled  a profiled run, whose measurements are included, or None
    """
    options = ", ".join(f"{k}: {v}" for k, v in choice.layers.items())
    predicted = "\n".join(f"  {k}: {v * 1e6:.0f} µs a step" for k, v in choice.seconds.items())
    heading = f"layers {options}\npredicted\n{predicted}"
    owners = _owners_of_inputs(compiled, leaves, strategy, training)
    environment = session.engine().environment
    if compiled.program.asynchronous is not None:
        return explain_asynchronous(compiled.program, environment, heading=heading, owners=owners)
    layers = layers_of(compiled.program, owners)
    return explain_program(
        compiled.program, environment, heading=heading, layers=layers, run=profiled
    )


def _owners_of_inputs(
    compiled: CompiledProgram, leaves: Sequence[Node], strategy: Strategy, training: Training
) -> dict[int, str]:
    """Return the layer that owns each of the program's input slots, in the order of the layers."""
    layer_of = _layer_of_variables(strategy, training)
    owners: dict[int, str] = {}
    for slot, position in zip(compiled.program.inputs, compiled.inputs, strict=True):
        if leaves[position] in layer_of:
            owners[slot] = layer_of[leaves[position]]
    order = {name: i for i, name in enumerate(training.layers)}
    return dict(sorted(owners.items(), key=lambda item: order[item[1]]))


def _layer_of_variables(strategy: Strategy, training: Training) -> dict[Node, str]:
    """Return the layers of the leaves of all parameters, of their replicas and states, and of the
    variables that the strategy stores for them."""
    layer_of = {v.leaf: owner for owner, v in training.named_parameters()}
    entries = training.optimizer.variable_states.of(strategy.updated(training))
    for parameter, entry in zip(training.parameters, entries, strict=True):
        updated, *states = entry.variables()
        alike = [v for v in states if v.shape == updated.shape]
        layer_of |= {v.leaf: layer_of[parameter.leaf] for v in (updated, *alike)}
    owner_of = {path: path.rpartition(".")[0] for path, _ in training.module.named_parameters()}
    for name, v in strategy.state(training).items():
        if (path := name.partition("/")[0]) in owner_of:
            layer_of[v.leaf] = owner_of[path]
    return layer_of
