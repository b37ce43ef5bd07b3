"""Attribution of the instructions of a training step to the layers of the network."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from magmath.program.instructions import Call, Instruction, Program, Redistribute


def layers_of(program: Program, owners: Mapping[int, str]) -> list[str]:
    """Return the layer of each instruction, "" for those that depend on no parameter.

    `owners` has the layer of each slot of a parameter or of its optimizer states, in the order of
    the layers. An instruction that reads parameters belongs to their layer. Any other instruction
    of the forward pass belongs to the last layer on which it depends, and one of the backward pass
    to the last layer whose update depends on it, as in `passes/parameter_layouts.py`.
    """
    names = list(dict.fromkeys(owners.values()))
    own = {slot: names.index(name) for slot, name in owners.items()}
    written = {_written(instruction) for instruction in program.instructions}
    accesses = [_accesses(program, instruction, written) for instruction in program.instructions]
    needs = dict(own)
    for sources, target in accesses:
        needed = max([needs.get(slot, -1) for slot in sources], default=-1)
        for slot in _wholes(program, target, written, own):
            needs[slot] = max(needed, needs.get(slot, -1)) if slot != target else needed
    roots = {slot: _root(program, slot, ()) for slot in written if slot >= 0}
    last_update = {slot: own[root] for slot, root in roots.items() if root in own}
    for sources, target in reversed(accesses):
        wholes = _wholes(program, target, written, own)
        served = max([last_update.get(slot, -1) for slot in wholes], default=-1)
        last_update[target] = served
        for slot in sources:
            last_update[slot] = max(last_update.get(slot, -1), served)
    found = []
    for sources, target in accesses:
        direct = max([own.get(slot, -1) for slot in sources], default=-1)
        after = last_update.get(target, -1)
        needed = needs.get(target, -1)
        number = max(direct, needed if after < 0 else min(needed, after))
        found.append(names[number] if number >= 0 else "")
    return found


def _accesses(
    program: Program, instruction: Instruction, written: Collection[int]
) -> tuple[list[int], int]:
    """Return the slots that an instruction reads, those of views in the slots that are written, and
    the slot that it writes."""
    match instruction:
        case Call(inputs=inputs):
            sources: Sequence[int] = inputs
        case Redistribute(source=source):
            sources = (source,)
        case _:
            sources = ()
    return [_root(program, slot, written) for slot in sources], _written(instruction)


def _wholes(
    program: Program, slot: int, written: Collection[int], own: Collection[int]
) -> list[int]:
    """Return a slot and those of which it is a part that this worker writes for others to read."""
    found = [slot] if slot >= 0 else []
    while found and (alias := program.slots[found[-1]].alias) is not None:
        if alias in written or alias in own:
            break
        found.append(alias)
    return found


def _written(instruction: Instruction) -> int:
    """Return the slot that an instruction writes, -1 for none."""
    match instruction:
        case Call(out=out):
            return out
        case Redistribute(target=target):
            return target
        case _:
            return -1


def _root(program: Program, slot: int, written: Collection[int]) -> int:
    """Return the slot in whose memory a slot is stored, or the first such slot in `written`."""
    alias = program.slots[slot].alias
    return slot if alias is None or slot in written else _root(program, alias, written)
