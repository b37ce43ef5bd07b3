"""Costs of the candidates of a node (`passes/candidates.py`), by which the place pass chooses.

A cost is the time for moving the operands into place (existing copies are free), for the local
arithmetic, and for the moves that the result still needs. It depends only on the node's signature,
the states of its operands, and the layout hint of its result. Costs are therefore cached by
these: a network has many equal nodes, and plans of a network for other strategies, or for the same
strategy again, share most of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, final

from magmath.core.bounded_memo import store_bounded
from magmath.core.stage_times import count
from magmath.cost import redistribution_seconds
from magmath.cost.roofline import compute_seconds, reduction_seconds
from magmath.cost.roofline import traffic as kernel_traffic
from magmath.graph import Node
from magmath.layout import Layout, plan_redistribution
from magmath.layout.redistribution import SINGLE_STAGE_SIZE
from magmath.passes.candidates import LayoutCandidate, is_contraction, layout_candidates
from magmath.passes.default_reduction import default_reduction
from magmath.passes.environment import Environment

RESOLUTION = 5e-7  # seconds; candidates closer than this count as equal, and the first is chosen
MAX_CACHED_COSTS = 20_000  # maximum number of cached costs


@final
class OperandState(NamedTuple):
    """The state of an operand: its layout, the bytes of an element, whether it is in memory before
    anything is computed (`is_stored`), and the layouts in which copies of it exist."""

    layout: Layout
    itemsize: int
    is_stored: bool
    copies: tuple[Layout, ...]


@final
@dataclass(frozen=True, eq=False, slots=True)
class LocalCost:
    """A candidate with the costs that no operand changes: the predicted seconds of its local
    arithmetic and, by layout hint, of the moves of its result that the hint expects."""

    candidate: LayoutCandidate
    seconds: float
    result_seconds_by_hint: dict[Layout | None, float] = field(default_factory=dict)


@final
class CandidateCost(NamedTuple):
    """A candidate with its predicted seconds: of the moves of its operands, of its local arithmetic
    (`arithmetic`), and of the moves of its result that the layout hint expects."""

    candidate: LayoutCandidate
    seconds: float
    arithmetic: float

    @property
    def rounded_cost(self) -> int:
        """The seconds in units of RESOLUTION, by which candidates are compared."""
        return round(self.seconds / RESOLUTION)


@final
class CostCache:
    """The cached costs for one environment."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._best: dict[Hashable, tuple[CandidateCost, int]] = {}
        self._candidates: dict[Hashable, list[LocalCost]] = {}
        self.move = lru_cache(maxsize=MAX_CACHED_COSTS)(self._seconds)
        """(have, want, itemsize) → seconds of the redistribution of an array from one layout to
        another."""
        self.copy_layouts = lru_cache(maxsize=MAX_CACHED_COSTS)(self._copy_layouts)
        """(have, want) → the layouts of the copies, one made from the other, by which an array in
        one layout becomes readable in another; empty if it is readable."""

    def best(
        self, node: Node, operands: tuple[OperandState, ...], hint: Layout | None
    ) -> tuple[CandidateCost, int]:
        """Return the cheapest candidate of a node with these operands, and the bytes by which
        decompositions of the node are compared.

        `hint`: the layout hint of its result, or None for any layout.
        """
        key = (node.signature, operands, hint)
        best = self._best.get(key) if node.signature is not None else None
        if best is None:
            node_costs = NodeCosts(self, node, operands, hint)
            cheapest = node_costs.ranked()[0]
            best = cheapest, node_costs.compared_bytes(cheapest.candidate)
            if node.signature is not None:
                store_bounded(self._best, key, best, MAX_CACHED_COSTS)
        return best

    def candidates(
        self, node: Node, layouts: Sequence[Layout], hint: Layout | None
    ) -> list[LocalCost]:
        """Return the candidates of a node with operands in these layouts.

        Even splits over all workers add no candidates, and pending sums only those of additions, so
        most nodes with one signature have the same ones.
        """
        choices = layouts if hint is None else (*layouts, hint)
        adding = tuple([None if self._is_redundant(node, x) else x for x in choices])
        key = (node.signature, adding if any(adding) else None)
        candidates = self._candidates.get(key)
        if candidates is None or node.signature is None:
            every = layout_candidates(node, tuple(layouts), self.environment, hint)
            candidates = [LocalCost(c, self._compute_seconds(node, c)) for c in every]
            count("estimated candidates", len(candidates))
            store_bounded(self._candidates, key, candidates, MAX_CACHED_COSTS)
        return candidates

    def _is_redundant(self, node: Node, layout: Layout) -> bool:
        if layout.is_partial and node.operation.is_additive:
            return False
        return layout.boxes is not None or (
            layout.mesh == self.environment.mesh and layout.has_even_splits
        )

    def _compute_seconds(self, node: Node, candidate: LayoutCandidate) -> float:
        return compute_seconds(node, candidate.inputs, candidate.output, self.environment)

    def _copy_layouts(self, have: Layout, want: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the copies by which an array in `have` becomes readable in `want`.

        Workers that share memory gather into one shared copy, and reduce in one step.
        """
        if is_readable_as(have, want):
            return ()
        at_once = have.is_partial and have.size <= SINGLE_STAGE_SIZE
        if want.is_replicated and not (have.is_replicated or at_once):
            shared = self.environment.replicated(want.shape, shared=True)
            if want.mesh == shared.mesh and want.shape != ():
                want = shared
        return tuple([stage.target for stage in plan_redistribution(have, want).stages])

    def _seconds(self, have: Layout, want: Layout, itemsize: int) -> float:
        return (
            0.0
            if have == want
            else redistribution_seconds(
                plan_redistribution(have, want), itemsize, self.environment.link
            )
        )


@lru_cache(maxsize=64)
def cost_cache_of(environment: Environment) -> CostCache:
    """Return the cost cache of an environment."""
    return CostCache(environment)


@final
@dataclass(frozen=True)
class NodeCosts:
    """The costs of a node's candidates, given the states of its operands and the layout hint of
    its result."""

    cache: CostCache
    node: Node
    operands: tuple[OperandState, ...]
    hint: Layout | None

    @property
    def environment(self) -> Environment:
        """The environment of the costs."""
        return self.cache.environment

    def ranked(self) -> list[CandidateCost]:
        """Return the costs of the candidates, the cheapest first.

        Of equal costs, those with fewer moved bytes come first, then results that all workers have:
        they are small, and whatever reads them needs no moves.

        Candidates that do not fit the memory are dropped, unless no candidate fits.
        """
        layouts = [operand.layout for operand in self.operands]
        candidates = self.cache.candidates(self.node, layouts, self.hint)
        count("evaluated candidates", len(candidates))
        limit = self.environment.memory_bound
        if limit is not None and limit < self._max_bytes():
            fitting = [c for c in candidates if self.worker_bytes(c.candidate) <= limit]
            candidates = fitting or candidates
        if self.environment.is_frugal:
            needs = [self.worker_bytes(c.candidate) for c in candidates]
            least = min(needs)
            candidates = [c for c, n in zip(candidates, needs, strict=True) if n == least]
        if self.node.operation.collective is not None:
            candidates = self._with_little_memory(candidates)
        costs = [self._cost(c) for c in candidates]
        rounded_costs = [cost.rounded_cost for cost in costs]
        cheapest = min(rounded_costs)
        tied = rounded_costs.count(cheapest) > 1
        moved = [
            self.traffic(cost.candidate)[0] if tied and n == cheapest else 0
            for n, cost in zip(rounded_costs, costs, strict=True)
        ]
        divided = [not cost.candidate.output.is_replicated for cost in costs]
        order = sorted(range(len(costs)), key=lambda i: (rounded_costs[i], moved[i], divided[i]))
        return [costs[i] for i in order]

    # bytes ------------------------------------------------------------------------------------
    #
    # Of a copy that all workers of a host share, the heap counts all bytes on every worker
    # (`_heap_bytes`); a worker writes its part of it (`worker_bytes`).

    def _max_bytes(self) -> int:
        """Return the bytes of all operands and of the result, which no candidate exceeds."""
        arrays = (self.node, *self.node.inputs)
        return sum([x.nbytes for x in arrays])

    def _with_little_memory(self, candidates: list[LocalCost]) -> list[LocalCost]:
        """Return the candidates, of an operation with a collective kernel, that need little memory.

        Compared with the candidate that needs the least memory, a worker may store at most the
        additional bytes that the environment allows for moved operands (or for LAPACK), and at most
        an eighth of its memory limit.
        """
        needs = [self._heap_bytes(c.candidate) for c in candidates]
        spare, limit = self.environment.max_moved_bytes, self.environment.memory_limit
        if self.node.operation.uses_lapack and self.environment.shares_memory:
            spare = max(spare, self.environment.lapack_memory)
        max_bytes = min(needs) + (spare if limit is None else min(spare, limit // 8))
        return [c for c, nbytes in zip(candidates, needs, strict=True) if nbytes <= max_bytes]

    def compared_bytes(self, candidate: LayoutCandidate) -> int:
        """Return the bytes by which decompositions are compared.

        A contraction counts an operand copy that all workers share by parts, because it gains from
        the copy; a LAPACK operation includes its result, which it stores while it computes.
        """
        if self.node.operation.uses_lapack:
            return self._heap_bytes(candidate)
        if is_contraction(self.node.index_notation):
            return self._moved_worker_bytes(candidate)
        return self._moved_heap_bytes(candidate)

    def _heap_bytes(self, candidate: LayoutCandidate) -> int:
        """Return the bytes of moved operands and of the result, as the heap counts them."""
        result = candidate.output.max_local_size * self.node.dtype.itemsize
        return self._moved_heap_bytes(candidate) + result

    def _moved_heap_bytes(self, candidate: LayoutCandidate) -> int:
        """Return the bytes of moved operands, as the heap counts them."""
        return sum(
            [
                layout.max_local_size * operand.itemsize
                for operand, layout in zip(self.operands, candidate.inputs, strict=True)
                if not self._is_readable(operand, layout)
            ]
        )

    def worker_bytes(self, candidate: LayoutCandidate) -> int:
        """Return the bytes of moved operands and of the result on the busiest worker."""
        result = candidate.output.max_local_size * self.node.dtype.itemsize
        return self._moved_worker_bytes(candidate) + result

    def _moved_worker_bytes(self, candidate: LayoutCandidate) -> int:
        """Return the bytes of moved operands on the busiest worker."""
        total = 0
        for operand, layout in zip(self.operands, candidate.inputs, strict=True):
            if not self._is_readable(operand, layout):
                shared = layout.is_replicated and self.environment.shares_memory
                nbytes = layout.max_local_size * operand.itemsize
                total += nbytes // layout.mesh.size if shared else nbytes
        return total

    def traffic(self, candidate: LayoutCandidate) -> tuple[int, int]:
        """Return the bytes and messages between workers: of the operands, of a collective kernel,
        and of a reduction."""
        redistributions = [
            (plan_redistribution(operand.layout, layout), operand.itemsize)
            for operand, layout in zip(self.operands, candidate.inputs, strict=True)
            if not self._is_readable(operand, layout)
        ]
        if candidate.output.is_partial and candidate.output != self.hint:  # else it stays pending
            summed = plan_redistribution(candidate.output, default_reduction(candidate.output))
            redistributions.append((summed, self.node.dtype.itemsize))
        moved, messages = kernel_traffic(self.node, candidate.inputs, candidate.output)
        return (
            moved + sum(x.total_bytes(itemsize) for x, itemsize in redistributions),
            messages + sum(x.messages for x, _ in redistributions),
        )

    # seconds ----------------------------------------------------------------------------------

    def _cost(self, local: LocalCost) -> CandidateCost:
        candidate, moves = local.candidate, 0.0
        for operand, layout in zip(self.operands, candidate.inputs, strict=True):
            if not self._is_readable(operand, layout):
                moves += self._operand_seconds(operand, layout)
        result_seconds = local.result_seconds_by_hint.get(self.hint)
        if result_seconds is None:
            result_seconds = self._result_seconds(candidate)
            local.result_seconds_by_hint[self.hint] = result_seconds
        seconds = moves + local.seconds + result_seconds
        return CandidateCost(candidate, seconds, local.seconds)

    def _is_readable(self, operand: OperandState, layout: Layout) -> bool:
        """Return True if an operand can be read in a layout without a move."""
        if operand.layout is layout or is_readable_as(operand.layout, layout):
            return True
        copies = operand.copies
        if not copies:
            return False
        shared = self.environment.replicated(layout.shape, shared=True)
        return layout in copies or (layout.is_replicated and shared in copies)

    def _operand_seconds(self, operand: OperandState, layout: Layout) -> float:
        """Return the predicted seconds of moving an operand into a layout."""
        have, copied = operand.layout, 0
        if layout.is_replicated:
            shared = self.environment.replicated(layout.shape, shared=True)
            if layout.mesh == shared.mesh:
                layout = shared
                copied = have.max_local_size if operand.is_stored else 0  # otherwise computed there
        seconds = self.cache.move(have, layout, operand.itemsize)
        return seconds + copied * operand.itemsize / self.environment.bandwidth

    def _result_seconds(self, candidate: LayoutCandidate) -> float:
        """Return the predicted seconds of the reduction of the result and of its move to the hinted
        layout."""
        output, itemsize = candidate.output, self.node.dtype.itemsize
        if output == self.hint:
            return 0.0
        cost = 0.0
        if output.is_partial:
            summed = default_reduction(output)
            cost += self.cache.move(output, summed, itemsize)
            cost += reduction_seconds(self.node, summed, self.environment)
            output = summed
        if self.hint is not None:
            return cost + self.cache.move(output, self.hint, itemsize)
        if output.is_replicated or not all(x.is_replicated for x in candidate.inputs):
            return cost
        if (
            self.node.size * itemsize <= self.environment.max_moved_bytes
        ):  # its users may need all of it
            whole = self.environment.replicated(self.node.shape)
            cost += 0.5 * self.cache.move(output, whole, itemsize)
        return cost


def is_readable_as(have: Layout, want: Layout) -> bool:
    """Return True if an array in layout `have` can be read as if it were in `want`."""
    if have == want:
        return True
    return (
        have.shared
        and not want.shared
        and have.is_replicated
        and (want.is_replicated and want.mesh == have.mesh)
    )
