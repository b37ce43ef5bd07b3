"""Stages of redistributions as collectives of all workers, where these have two levels.

Messages between all pairs of workers would send data between hosts once for each worker of the
other host. A collective of a communicator with two levels sends them once for each host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch

from magmath.comm import Communicator
from magmath.core.type_aliases import BoundCall
from magmath.layout.moves import Move
from magmath.layout.redistribution import Stage

Copy = Callable[[Move, torch.Tensor], BoundCall]
"""Returns a bound call that copies a part to, or from, a buffer of its shape."""


@final
class StageCalls(NamedTuple):
    """The bound calls of stages on one worker.

    packs  pack the source, whose memory may be reused after them
    rest   communicate and unpack
    """

    packs: list[BoundCall]
    rest: list[BoundCall]


def is_collective(stage: Stage, comm: Communicator) -> bool:
    """Return True if `bind_collective` binds the stage: every worker takes part, with equal
    operands of a reduction, or with tiles that all workers need entirely."""
    if not comm.is_hierarchical or stage.kind not in _BINDERS or stage.identity:
        return False
    source, target, ranks = stage.source, stage.target, range(comm.size)
    if source.boxes is not None or target.boxes is not None:
        return False
    pairs = [(move.source, move.target) for move in stage.moves]
    if stage.kind == "allgather":
        expected = [(s, t) for s in ranks if source.local_size(s) for t in ranks]
        entire = all(math.prod(m.shape) == source.local_size(m.source) for m in stage.moves)
    else:
        expected = [(s, t) for t in ranks if target.local_size(t) for s in ranks]
        entire = all(math.prod(m.shape) == target.local_size(m.target) for m in stage.moves)
    return entire and sorted(pairs) == sorted(expected)


def bind_collective(
    stage: Stage, source: torch.Tensor, comm: Communicator, pack: Copy, unpack: Copy
) -> StageCalls:
    """Return the calls of a stage that `is_collective`.

    `source` is a tensor of the type and device of the buffers.
    """
    return _BINDERS[stage.kind](stage, source, comm, pack, unpack)


def _allgather(
    stage: Stage, source: torch.Tensor, comm: Communicator, pack: Copy, unpack: Copy
) -> StageCalls:
    own_buffer, gathered = _buffers(stage, source, comm.size)
    packs = [pack(part, _block(own_buffer, part)) for part in stage.moves_from(comm.rank)[:1]]
    unpacks = [
        unpack(part, _block(gathered[part.source], part)) for part in stage.moves_to(comm.rank)
    ]
    return StageCalls(packs, [lambda: comm.allgather(gathered, own_buffer), *unpacks])


def _reduce_scatter(
    stage: Stage, source: torch.Tensor, comm: Communicator, pack: Copy, unpack: Copy
) -> StageCalls:
    assert stage.reduce is not None
    own_buffer, operands = _buffers(stage, source, comm.size)
    reduction = stage.reduce
    packs = [
        pack(part, _block(operands[part.target], part)) for part in stage.moves_from(comm.rank)
    ]
    unpacks = [unpack(part, _block(own_buffer, part)) for part in _first(stage, comm)]
    return StageCalls(
        packs, [lambda: comm.reduce_scatter(own_buffer, operands, reduction), *unpacks]
    )


def _allreduce(
    stage: Stage, source: torch.Tensor, comm: Communicator, pack: Copy, unpack: Copy
) -> StageCalls:
    assert stage.reduce is not None
    own_buffer, _ = _buffers(stage, source, 0)
    reduction = stage.reduce
    packs = [pack(part, _block(own_buffer, part)) for part in stage.moves_from(comm.rank)[:1]]
    unpacks = [unpack(part, _block(own_buffer, part)) for part in _first(stage, comm)]
    return StageCalls(packs, [lambda: comm.allreduce(own_buffer, reduction), *unpacks])


_BINDERS = {
    "allgather": _allgather,
    "reduce_scatter": _reduce_scatter,
    "allreduce": _allreduce,
}


def _first(stage: Stage, comm: Communicator) -> Sequence[Move]:
    """Return the first part of this worker's target: reduced parts all have its shape."""
    return stage.moves_to(comm.rank)[:1]


def _buffers(stage: Stage, source: torch.Tensor, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a buffer for the largest part, and one of as many of these as `blocks`.

    They are zero where a part is smaller, because reductions read them.
    """
    length = max((math.prod(part.shape) for part in stage.moves), default=0)
    return source.new_zeros(length), source.new_zeros((blocks, length))


def _block(buffer: torch.Tensor, part: Move) -> torch.Tensor:
    return buffer[: math.prod(part.shape)].view(part.shape)
