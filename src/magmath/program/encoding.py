"""The encoding of programs as msgpack, in which they are sent to the workers.

A structure is the list of its fields, in order. Each layout is encoded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import msgspec

from magmath.core.dtypes import DTYPES, DType
from magmath.core.paused_gc import paused_gc
from magmath.errors import ProtocolError
from magmath.layout import Layout
from magmath.program.instructions import (
    AsynchronousStep,
    Barrier,
    Call,
    Emit,
    Instruction,
    Program,
    Redistribute,
    Slot,
    WorkerProgram,
)

_TYPES: dict[str, Any] = {"call": Call, "move": Redistribute, "barrier": Barrier, "emit": Emit}
_TAGS = {kind: tag for tag, kind in _TYPES.items()}


def encode(program: Program) -> bytes:
    """Return the program as msgpack bytes."""
    return msgspec.msgpack.encode(_encoded_program(program))


@paused_gc()
def decode(data: bytes) -> Program:
    """Return the program in `data`. Raises ProtocolError if `data` is not a program."""
    try:
        return _decoded_program(msgspec.msgpack.decode(data))
    except (
        ValueError, TypeError, LookupError, AttributeError, RecursionError, msgspec.MsgspecError
    ) as error:  # fmt: skip
        raise ProtocolError(f"not a program: {error}") from error


# programs -----------------------------------------------------------------------------------------


def _encoded_program(program: Program) -> list[Any]:
    layouts = {layout: i for i, layout in enumerate(dict.fromkeys(s.layout for s in program.slots))}
    team, step = program.team, program.asynchronous
    return [
        [layout.encode() for layout in layouts],
        [_encoded_slot(slot, layouts) for slot in program.slots],
        [_encoded_instruction(instruction) for instruction in program.instructions],
        program.inputs,
        program.outputs,
        program.scalars,
        program.donated,
        program.workers,
        program.reads_peers,
        program.prologue,
        None if team is None else _encoded_program(team),
        program.flushes_denormals,
        program.reports_late,
        None if step is None else _encoded_step(step),
    ]


def _decoded_program(fields: list[Any]) -> Program:
    encoded_layouts, slots, instructions, *rest = fields
    inputs, outputs, scalars, donated, workers, reads_peers, prologue, team, *last = rest
    flushes_denormals, reports_late, step = last
    layouts = [Layout.decode(layout) for layout in encoded_layouts]
    return Program(
        [_decoded_slot(slot, layouts) for slot in slots],
        [_decoded_instruction(tag, values) for tag, values in instructions],
        inputs,
        outputs,
        scalars,
        donated,
        workers,
        reads_peers,
        prologue,
        None if team is None else _decoded_program(team),
        flushes_denormals,
        reports_late,
        None if step is None else _decoded_step(step),
    )


def _encoded_step(step: AsynchronousStep) -> list[Any]:
    parts = [
        [_encoded_program(part.program), part.inputs, part.outputs, part.scalars]
        for part in (step.compute, step.advance, *step.updates)
    ]
    pairs = step.steps_counted, step.updates_counted, step.advanced
    return [parts, step.copies, *pairs, step.staleness]


def _decoded_step(fields: list[Any]) -> AsynchronousStep:
    parts, copies, *others, staleness = fields
    compute, advance, *updates = [
        WorkerProgram(_decoded_program(program), *slots) for program, *slots in parts
    ]
    *pairs, steps, counts, advanced = [
        [(first, second) for first, second in listed] for listed in (*copies, *others)
    ]
    return AsynchronousStep(
        compute, updates, pairs, steps, counts, index(staleness), advance, advanced
    )


# slots --------------------------------------------------------------------------------------------


def _encoded_slot(slot: Slot, layouts: Mapping[Layout, int]) -> list[Any]:
    return [
        slot.shape,
        slot.dtype.name,
        layouts[slot.layout],
        slot.kind,
        slot.alias,
        slot.is_peer_readable,
        _encoded_value(slot.value),
        slot.start,
        slot.is_at_beginning,
        slot.order,
        slot.first,
        slot.last,
    ]


def _decoded_slot(fields: list[Any], layouts: list[Layout]) -> Slot:
    (
        shape,
        dtype,
        layout,
        kind,
        alias,
        is_peer_readable,
        value,
        start,
        is_at_beginning,
        order,
        first,
        last,
    ) = fields
    return Slot(
        tuple(shape),
        DTYPES[dtype],
        layouts[index(layout)],
        kind,
        alias,
        is_peer_readable,
        _decoded_value(value),
        None if start is None else tuple(start),
        is_at_beginning,
        None if order is None else tuple(order),
        first,
        last,
    )


# instructions -------------------------------------------------------------------------------------


def _encoded_instruction(instruction: Instruction) -> list[Any]:
    fields = [getattr(instruction, name) for name in instruction.__struct_fields__]
    return [_TAGS[type(instruction)], list(map(_encoded_field, fields))]


def _encoded_field(value: Any) -> Any:
    if isinstance(value, Mapping):  # the attributes of a call
        return {name: _encoded_value(item) for name, item in value.items()}
    return value


def _decoded_instruction(tag: str, fields: list[Any]) -> Instruction:
    if tag != "call":
        values = [tuple(value) if isinstance(value, list) else value for value in fields]
        instruction: Instruction = _TYPES[tag](*values)
        return instruction
    operation, attributes, inputs, out, line, workspace, is_recomputation = fields
    return Call(
        operation,
        {name: _decoded_value(value) for name, value in attributes.items()},
        tuple(inputs),
        out,
        tuple(line) if line else None,
        workspace,
        bool(is_recomputation),
    )


# values of attributes -----------------------------------------------------------------------------


def _encoded_value(value: Any) -> Any:
    """Return a value of msgpack: a type, or a complex number, as a map of one entry."""
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        return [_encoded_value(item) for item in value]
    return value


def _decoded_value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_decoded_value(item) for item in value])
    if isinstance(value, dict):
        if "dtype" in value:
            return DTYPES[value["dtype"]]
        return complex(*value["complex"])
    return value
