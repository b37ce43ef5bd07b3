"""The cheapest assignment of options: exact on series-parallel graphs, bounded elsewhere.

The cost is a sum of one table for each layer and one for each edge. Elimination (Jia et al. 2018,
"Exploring hidden dimensions in parallelizing convolutional neural networks", OptCNN) removes one
layer after another: parallel edges are added; a layer with at most two neighbours becomes an edge
between them, by minimizing over its options. A series-parallel graph, such as a chain, a residual
network or an inception network, ends with one layer, and the assignment is exact. The remaining
layers of other graphs are assigned by the relaxation (`relaxation.py`), which returns a lower bound
too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import final

import numpy as np

from magmath.core.stage_times import count
from magmath.parallel.planner.assignment import Assignment, AssignmentProblem, Table
from magmath.parallel.planner.relaxation import relaxed_assignment


@final
@dataclass
class _Removed:
    """An eliminated layer: its neighbours, and its best option for each of their options."""

    layer: int
    neighbours: tuple[int, ...]
    best: Table
    min_cost: float = 0.0
    """The cost of the best option, if there are no neighbours."""


@final
@dataclass
class _Eliminated:
    """The memo of eliminations, by the identities of their tables: repeated blocks share them."""

    known: dict[Hashable, tuple[Table, Table]] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    """Keeps the tables of the keys alive, so that identities stay unique."""

    def minimum(self, own_table: Table, left: Table, right: Table | None) -> tuple[Table, Table]:
        """Return the least cost and the best option for the options of one or two neighbours.

        left   (neighbour, layer), right   (neighbour, layer)
        """
        key = (_key(own_table), _key(left), None if right is None else _key(right))
        result = self.known.get(key)
        if result is None:
            count("eliminations")
            sums = left + own_table
            if right is not None:
                sums = sums[:, None, :] + right[None, :, :]
            best = np.argmin(sums, axis=-1)
            result = np.take_along_axis(sums, best[..., None], axis=-1)[..., 0], best
            self.known[key] = result
            self.tables += [own_table, left] if right is None else [own_table, left, right]
        return result


def _key(table: Table) -> Hashable:
    """Return a key of a table: a transposed view has that of its base, marked as such."""
    return table.shape, table.strides, table.__array_interface__["data"][0]


@final
class _Network:
    """The remaining layers, with at most one table for each pair of them."""

    def __init__(self, problem: AssignmentProblem, memo: _Eliminated) -> None:
        self.own: dict[int, Table] = dict(enumerate(problem.layers))
        self.tables: dict[int, dict[int, Table]] = {i: {} for i in self.own}
        self._sums: dict[Hashable, Table] = {}
        self._memo = memo
        for source, target, table in problem.edges:
            self._join(source, target, table)

    def _join(self, u: int, v: int, table: Table) -> None:
        """Add an edge; one that is parallel to another is added to it (edge elimination)."""
        present = self.tables[u].get(v)
        if present is not None:
            table = self._sum(present, table)
        self.tables[u][v] = table
        self.tables[v][u] = table.T

    def _sum(self, a: Table, b: Table) -> Table:
        key = (_key(a), _key(b))
        if key not in self._sums:
            self._sums[key] = a + b
            self._memo.tables += [a, b]
        return self._sums[key]

    def remove(self, layer: int) -> _Removed:
        """Eliminate a layer with at most two neighbours (node elimination)."""
        neighbours = tuple(self.tables[layer])
        own_table = self.own.pop(layer)
        if not neighbours:
            self.tables.pop(layer)
            return _Removed(layer, (), np.asarray(np.argmin(own_table)), float(np.min(own_table)))
        tables = [self.tables[n].pop(layer) for n in neighbours]
        self.tables.pop(layer)
        right = tables[1] if len(tables) == 2 else None
        cost, best = self._memo.minimum(own_table, tables[0], right)
        if right is None:
            self.own[neighbours[0]] = self._sum(self.own[neighbours[0]], cost)
        else:
            self._join(neighbours[0], neighbours[1], cost)
        return _Removed(layer, neighbours, best)

    def rest(self) -> AssignmentProblem:
        """Return the remaining problem, its layers renumbered in the order of `own`."""
        number = {layer: i for i, layer in enumerate(self.own)}
        edges = [
            (number[u], number[v], table)
            for u, row in self.tables.items()
            for v, table in row.items()
            if number[u] < number[v]
        ]
        return AssignmentProblem(list(self.own.values()), edges)


def best_assignment(problem: AssignmentProblem) -> Assignment:
    """Return the cheapest assignment, or a good one with a lower bound."""
    network = _Network(problem, _Eliminated())
    removed: list[_Removed] = []
    waiting = list(network.own)[::-1]
    while waiting:
        layer = waiting.pop()
        if layer in network.own and len(network.tables[layer]) <= 2:
            neighbours = list(network.tables[layer])
            removed.append(network.remove(layer))
            waiting += neighbours
    chosen: dict[int, int] = {}
    bound = None
    if network.own:
        options, of_rest = relaxed_assignment(network.rest())
        chosen.update(zip(network.own, options, strict=True))
        bound = of_rest + sum(elimination.min_cost for elimination in removed)
    for elimination in reversed(removed):
        chosen[elimination.layer] = int(
            elimination.best[tuple(chosen[n] for n in elimination.neighbours)]
        )
    options = [chosen[i] for i in range(len(problem.layers))]
    cost = problem.cost(options)
    return Assignment(tuple(options), cost, cost if bound is None else bound)
