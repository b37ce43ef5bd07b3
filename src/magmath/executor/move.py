"""Binding of redistributions: copies from peers' memory if it is shared, otherwise messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from magmath.core.type_aliases import BoundCall
from magmath.errors import LayoutError
from magmath.executor.hierarchical_move import StageCalls, bind_collective, is_collective
from magmath.executor.tensors import Tensors
from magmath.layout import Layout, plan_redistribution
from magmath.layout.moves import Move
from magmath.layout.redistribution import Stage
from magmath.memory.torch_dtypes import from_torch
from magmath.ops.kernel_binding import add_tensors, as_signed, is_numpy_only
from magmath.ops.sums import identity_element
from magmath.program.instructions import Redistribute

if TYPE_CHECKING:
    from magmath.comm import Communicator
    from magmath.comm.progress_thread import ProgressThread, Task


COMBINE: dict[str, Callable[..., Any]] = {
    "sum": add_tensors,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "any": torch.logical_or,
    "all": torch.logical_and,
}
NUMPY_COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@final
class AsyncMove:
    """A move by messages that a progress thread runs concurrently with this worker's computation.

    The source is packed at once, so its memory may be reused from then on.
    """

    def __init__(
        self, move: Redistribute, tensors: Tensors, progress_thread: ProgressThread
    ) -> None:
        self._progress_thread = progress_thread
        self._packs, self._rest = _exchanges(move, tensors, progress_thread.comm)
        self._task: Task | None = None

    def begin(self) -> None:
        """Pack, and let the progress thread send, receive and unpack."""
        for pack in self._packs:
            pack()
        self._task = self._progress_thread.submit(self._carry)

    def wait(self) -> None:
        """Wait until the target is complete. Raises the errors of the transfer."""
        task, self._task = self._task, None
        if task is not None:
            task.wait()

    def _carry(self) -> None:
        for call in self._rest:
            call()


def bind_move(move: Redistribute, tensors: Tensors) -> list[BoundCall]:
    """Return bound calls that redistribute slot `source` into slot `target`."""
    comm = tensors.context.comm
    if not (comm.shares_memory or comm.size == 1):
        packs, later_calls = _exchanges(move, tensors, comm)
        return [*packs, *later_calls]
    stages = _stages(move, tensors)
    if len(stages) != 1:
        raise LayoutError(f"the redistribution {move} needs {len(stages)} steps, not one")
    return _pull(move, tensors, stages[0])


def _stages(move: Redistribute, tensors: Tensors) -> Sequence[Stage]:
    slots = tensors.program.slots
    return plan_redistribution(slots[move.source].layout, slots[move.target].layout).stages


def pieces(tensor: torch.Tensor, layout: Layout, rank: int) -> list[torch.Tensor]:
    """Return a worker's tiles: its tensor, or the boxes one after another in its flat buffer."""
    if layout.boxes is None:
        return [tensor]
    return [
        tensor[start : start + torch.Size(shape).numel()].view(shape)
        for start, shape in layout.tile_spans(rank)
    ]


def _pull(move: Redistribute, tensors: Tensors, stage: Stage) -> list[BoundCall]:
    """Return bound calls that copy, or reduce, from the peers' memory."""
    rank = tensors.rank
    own_target = tensors.own(move.target)
    targets = pieces(own_target, stage.target, rank)
    bound = _fill_identity(stage, rank, own_target)
    for part in stage.moves_to(rank):
        sources = pieces(tensors.of(move.source, part.source), stage.source, part.source)
        source, target = sources[part.source_tile], targets[part.target_tile]
        if not is_in_place(part, source, target):
            combine = _combination(stage, part, own_target)
            bound.append(_transfer(source, part.source_select, target, part.target_select, combine))
    return bound


def is_in_place(part: Move, source: torch.Tensor, target: torch.Tensor) -> bool:
    """Return True for the part of a move that the target has in place: an array that is copied with
    halos may be stored in the copy. `source` and `target` are the tiles of the part."""
    selects = (*part.source_select, *part.target_select)
    if part.source != part.target or part.combine or not all(isinstance(s, slice) for s in selects):
        return False
    x, y = source[part.source_select], target[part.target_select]
    return x.data_ptr() == y.data_ptr() and x.stride() == y.stride()


def _fill_identity(stage: Stage, rank: int, target: torch.Tensor) -> list[BoundCall]:
    """Return a call that writes the identity, on a worker that does not keep the value of an array
    that becomes pending."""
    if rank not in stage.identity:
        return []
    assert stage.target.reduction is not None
    value = identity_element(stage.target.reduction, from_torch(target.dtype))
    return [lambda: target.fill_(value)]


def _combination(stage: Stage, part: Move, target: torch.Tensor) -> Callable[..., Any] | None:
    if not part.combine or stage.reduce is None:
        return None
    return _in_numpy(stage.reduce) if is_numpy_only(target) else COMBINE[stage.reduce]


def _in_numpy(reduction: str) -> Callable[..., torch.Tensor]:
    """Return a combination that torch lacks for the type, computed by NumPy on the same memory."""
    function = NUMPY_COMBINE[reduction]

    def combine(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        value = torch.from_numpy(np.asarray(function(x.numpy(), y.numpy())))
        return value if out is None else out.copy_(value)

    return combine


def _transfer(
    source: torch.Tensor,
    source_select: Sequence[Any],
    target: torch.Tensor,
    target_select: Sequence[Any],
    combine: Callable[..., Any] | None,
) -> BoundCall:
    """Return a bound call that copies, or reduces, a part of one tensor into a part of another."""
    source, source_index = _selected(source, source_select)
    target, target_index = _selected(target, target_select)
    if source_index is None and target_index is None:
        if combine is None:
            return lambda: target.copy_(source)
        return lambda: combine(target, source, out=target)

    def run() -> None:
        value = source if source_index is None else source[source_index]
        if combine is not None:
            value = combine(target if target_index is None else target[target_index], value)
        if target_index is None:
            target.copy_(value)
        else:
            as_signed(target)[target_index] = as_signed(value)

    return run


def _selected(tensor: torch.Tensor, selectors: Sequence[Any]) -> tuple[torch.Tensor, Any]:
    """Return a view if all selectors are slices, otherwise the tensor and index arrays of the
    elements."""
    if all(isinstance(s, slice) for s in selectors):
        return tensor[tuple(selectors)], None
    ranges = [
        np.arange(*s.indices(n)) if isinstance(s, slice) else s
        for s, n in zip(selectors, tensor.shape, strict=True)
    ]
    return tensor, tuple(torch.from_numpy(i).to(tensor.device) for i in np.ix_(*ranges))


def _exchanges(move: Redistribute, tensors: Tensors, comm: Communicator) -> StageCalls:
    """Return the calls that exchange messages; further stages pack what the first one has unpacked.

    Between two stages the data are stored in a tensor of the intermediate layout.
    """
    rank, stages = tensors.rank, _stages(move, tensors)
    first: list[BoundCall] = []
    later_calls: list[BoundCall] = []
    source = tensors.own(move.source)
    for i, stage in enumerate(stages):
        last = i + 1 == len(stages)
        target = (
            tensors.own(move.target) if last else source.new_empty(stage.target.local_shape(rank))
        )
        if is_collective(stage, comm):
            packs, calls = _collective(stage, source, target, comm)
        else:
            sends, packs = _packed(stage, source, target, rank)
            received = _received(stage, source, target, sends, comm)
            calls = [*_fill_identity(stage, rank, target), *received]
        (later_calls if i else first).extend(packs)
        later_calls += calls
        source = target
    return StageCalls(first, later_calls)


def _collective(
    stage: Stage, source: torch.Tensor, target: torch.Tensor, comm: Communicator
) -> StageCalls:
    """Return the calls of a stage that a collective executes."""

    def pack(part: Move, buffer: torch.Tensor) -> BoundCall:
        return _transfer(source, part.source_select, buffer, _all(part), None)

    def unpack(part: Move, buffer: torch.Tensor) -> BoundCall:
        return _transfer(buffer, _all(part), target, part.target_select, None)

    return bind_collective(stage, source, comm, pack, unpack)


def _packed(
    stage: Stage, source: torch.Tensor, target: torch.Tensor, rank: int
) -> tuple[list[tuple[int, torch.Tensor]], list[BoundCall]]:
    """Return the buffers that this worker sends, with their targets, and the calls that fill
    them."""
    sources, targets = pieces(source, stage.source, rank), pieces(target, stage.target, rank)
    sends, packs = [], []
    for part in stage.moves_from(rank):
        if _is_stored_in_place(part, sources, targets):
            continue
        buffer = source.new_empty(part.shape)
        packs.append(
            _transfer(sources[part.source_tile], part.source_select, buffer, _all(part), None)
        )
        sends.append((part.target, buffer))
    return sends, packs


def _received(
    stage: Stage,
    source: torch.Tensor,
    target: torch.Tensor,
    sends: list[tuple[int, torch.Tensor]],
    comm: Communicator,
) -> list[BoundCall]:
    """Return the calls that exchange messages and unpack the received ones."""
    rank = comm.rank
    sources, targets = pieces(source, stage.source, rank), pieces(target, stage.target, rank)
    receives, unpacks = [], []
    for part in stage.moves_to(rank):
        if _is_stored_in_place(part, sources, targets):
            continue
        buffer = target.new_empty(part.shape)
        combine = _combination(stage, part, target)
        unpacks.append(
            _transfer(buffer, _all(part), targets[part.target_tile], part.target_select, combine)
        )
        receives.append((part.source, buffer))
    return [lambda: comm.exchange(sends, receives), *unpacks]


def _is_stored_in_place(
    part: Move, sources: list[torch.Tensor], targets: list[torch.Tensor]
) -> bool:
    """Return True for a part that this worker has in place in its tiles of the target."""
    if part.source != part.target:
        return False
    return is_in_place(part, sources[part.source_tile], targets[part.target_tile])


def _all(part: Move) -> tuple[slice, ...]:
    return tuple(slice(0, extent) for extent in part.shape)
