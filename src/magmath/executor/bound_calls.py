"""Bound calls: the functions without arguments that execute one instruction on bound tensors.

Errors of binding carry the user's line of the instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from magmath.core.block_cyclic import panel_ring_bytes
from magmath.core.index_set import Tile, tile_shape
from magmath.core.type_aliases import BoundCall
from magmath.errors import LinAlgError
from magmath.executor.context import Context
from magmath.executor.deterministic import logical_calls, node_of_call
from magmath.executor.error_context import attach_user_line
from magmath.executor.move import AsyncMove, bind_move
from magmath.executor.numpy_fast_path import is_faster_by_numpy, numpy_call
from magmath.executor.tensors import Tensors
from magmath.graph import CollectiveCall, KernelCall
from magmath.ops import OPERATIONS
from magmath.program.instructions import Barrier, Call, Instruction, Program, Redistribute


def synchronization(program: Program, context: Context) -> BoundCall:
    """Return the call before and after a run: it synchronizes workers that read one another's
    memory."""
    return context.comm.barrier if program.reads_peers else _skip_barrier


def _skip_barrier() -> None: ...


def overlapped_move(instruction: Instruction, tensors: Tensors) -> AsyncMove | None:
    """Return a move that runs on the progress thread; None if it cannot."""
    if not (isinstance(instruction, Redistribute) and instruction.overlapped):
        return None
    progress_thread = tensors.context.progress_thread()
    return None if progress_thread is None else AsyncMove(instruction, tensors, progress_thread)


def bound_calls(instruction: Instruction, tensors: Tensors) -> list[BoundCall]:
    """Return the bound calls of an instruction on this worker."""
    match instruction:
        case Call():
            return _bound_call(instruction, tensors)
        case Redistribute():
            return bind_move(instruction, tensors)
        case Barrier():
            return [tensors.context.comm.barrier]
        case _:
            return []


@contextmanager
def with_user_line(instruction: Instruction) -> Iterator[None]:
    """Attach the user's line of an instruction to errors of this block."""
    try:
        yield
    except Exception as error:
        attach_user_line(error, instruction)
        raise


def _bound_call(call: Call, tensors: Tensors) -> list[BoundCall]:
    context = tensors.context
    if call.workspace is not None:
        return [partial(_collectively, _collective_call(call, call.workspace, tensors), context)]
    bound = _local_calls(call, tensors)
    if is_awaited(call, tensors):
        return [partial(_run_and_synchronize, bound, context)]
    return bound


def is_awaited(call: Call, tensors: Tensors) -> bool:
    """Return True for a call that one worker makes with the threads of all, which wait for it."""
    alone = tensors.program.slots[call.out].layout.mesh.size == 1
    return OPERATIONS[call.operation].uses_lapack and alone and tensors.context.comm.size > 1


def _local_calls(call: Call, tensors: Tensors) -> list[BoundCall]:
    """Return the bound calls that compute this worker's part; none if it has no part."""
    program, rank, context = tensors.program, tensors.rank, tensors.context
    slot = program.slots[call.out]
    tiles = slot.layout.tiles(rank)
    if not tiles or not slot.layout.local_size(rank):
        return []
    local = KernelCall(
        out=tensors.own(call.out),
        inputs=context.on_device([tensors.own(i) for i in call.inputs]),
        attributes=_local_attributes(call, tiles[0]),
        tile=tiles[0],
        tiles=[program.slots[i].layout.tiles(rank)[0] for i in call.inputs],
        shape=slot.shape,
        shapes=[program.slots[i].shape for i in call.inputs],
        context=context,
        repeated=slot.layout.has_replicas,
    )
    context.instruction = call
    if context.deterministic:
        return logical_calls(call, slot, [program.slots[i] for i in call.inputs], local)
    operation = OPERATIONS[call.operation]
    if context.device.type == "cpu" and operation.numpy_ufunc is not None:
        dtypes = [program.slots[i].dtype for i in (call.out, *call.inputs)]
        if is_faster_by_numpy(operation.numpy_ufunc, local.out.numel(), dtypes):
            return [numpy_call(operation.numpy_ufunc, local.out, local.inputs)]
    return [operation.kernel(local)]


def _collective_call(call: Call, workspace: int, tensors: Tensors) -> BoundCall:
    """Return the bound call of a collective kernel."""
    from magmath.comm.panel_broadcast import PanelBroadcast  # the compiler loads on first use

    program, comm = tensors.program, tensors.context.comm
    slot, operands = program.slots[call.out], [program.slots[i] for i in call.inputs]
    collective = OPERATIONS[call.operation].collective
    assert collective is not None
    ranks = range(comm.size) if comm.shares_memory else (comm.rank,)
    workspaces = {rank: tensors.of(workspace, rank).view(-1) for rank in ranks}
    memory = [workspaces.get(rank) for rank in range(comm.size)]
    needed = collective.workspace(node_of_call(call, slot, operands), comm.size)
    own_workspace, out = workspaces[comm.rank], tensors.own(call.out)
    result = out if out.is_contiguous() else out.new_empty(out.shape)
    bound = collective.kernel(
        CollectiveCall(
            out=result,
            inputs=[tensors.own(i) for i in call.inputs],
            attributes=call.attributes,
            layout=slot.layout,
            layouts=[operand.layout for operand in operands],
            comm=comm,
            memory=memory,
            ring=PanelBroadcast(comm, memory, needed.panel),
            scratch=own_workspace[panel_ring_bytes(needed.panel) : needed.nbytes],
            operand_on=lambda operand, rank: tensors.of(call.inputs[operand], rank),
        )
    )
    return bound if result is out else partial(_delivered, bound, out, result)


def _delivered(bound: BoundCall, out: torch.Tensor, result: torch.Tensor) -> None:
    bound()
    out.copy_(result)


def _run_and_synchronize(calls: Sequence[BoundCall], context: Context) -> None:
    """Make the calls of one worker with the threads of all, which wait here."""
    try:
        with context.threads_of_all() if calls else nullcontext():
            for call in calls:
                call()
    finally:
        context.comm.barrier()


def _collectively(call: BoundCall, context: Context) -> None:
    """Make a collective call, then wait for the other workers, which may still read memory of this
    one.

    After an error that data cause, the other workers arrive too (`CallList._fail`). After any other
    error they may wait for messages of this worker, which must not wait for them.
    """
    try:
        call()
    except (LinAlgError, IndexError):
        context.comm.barrier()
        raise
    context.comm.barrier()


def _local_attributes(call: Call, tile: Tile) -> Mapping[str, Any]:
    """Return the call's attributes with the local shape in place of the result's shape."""
    if "shape" not in call.attributes:
        return call.attributes
    return {**call.attributes, "shape": tile_shape(tile)}
