"""The relaxation of an assignment problem that elimination cannot finish: a linear program.

Each layer has a weight for each option, and each edge one for each pair of options, whose sums over
either side are the weights of the layers (the local polytope; Wainwright and Jordan 2008, section
4). The optimum of the program, solved by HiGHS, is a lower bound; the assignment comes from
rounding its weights, improved layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, final

import numpy as np

from magmath.errors import OptionError
from magmath.parallel.planner.assignment import AssignmentProblem, Table


def relaxed_assignment(problem: AssignmentProblem) -> tuple[list[int], float]:
    """Return an option for each layer, and a lower bound of the cost of all assignments."""
    weights, bound = _solved(problem)
    starts = [[int(np.argmax(w)) for w in weights], [int(np.argmin(x)) for x in problem.layers]]
    assignments = [_improved(start, problem) for start in starts]
    return min(assignments, key=problem.cost), bound


@final
class _Equations:
    """Linear equations of the weights of options, as a sparse matrix and its right side."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._factors: list[float] = []
        self.right: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], value: float) -> None:
        """Add the equation of a sum of terms, each a column and its factor, with a value."""
        self._rows += [len(self.right)] * len(terms)
        self._columns += [column for column, _ in terms]
        self._factors += [factor for _, factor in terms]
        self.right.append(value)

    def matrix(self, columns: int) -> Any:
        """Return the sparse matrix of the left sides."""
        from scipy.sparse import csr_matrix

        entries = (self._factors, (self._rows, self._columns))
        return csr_matrix(entries, shape=(len(self.right), columns))


def _solved(problem: AssignmentProblem) -> tuple[list[Table], float]:
    """Return the weights of the options of each layer in the optimum, and its cost.

    The columns are the weights of the options of all layers, then those of the pairs of options of
    all edges.
    """
    from scipy.optimize import linprog

    layers = problem.layers
    starts = np.cumsum([0, *[len(layer) for layer in layers]]).tolist()
    scale = max(float(np.max(layer)) for layer in layers) or 1.0
    costs = [layer / scale for layer in layers]
    equations = _Equations()
    for start, stop in pairwise(starts):
        equations.add([(column, 1.0) for column in range(start, stop)], 1.0)
    first = starts[-1]
    for u, v, table in problem.edges:
        n, m = table.shape
        costs.append(table.ravel() / scale)
        pairs = np.arange(first, first + n * m).reshape(n, m)
        for a in range(n):
            equations.add([*[(int(p), 1.0) for p in pairs[a]], (starts[u] + a, -1.0)], 0.0)
        for b in range(m):
            equations.add([*[(int(p), 1.0) for p in pairs[:, b]], (starts[v] + b, -1.0)], 0.0)
        first += n * m
    solution = linprog(
        np.concatenate(costs), A_eq=equations.matrix(first), b_eq=equations.right,
        bounds=(0, None), method="highs",
    )  # fmt: skip
    if solution.x is None:
        raise OptionError(f"plan: the linear program has no solution: {solution.message}")
    weights = [solution.x[start:stop] for start, stop in pairwise(starts)]
    return weights, float(solution.fun) * scale


def _improved(start: list[int], problem: AssignmentProblem) -> list[int]:
    """Return the options after changing single layers, and pairs of neighbours, as long as that
    lowers the cost."""
    options, cost = list(start), problem.cost(start)
    while True:
        for u, v, _ in problem.edges:
            _improve_pair(options, u, v, problem)
        for i in range(len(problem.layers)):
            options[i] = int(np.argmin(_conditional(options, i, problem)))
        lower = problem.cost(options)
        if lower >= cost - 1e-12 * abs(cost):
            return options
        cost = lower


def _conditional(
    options: Sequence[int], i: int, problem: AssignmentProblem, without: int = -1
) -> Table:
    """Return the cost of each option of a layer, given the options of its neighbours."""
    cost = problem.layers[i].copy()
    for u, v, table in problem.edges:
        if u == i and v != without:
            cost += table[:, options[v]]
        elif v == i and u != without:
            cost += table[options[u]]
    return cost


def _improve_pair(options: list[int], u: int, v: int, problem: AssignmentProblem) -> None:
    """Change the options of two neighbours to the best pair, given all others."""
    joint = (
        _conditional(options, u, problem, without=v)[:, None]
        + _conditional(options, v, problem, without=u)[None, :]
    )
    for a, b, table in problem.edges:
        if (a, b) == (u, v):
            joint = joint + table
        elif (a, b) == (v, u):
            joint = joint + table.T
    options[u], options[v] = (int(i) for i in np.unravel_index(np.argmin(joint), joint.shape))
