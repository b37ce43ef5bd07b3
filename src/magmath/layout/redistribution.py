"""Redistribution plans: the part of its tile that each worker sends to each other one.

`plan_redistribution` intersects the tiles of any two layouts of one shape: any cuts, meshes of the
same or other workers, replicas, boxes, pending reductions. It depends on the layouts only and gives
the same result on every worker, so it needs no communication. Except for reductions, no worker
receives an element that it stores already, or the same element twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

from magmath.errors import ShapeError
from magmath.layout.layout import Layout
from magmath.layout.mesh import Mesh
from magmath.layout.moves import Move, longest_dimension, moves_between, reduced_axes
from magmath.layout.split import Split
from magmath.layout.transition import collective_name, has_same_tiles

# Elements; smaller reductions to replicas use one stage, since latency dominates.
SINGLE_STAGE_SIZE = 1024


@final
@dataclass(frozen=True, eq=False)
class WorkerTraffic:
    """Elements and messages that one worker receives and sends in a stage."""

    received: int = 0
    sent: int = 0
    messages_in: int = 0
    messages_out: int = 0


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """Moves that can run concurrently, after all earlier stages.

    `reduce`: the reduction that moves with `combine` apply to their target. The moves into one
    region are consecutive, the first of them copies, and their order is that of the positions along
    the reduced mesh axes, so that every replica gets the same bits. `identity`: workers that first
    fill their tile with the identity of `target.reduction`, because only one contributor stores the
    value of an array that becomes pending. `kind`: "nothing" (the tiles are unchanged), "local" (no
    communication), "allgather", "reduce_scatter", "allreduce", "all_to_all", "gather", "broadcast",
    or "exchange" for any other pattern. Writing into a shared array is never "local", since other
    workers read it.
    """

    source: Layout
    target: Layout
    moves: tuple[Move, ...]
    reduce: str | None
    kind: str
    identity: tuple[int, ...] = ()

    def moves_to(self, worker: int) -> tuple[Move, ...]:
        """Return the moves to this worker, including local copies, in order."""
        return self._by_target.get(worker, ())

    def moves_from(self, worker: int) -> tuple[Move, ...]:
        """Return the moves from this worker, including local copies, in order."""
        return self._by_source.get(worker, ())

    @cached_property
    def _by_target(self) -> dict[int, tuple[Move, ...]]:
        return _grouped(self.moves, lambda move: move.target)

    @cached_property
    def _by_source(self) -> dict[int, tuple[Move, ...]]:
        return _grouped(self.moves, lambda move: move.source)

    @cached_property
    def traffic(self) -> dict[int, WorkerTraffic]:
        """The traffic of each worker that communicates."""
        elements: dict[tuple[int, int], int] = {}
        for move in self.moves:
            if move.source != move.target:
                pair = move.source, move.target
                elements[pair] = elements.get(pair, 0) + math.prod(move.shape)
        received: Counter[int] = Counter()
        sent: Counter[int] = Counter()
        messages_in: Counter[int] = Counter()
        messages_out: Counter[int] = Counter()
        for (source, target), size in elements.items():
            sent[source] += size
            messages_out[source] += 1
            received[target] += size
            messages_in[target] += 1
        return {
            w: WorkerTraffic(received[w], sent[w], messages_in[w], messages_out[w])
            for w in dict.fromkeys([*sent, *received])
        }

    @cached_property
    def elements(self) -> int:
        """The number of elements that are sent between workers."""
        return sum(traffic.received for traffic in self.traffic.values())

    @property
    def reads_peers(self) -> bool:
        """True if a worker reads elements of another one."""
        return bool(self.traffic)

    def __repr__(self) -> str:
        return f"<Stage {self.kind}: {self.source} -> {self.target}, {len(self.moves)} moves>"


@final
@dataclass(frozen=True, eq=False)
class Redistribution:
    """The change of an array from one layout to another: a sequence of stages."""

    source: Layout
    target: Layout
    stages: tuple[Stage, ...]

    @cached_property
    def kind(self) -> str:
        """The kind of the whole redistribution, as `Stage.kind`."""
        if len(self.stages) == 1:
            return self.stages[0].kind
        return collective_name(self.source, self.target)

    @property
    def reads_peers(self) -> bool:
        """True if a worker reads elements of another one."""
        return any(stage.reads_peers for stage in self.stages)

    @property
    def messages(self) -> int:
        """The number of messages, at most one per stage and pair of workers."""
        return sum(t.messages_in for stage in self.stages for t in stage.traffic.values())

    def total_bytes(self, itemsize: int) -> int:
        """Return the bytes that are sent between workers, for elements of `itemsize` bytes."""
        return itemsize * sum(stage.elements for stage in self.stages)

    def __repr__(self) -> str:
        return f"<Redistribution {' then '.join(map(repr, self.stages))}>"


@lru_cache(maxsize=8192)
def plan_redistribution(source: Layout, target: Layout) -> Redistribution:
    """Return the redistribution of an array from layout `source` to layout `target`.

    Pending reductions of the source are completed, except those that the target has along the same
    axes of the same mesh, which stay pending. If only the target has one, the contributor at
    coordinate 0 has the value and the others have the identity. A large reduction to replicas has
    two stages: a reduce-scatter, then an allgather. Raises ShapeError if the shapes differ.
    """
    if source.shape != target.shape:
        raise ShapeError(
            f"redistribute needs two layouts of one shape; the array has shape {source.shape}, the "
            f"target layout {target} is for shape {target.shape}; bind its rule to the array's"
        )
    return Redistribution(source, target, _two_stages(source, target) or (_stage(source, target),))


# Two stages -----------------------------------------------------------------------------------


def _two_stages(source: Layout, target: Layout) -> tuple[Stage, ...]:
    """Return a reduce-scatter stage and a second stage, or an empty tuple if one stage is
    better."""
    reduced = reduced_axes(source, target)
    if math.prod([source.mesh.shape[axis] for axis in reduced]) == 1:
        return ()
    if not target.shared and (source.size <= SINGLE_STAGE_SIZE or not target.has_replicas):
        return ()
    middle = _scattered(source, reduced, target)
    if middle is None or middle == target:
        return ()
    stages = _stage(source, middle), _stage(middle, target)
    if target.shared or collective_name(source, target) == "allreduce":
        return stages
    direct = _stage(source, target)
    return stages if stages[0].elements + stages[1].elements <= direct.elements else ()


def _scattered(source: Layout, reduced: Sequence[int], target: Layout) -> Layout | None:
    """Return the intermediate layout, in which every reduced axis splits a dimension instead.

    If dimensions are too few or too short, all reductions are completed. A shared target always
    needs a layout in between: the owners of the parts write its only copy.
    """
    partial = [None if axis in reduced else name for axis, name in enumerate(source.partial)]
    splits = list(source.splits)
    for mesh_axis in reduced:
        count = source.mesh.shape[mesh_axis]
        free = (d for d, n in enumerate(source.shape) if splits[d] is None and n >= count)
        axis = next(free, None)
        if axis is None:
            break
        splits[axis] = Split.even(mesh_axis, source.shape[axis], count)
    else:
        return Layout(source.shape, source.mesh, tuple(splits), tuple(partial))
    if source.shape:
        return Layout.even(source.shape, source.mesh.flattened(), longest_dimension(source.shape))
    first = Mesh((1,), None, source.mesh.workers[:1])
    return Layout.replicated_on((), first) if target.shared else None


# One stage --------------------------------------------------------------------------------------


def _stage(source: Layout, target: Layout) -> Stage:
    moves, identity = moves_between(source, target)
    combines = any(move.combine for move in moves)
    if has_same_tiles(source, target):
        kind = "nothing"
    elif not target.shared and all(move.source == move.target for move in moves):
        kind = "local"
    else:
        kind = collective_name(source, target)
    return Stage(source, target, moves, source.reduction if combines else None, kind, identity)


def _grouped(moves: Iterable[Move], worker: Callable[[Move], int]) -> dict[int, tuple[Move, ...]]:
    groups: dict[int, list[Move]] = {}
    for move in moves:
        groups.setdefault(worker(move), []).append(move)
    return {number: tuple(group) for number, group in groups.items()}
