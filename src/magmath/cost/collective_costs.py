"""The cost of collectives on a network with levels, such as boards, hosts and a switch.

A level connects units of the level below it; each unit has one port, whose bandwidth the workers of
the unit share. Every algorithm of a collective takes a latency and a time per byte, so tables of
costs are linear functions, and the cheapest algorithm is chosen for each number of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2
from typing import Final, NamedTuple, final


@final
@dataclass(frozen=True)
class Level:
    """One level of a network.

    fan_out    units of the level below that it connects; 0: any number
    bandwidth  bytes per second into, and out of, one of these units
    latency    seconds of a message
    """

    name: str
    fan_out: int
    bandwidth: float
    latency: float


@final
class GroupLevel(NamedTuple):
    """The part of a group of workers at one level.

    units    units of the level below that have members, within one unit of this level
    members  members in each of these units
    sharing  groups that share the port of such a unit
    """

    level: int
    units: int
    members: int
    sharing: float


@final
class Group(NamedTuple):
    """Some workers that communicate: `size` of them, with distance `stride`, of `workers` in all.

    The other workers form equal groups, which communicate concurrently.
    """

    size: int
    stride: int
    workers: int


@final
class CollectiveStage(NamedTuple):
    """A part of a collective: bytes that pass the port of each unit at each level, for one group,
    and the seconds of its messages."""

    latency: float
    loads: tuple[tuple[int, float], ...]


@final
class Algorithm(NamedTuple):
    """An algorithm for a collective in one group: its stages for one byte."""

    name: str
    stages: tuple[CollectiveStage, ...]

    def stages_for(self, nbytes: float) -> tuple[CollectiveStage, ...]:
        """Return the stages for a number of bytes."""
        return tuple(
            CollectiveStage(latency, tuple((level, load * nbytes) for level, load in loads))
            for latency, loads in self.stages
        )


@final
class AlgorithmCost(NamedTuple):
    """The cost of an algorithm, a linear function of the bytes."""

    algorithm: Algorithm
    fixed_seconds: float
    seconds_per_byte: float

    def seconds(self, nbytes: float) -> float:
        """Return the seconds for a number of bytes."""
        return self.fixed_seconds + self.seconds_per_byte * nbytes


def group_levels(levels: tuple[Level, ...], group: Group) -> tuple[GroupLevel, ...]:
    """Return the parts of a group at the levels where it has several units; workers are numbered
    unit by unit."""
    parts, child = [], 1
    for number, level in enumerate(levels):
        unit = child * level.fan_out if level.fan_out else max(group.workers, child)
        members, within = _members(group, child), _members(group, unit)
        if within > members:
            sharing = max(1.0, min(child, group.workers) / members)
            parts.append(GroupLevel(number, ceil(within / members), members, sharing))
        child = unit
    return tuple(parts)


def _members(group: Group, workers: int) -> int:
    """Return the number of members of a group among consecutive workers."""
    return min(group.size, max(1, workers // group.stride))


@lru_cache(maxsize=4096)
def algorithm_costs(
    levels: tuple[Level, ...], kind: str, group: Group, name: str | None = None
) -> tuple[AlgorithmCost, ...]:
    """Return the costs of the algorithms of a collective; only that of the algorithm `name` if the
    collective has it.

    The bytes are those of the whole result of one group for "allgather" and "allreduce", of the
    operand of one worker for "reduce_scatter", of all messages of one worker for "all_to_all", and
    of its messages to the two neighbours in a row of workers for "halo".
    """
    if group.size == 1:
        return (AlgorithmCost(Algorithm("none", ()), 0.0, 0.0),)
    parts = group_levels(levels, group)
    algorithms = _BUILDERS[kind](levels, parts, group)
    named = [algorithm for algorithm in algorithms if algorithm.name == name] or algorithms
    return tuple(_cost(levels, parts, algorithm) for algorithm in named)


def algorithm_names() -> list[str]:
    """Return the names of all algorithms; no collective has all of them."""
    levels, pair = (Level("any", 0, 1.0, 1.0),), Group(2, 1, 2)
    costs = [cost for kind in _BUILDERS for cost in algorithm_costs(levels, kind, pair)]
    return list(dict.fromkeys(cost.algorithm.name for cost in costs))


def fastest(
    levels: tuple[Level, ...], kind: str, nbytes: float, group: Group, name: str | None = None
) -> AlgorithmCost:
    """Return the fastest algorithm of a collective for a number of bytes, with its cost.

    `name`: the algorithm to use where the collective has it.
    """
    costs = algorithm_costs(levels, kind, group, name)
    return min(costs, key=lambda cost: cost.seconds(nbytes))


def _cost(
    levels: tuple[Level, ...], parts: tuple[GroupLevel, ...], algorithm: Algorithm
) -> AlgorithmCost:
    sharing = {part.level: part.sharing for part in parts}
    fixed_seconds = sum(stage.latency for stage in algorithm.stages)
    seconds_per_byte = sum(
        max(load * sharing[n] / levels[n].bandwidth for n, load in stage.loads)
        for stage in algorithm.stages
    )
    return AlgorithmCost(algorithm, fixed_seconds, seconds_per_byte)


# algorithms ---------------------------------------------------------------------------------------


def _gathers(
    levels: tuple[Level, ...], parts: tuple[GroupLevel, ...], group: Group
) -> list[Algorithm]:
    """Return the algorithms that gather, which reversed are those that reduce and scatter.

    ring          all members in one ring, which crosses each port once in each step
    hierarchical  level by level, the outermost first, with recursive doubling within a level, so
                  that each byte passes the port of a unit once (Thakur et al. 2005)
    """
    slowest = max(levels[part.level].latency for part in parts)
    share = (group.size - 1) / group.size
    ring = CollectiveStage((group.size - 1) * slowest, tuple((part.level, share) for part in parts))
    by_level = tuple(
        CollectiveStage(
            ceil(log2(part.units)) * levels[part.level].latency,
            ((part.level, (part.units - 1) / part.units),),
        )
        for part in reversed(parts)
    )
    return [Algorithm("ring", (ring,)), Algorithm("hierarchical", by_level)]


def _reductions(
    levels: tuple[Level, ...], parts: tuple[GroupLevel, ...], group: Group
) -> list[Algorithm]:
    """Return the algorithms of allreduce: both gathers after their reversal, and a tree, in which
    members exchange whole operands in a logarithmic number of steps."""
    twice = [
        Algorithm(gather.name, (*gather.stages[::-1], *gather.stages))
        for gather in _gathers(levels, parts, group)
    ]
    tree = tuple(
        CollectiveStage(
            ceil(log2(part.units)) * levels[part.level].latency,
            ((part.level, float(ceil(log2(part.units)) * part.members)),),
        )
        for part in parts
    )
    return [*twice, Algorithm("tree", tree)]


def _exchanges(
    levels: tuple[Level, ...], parts: tuple[GroupLevel, ...], group: Group
) -> list[Algorithm]:
    """Return the algorithms of all-to-all: messages between all pairs, or Bruck's, which sends
    fewer messages and more bytes."""
    slowest = max(levels[part.level].latency for part in parts)
    rounds = ceil(log2(group.size))
    loads = tuple(
        (part.level, part.members * (group.size - part.members) / (group.size - 1))
        for part in parts
    )
    more = max(1.0, rounds * group.size / (2 * (group.size - 1)))
    bruck = CollectiveStage(rounds * slowest, tuple((level, load * more) for level, load in loads))
    return [
        Algorithm("pairwise", (CollectiveStage((group.size - 1) * slowest, loads),)),
        Algorithm("bruck", (bruck,)),
    ]


def _halo_exchanges(
    levels: tuple[Level, ...], parts: tuple[GroupLevel, ...], group: Group
) -> list[Algorithm]:
    """Return the exchange of halos with both neighbours."""
    slowest = max(levels[part.level].latency for part in parts)
    stage = CollectiveStage(2 * slowest, tuple((part.level, 1.0) for part in parts))
    return [Algorithm("neighbours", (stage,))]


_BUILDERS: Final = {
    "allgather": _gathers,
    "reduce_scatter": _gathers,
    "allreduce": _reductions,
    "all_to_all": _exchanges,
    "halo": _halo_exchanges,
}
