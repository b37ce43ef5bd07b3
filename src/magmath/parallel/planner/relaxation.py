"""The relaxation of an assignment problem that elimination cannot finish: a linear program.

Each layer has a weight for each option, and each edge one for each pair of options, whose sums over
either side are the weights of the layers (the local polytope; Wainwright and Jordan 2008, section
4). The optimum of the program, solved by HiGHS, is a lower bound; the assignment comes from
rounding its weights, improved layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magmath.errors import MagmathError

Table = np.ndarray
Edges = Sequence[tuple[int, int, Table]]


def relaxed_assignment(layers: Sequence[Table], edges: Edges) -> tuple[list[int], float]:
    """Return an option for each layer, and a lower bound of the cost of all assignments."""
    weights, bound = _solved(layers, edges)
    starts = [[int(np.argmax(w)) for w in weights], [int(np.argmin(own)) for own in layers]]
    assignments = [_improved(start, layers, edges) for start in starts]
    best = min(assignments, key=lambda options: _cost(options, layers, edges))
    return best, bound


def _cost(options: Sequence[int], layers: Sequence[Table], edges: Edges) -> float:
    own = sum(float(table[o]) for table, o in zip(layers, options, strict=True))
    return own + sum(float(t[options[u], options[v]]) for u, v, t in edges)


def _solved(layers: Sequence[Table], edges: Edges) -> tuple[list[Table], float]:
    """Return the weights of the options of each layer in the optimum, and its cost."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    sizes = [len(own) for own in layers]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    total = int(starts[-1])
    scale = max(float(np.max(own)) for own in layers) or 1.0
    costs = [own / scale for own in layers]
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    right: list[float] = []

    def equation(terms: Sequence[tuple[int, float]], value: float) -> None:
        rows.extend([len(right)] * len(terms))
        columns.extend([column for column, _ in terms])
        values.extend([factor for _, factor in terms])
        right.append(value)

    for i, n in enumerate(sizes):
        equation([(int(starts[i]) + o, 1.0) for o in range(n)], 1.0)
    first = total
    for u, v, table in edges:
        n, m = table.shape
        costs.append(table.ravel() / scale)
        for a in range(n):
            pairs = [(first + a * m + b, 1.0) for b in range(m)]
            equation([*pairs, (int(starts[u]) + a, -1.0)], 0.0)
        for b in range(m):
            pairs = [(first + a * m + b, 1.0) for a in range(n)]
            equation([*pairs, (int(starts[v]) + b, -1.0)], 0.0)
        first += n * m
    matrix = csr_matrix((values, (rows, columns)), shape=(len(right), first))
    solution = linprog(
        np.concatenate(costs), A_eq=matrix, b_eq=right, bounds=(0, None), method="highs"
    )
    if solution.x is None:
        raise MagmathError(f"plan: the linear program has no solution: {solution.message}")
    weights = [solution.x[starts[i] : starts[i + 1]] for i in range(len(sizes))]
    return weights, float(solution.fun) * scale


def _improved(start: list[int], layers: Sequence[Table], edges: Edges) -> list[int]:
    """Return the options after changing single layers, and pairs of neighbours, as long as that
    lowers the cost."""
    options, cost = list(start), _cost(start, layers, edges)
    while True:
        for u, v, _ in edges:
            _improve_pair(options, u, v, layers, edges)
        for i in range(len(layers)):
            options[i] = int(np.argmin(_conditional(options, i, layers, edges)))
        lower = _cost(options, layers, edges)
        if lower >= cost - 1e-12 * abs(cost):
            return options
        cost = lower


def _conditional(
    options: Sequence[int], i: int, layers: Sequence[Table], edges: Edges, without: int = -1
) -> Table:
    """Return the cost of each option of a layer, given the options of its neighbours."""
    cost = layers[i].copy()
    for u, v, table in edges:
        if u == i and v != without:
            cost += table[:, options[v]]
        elif v == i and u != without:
            cost += table[options[u]]
    return cost


def _improve_pair(
    options: list[int], u: int, v: int, layers: Sequence[Table], edges: Edges
) -> None:
    joint = (
        _conditional(options, u, layers, edges, without=v)[:, None]
        + _conditional(options, v, layers, edges, without=u)[None, :]
    )
    for a, b, table in edges:
        if (a, b) == (u, v):
            joint = joint + table
        elif (a, b) == (v, u):
            joint = joint + table.T
    options[u], options[v] = (int(i) for i in np.unravel_index(np.argmin(joint), joint.shape))
