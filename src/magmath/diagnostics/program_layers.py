"""Attribution of the instructions of a training step to the layers of the network."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from magmath.passes.layer_blocks import layer_of
from magmath.program.instructions import Program


def layers_of(program: Program, owners: Mapping[int, str]) -> list[str]:
    """Return the layer of each instruction, "" for those that depend on no parameter.

    `owners` has the layer of each slot of a parameter or of its optimizer states, in the order of
    the layers.
    """
    names = list(dict.fromkeys(owners.values()))
    layer_of_slot = {slot: names.index(name) for slot, name in owners.items()}
    targets = [next(iter(instruction.writes), -1) for instruction in program.instructions]
    written = set(targets)
    reads = [
        [_nearest(program, slot, written) for slot in instruction.reads]
        for instruction in program.instructions
    ]
    accesses = list(zip(reads, targets, strict=True))
    needs = dict(layer_of_slot)
    for sources, target in accesses:
        needed = max([needs.get(slot, -1) for slot in sources], default=-1)
        for slot in _wholes(program, target, written, layer_of_slot):
            needs[slot] = max(needed, needs.get(slot, -1)) if slot != target else needed
    roots = {slot: program.root(slot) for slot in written if slot >= 0}
    last_update = {
        slot: layer_of_slot[root] for slot, root in roots.items() if root in layer_of_slot
    }
    for sources, target in reversed(accesses):
        wholes = _wholes(program, target, written, layer_of_slot)
        served = max([last_update.get(slot, -1) for slot in wholes], default=-1)
        last_update[target] = served
        for slot in sources:
            last_update[slot] = max(last_update.get(slot, -1), served)
    layers = []
    for sources, target in accesses:
        direct = max([layer_of_slot.get(slot, -1) for slot in sources], default=-1)
        number = layer_of(direct, needs.get(target, -1), last_update.get(target, -1))
        layers.append(names[number] if number >= 0 else "")
    return layers


def _wholes(
    program: Program, slot: int, written: Collection[int], parameter_slots: Collection[int]
) -> list[int]:
    """Return a slot and those of which it is a part that this worker writes for others to read."""
    wholes = [slot] if slot >= 0 else []
    while wholes and (alias := program.slots[wholes[-1]].alias) is not None:
        if alias in written or alias in parameter_slots:
            break
        wholes.append(alias)
    return wholes


def _nearest(program: Program, slot: int, written: Collection[int]) -> int:
    """Return the slot in whose memory a slot is stored, or the first such slot in `written`."""
    while slot not in written and (alias := program.slots[slot].alias) is not None:
        slot = alias
    return slot
