"""The costs of steps that each worker runs on its own: copies, computation and updates.

Bytes and messages are those between a worker and the servers: the arrays that it copies, and the
arrays from which it updates the servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magmath.diagnostics.explain import explain_program
from magmath.diagnostics.explanation import ExplainedInstruction, Explanation, duration
from magmath.diagnostics.program_layers import layers_of
from magmath.passes.environment import Environment
from magmath.program.instructions import AsynchronousStep, Call, Program, Slot, WorkerProgram

PULL, PUSH = "pull", "push"
"""The operations by which the tables list copies from servers, and what updates receive."""


def explain_asynchronous(
    program: Program, environment: Environment, *, heading: str, owners: Mapping[int, str]
) -> Explanation:
    """Return the costs of a step that each worker runs on its own.

    `owners`: the layer of each slot of a parameter or of its optimizer states, in the order of the
    layers.
    """
    step = program.asynchronous
    assert step is not None
    alone = environment.of_one_worker()
    copies = {y: owners[x] for pairs in step.copies for x, y in pairs if x in owners}
    layer_of = _ordered({**owners, **copies}, owners)
    parts = [step.compute, *step.updates]
    layers = [_layers(part, layer_of) for part in parts]
    costs_of_parts = [
        explain_program(part.program, alone, layers=names)
        for part, names in zip(parts, layers, strict=True)
    ]
    steps = _pulls(program, step, environment, layer_of)
    steps += costs_of_parts[0].instructions
    for part, names, costs in zip(step.updates, layers[1:], costs_of_parts[1:], strict=True):
        steps += [*_pushes(program, part, environment, names), *costs.instructions]
    private = sum(map(_nbytes, _temporaries(program)))
    temporaries = private + sum(costs.temporaries for costs in costs_of_parts)
    memory = temporaries + sum([_nbytes(program.slots[i]) for i in program.inputs])
    seconds = sum(x.seconds for x in steps)
    text = (
        f"{heading}\neach of {program.workers} workers takes steps on its own, so that an update "
        f"takes {duration(seconds)} of one worker, and the workers make one every "
        f"{duration(seconds / program.workers)}, if none waits"
    )
    machine = environment.machine.source
    return Explanation(tuple(steps), text, "", temporaries, memory, machine=machine)


def _ordered(layer_of: Mapping[int, str], owners: Mapping[int, str]) -> dict[int, str]:
    """Return the layers of slots, in the order of the layers of `owners`."""
    names = list(dict.fromkeys(owners.values()))
    return dict(sorted(layer_of.items(), key=lambda item: names.index(item[1])))


def _layers(part: WorkerProgram, layer_of: Mapping[int, str]) -> list[str]:
    """Return the layers of the instructions of a part."""
    inputs = dict(zip(part.inputs, part.program.inputs, strict=True))
    owners = {inputs[x]: name for x, name in layer_of.items() if x in inputs}
    return layers_of(part.program, owners)


def _temporaries(program: Program) -> list[Slot]:
    return [slot for slot in program.slots if slot.kind == "temporary"]


def _nbytes(slot: Slot) -> int:
    """Return the bytes of an array, which one worker stores as a whole."""
    return slot.layout.size * slot.dtype.itemsize


def _pulls(
    program: Program, step: AsynchronousStep, environment: Environment, layer_of: Mapping[int, str]
) -> list[ExplainedInstruction]:
    """Return the copies of shared arrays."""
    pulls = []
    for server, pairs in enumerate(step.copies):
        for shared, private in pairs:
            text = f"%{private} <- %{shared} of server {server}"
            layer = layer_of.get(shared, "")
            pulls.append(_transfer(program, PULL, text, shared, environment, layer))
    return pulls


def _pushes(
    program: Program, part: WorkerProgram, environment: Environment, layers: Sequence[str]
) -> list[ExplainedInstruction]:
    """Return the private arrays that an update reads, each with the layer of its first reader."""
    pushes = []
    for outer, inner in zip(part.inputs, part.program.inputs, strict=True):
        slot = program.slots[outer]
        if slot.kind != "temporary" or not slot.shape:
            continue
        readers = (
            name
            for call, name in zip(part.program.instructions, layers, strict=True)
            if isinstance(call, Call) and inner in call.inputs
        )
        text = f"server <- %{outer}"
        pushes.append(_transfer(program, PUSH, text, outer, environment, next(readers, "")))
    return pushes


def _transfer(
    program: Program, kind: str, text: str, slot: int, environment: Environment, layer: str
) -> ExplainedInstruction:
    """Return the copy of a slot. In shared memory an update reads its operands in place, without
    time of its own. One worker alone moves nothing between workers."""
    nbytes = _nbytes(program.slots[slot])
    several = program.workers > 1
    if several and not environment.shares_memory:
        link = environment.link.network or environment.link
        seconds = link.latency + nbytes / link.bandwidth
    else:
        seconds = nbytes / environment.bandwidth if kind == PULL else 0.0
    return ExplainedInstruction(
        text, kind, None, seconds, nbytes * several, int(several), nbytes, layer=layer
    )
