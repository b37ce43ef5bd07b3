"""Options: the ways in which a node may be divided (`passes/candidates.py`) with their prices.

A price is made of moving the operands into place (copies made before are free), the local
arithmetic, and what the result must still go through. It depends on nothing but the node's form and
on where its operands lie and its result is wanted. So it is found out once for all nodes that have
these in common: a network has many, and plans of a network for other strategies, or for the same
one again, have most of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from magmath.core.bounded_memo import store_bounded
from magmath.core.stage_times import count
from magmath.cost import redistribution_seconds
from magmath.cost.roofline import compute_seconds, reduction_seconds, traffic
from magmath.graph import Node
from magmath.graph.index_notation import index_notation_of
from magmath.layout import Layout, plan
from magmath.passes.candidates import Candidate, candidates, is_contraction
from magmath.passes.default_reduction import default_reduction
from magmath.passes.environment import Environment

RESOLUTION = 5e-7  # seconds; candidates closer than this count as equal, and the first is taken
MOST_KNOWN = 20_000  # prices that are remembered


@dataclass(frozen=True)
class PricedCandidate:
    """A candidate with its price: predicted seconds, bytes between workers and messages, and the
    bytes that a worker needs for moved operands and the result."""

    candidate: Candidate
    seconds: float
    moved: int
    messages: int
    memory: int


class OperandState(NamedTuple):
    """Where an operand is: its layout, the bytes of an element, whether it lies in memory before
    anything is computed, and the layouts in which there are copies of it."""

    layout: Layout
    itemsize: int
    lies: bool
    copies: tuple[Layout, ...]


class Choice(NamedTuple):
    """The candidate that is taken: its cost in units of RESOLUTION, and the bytes by which ways to
    compute something are compared."""

    candidate: Candidate
    cost: int
    workspace: int


class PriceCache:
    """What is known of prices on certain workers."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._best: dict[Hashable, Choice] = {}
        self.move = lru_cache(maxsize=MOST_KNOWN)(self._seconds)
        """(have, want, itemsize) → seconds of bringing an array from one layout into another."""

    def best(self, node: Node, operands: tuple[OperandState, ...], wanted: Layout | None) -> Choice:
        """What is taken for a node on such operands, whose result is wanted in a certain layout,
        or in any."""
        key = (node.signature, operands, wanted)
        best = self._best.get(key) if node.signature is not None else None
        if best is None:
            best = self._found(Pricing(self, node, operands, wanted))
            if node.signature is not None:
                store_bounded(self._best, key, best, MOST_KNOWN)
        return best

    @staticmethod
    def _found(pricing: Pricing) -> Choice:
        cost, candidate = pricing.ranked()[0]
        return Choice(candidate, cost, pricing.needs(candidate))

    def _seconds(self, have: Layout, want: Layout, itemsize: int) -> float:
        return (
            0.0
            if have == want
            else redistribution_seconds(plan(have, want), itemsize, self.environment.link)
        )


@lru_cache(maxsize=64)
def prices_of(environment: Environment) -> PriceCache:
    """The prices on these workers."""
    return PriceCache(environment)


@dataclass(frozen=True)
class Pricing:
    """The prices of a node's candidates, given its operands and where its result is wanted."""

    prices: PriceCache
    node: Node
    operands: tuple[OperandState, ...]
    wanted: Layout | None

    @property
    def environment(self) -> Environment:
        """The workers."""
        return self.prices.environment

    def options(self) -> list[PricedCandidate]:
        """The candidates in the order of preference."""
        return [
            PricedCandidate(candidate, self._seconds(candidate), *self._traffic(candidate),
                   self._memory(candidate))
            for _, candidate in self.ranked()
        ]  # fmt: skip

    def ranked(self) -> list[tuple[int, Candidate]]:
        """The candidates that fit the memory (or all, where none does) and their costs, the
        cheapest first, and of equally cheap ones that which moves least."""
        layouts = tuple([operand.layout for operand in self.operands])
        found = list(candidates(self.node, layouts, self.environment, self.wanted))
        count("priced candidates", len(found))
        limit = self.environment.most
        if limit is not None:
            fitting = [c for c in found if self._memory(c) <= limit]
            found = fitting or found
        if self.node.operation.distributed is not None:
            found = self._lean(found)
        costs = [round(self._seconds(c) / RESOLUTION) for c in found]
        cheapest = min(costs)
        tied = costs.count(cheapest) > 1
        moved = [
            self._traffic(c)[0] if tied and cost == cheapest else 0
            for cost, c in zip(costs, found, strict=True)
        ]
        order = sorted(range(len(found)), key=lambda i: (costs[i], moved[i]))
        return [(costs[i], found[i]) for i in order]

    # bytes ------------------------------------------------------------------------------------

    def _lean(self, found: list[Candidate]) -> list[Candidate]:
        """Of ways to compute what can be computed together, those for which a worker stores at
        most so much more than for the leanest as an operation should need, or is lent for LAPACK,
        and not much of what it may hold at all."""
        stored = [self._stored(c) for c in found]
        spare, limit = self.environment.workspace, self.environment.memory
        if self.node.operation.lapack and self.environment.shares_memory:
            spare = max(spare, self.environment.lapack_memory)
        most = min(stored) + (spare if limit is None else min(spare, limit // 8))
        return [c for c, nbytes in zip(found, stored, strict=True) if nbytes <= most]

    def needs(self, candidate: Candidate) -> int:
        """The bytes by which ways to compute something are compared: a product gains from a copy
        of an operand that all share, and a factorisation holds its result while it computes."""
        if self.node.operation.lapack:
            return self._stored(candidate)
        if is_contraction(index_notation_of(self.node)):
            return self._workspace(candidate)
        return self._brought(candidate)

    def _stored(self, candidate: Candidate) -> int:
        """The bytes of moved operands and of the result, as the heap counts them."""
        result = candidate.output.max_local_size * self.node.dtype.itemsize
        return self._brought(candidate) + result

    def _brought(self, candidate: Candidate) -> int:
        """The bytes of moved operands as the heap counts them: what all share, everyone has room
        for."""
        return sum(
            [
                layout.max_local_size * operand.itemsize
                for operand, layout in zip(self.operands, candidate.inputs, strict=True)
                if not self._is_there(operand, layout)
            ]
        )

    def _memory(self, candidate: Candidate) -> int:
        """The bytes of moved operands and of the result on the busiest worker."""
        result = candidate.output.max_local_size * self.node.dtype.itemsize
        return self._workspace(candidate) + result

    def _workspace(self, candidate: Candidate) -> int:
        """The bytes of moved operands on the busiest worker; what all share, each has a part of."""
        total = 0
        for operand, layout in zip(self.operands, candidate.inputs, strict=True):
            if not self._is_there(operand, layout):
                shared = layout.is_replicated and self.environment.shares_memory
                nbytes = layout.max_local_size * operand.itemsize
                total += nbytes // layout.mesh.size if shared else nbytes
        return total

    def _traffic(self, candidate: Candidate) -> tuple[int, int]:
        """The bytes and messages between workers: of the operands, while they compute together,
        and of a reduction."""
        steps = [
            (plan(operand.layout, layout), operand.itemsize)
            for operand, layout in zip(self.operands, candidate.inputs, strict=True)
            if not self._is_there(operand, layout)
        ]
        if candidate.output.is_partial:
            summed = plan(candidate.output, default_reduction(candidate.output))
            steps.append((summed, self.node.dtype.itemsize))
        moved, messages = traffic(self.node, candidate.inputs, candidate.output)
        return (
            moved + sum(step.total_bytes(itemsize) for step, itemsize in steps),
            messages + sum(step.messages for step, _ in steps),
        )

    # seconds ----------------------------------------------------------------------------------

    def _seconds(self, candidate: Candidate) -> float:
        moves = 0.0
        for operand, layout in zip(self.operands, candidate.inputs, strict=True):
            if not self._is_there(operand, layout):
                moves += self._brings(operand, layout)
        compute = compute_seconds(self.node, candidate.inputs, candidate.output, self.environment)
        return moves + compute + self._afterwards(candidate)

    def _is_there(self, operand: OperandState, layout: Layout) -> bool:
        """True where an operand can be read in a layout without being moved."""
        if is_readable_as(operand.layout, layout):
            return True
        copies = operand.copies
        if not copies:
            return False
        shared = self.environment.whole(layout.shape, shared=True)
        return layout in copies or (layout.is_replicated and shared in copies)

    def _brings(self, operand: OperandState, layout: Layout) -> float:
        """The predicted seconds of bringing an operand into a layout."""
        have, copied = operand.layout, 0
        if layout.is_replicated:
            shared = self.environment.whole(layout.shape, shared=True)
            if layout.mesh == shared.mesh:
                layout = shared
                copied = have.max_local_size if operand.lies else 0  # else computed there
        seconds = self.prices.move(have, layout, operand.itemsize)
        return seconds + copied * operand.itemsize / self.environment.bandwidth

    def _afterwards(self, candidate: Candidate) -> float:
        """What the result must still go through: its reduction, its way to where it is wanted."""
        output, itemsize = candidate.output, self.node.dtype.itemsize
        cost = 0.0
        if output.is_partial:
            summed = default_reduction(output)
            cost += self.prices.move(output, summed, itemsize)
            cost += reduction_seconds(self.node, summed, self.environment)
            output = summed
        if self.wanted is not None:
            return cost + self.prices.move(output, self.wanted, itemsize)
        if output.is_replicated or not all(x.is_replicated for x in candidate.inputs):
            return cost
        if self.node.size * itemsize <= self.environment.workspace:  # it may be wanted whole
            whole = self.environment.whole(self.node.shape)
            cost += 0.5 * self.prices.move(output, whole, itemsize)
        return cost


def is_readable_as(have: Layout, want: Layout) -> bool:
    """True if an array in layout `have` can be read as if it were in `want`."""
    if have == want:
        return True
    return (
        have.shared
        and not want.shared
        and have.is_replicated
        and (want.is_replicated and want.mesh == have.mesh)
    )
