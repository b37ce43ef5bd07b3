"""Assignment problems: one option for each layer, whose cost is a sum of tables.

`elimination.py` solves them, and `relaxation.py` what elimination leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

Table = np.ndarray


@final
@dataclass
class AssignmentProblem:
    """The tables of an assignment problem.

    layers   seconds for each option of each layer
    edges    (source, target, seconds for each pair of options)
    """

    layers: Sequence[Table]
    edges: Sequence[tuple[int, int, Table]]

    def cost(self, assignment: Sequence[int]) -> float:
        """Return the cost of an assignment of options to layers."""
        layer_cost = sum(float(table[o]) for table, o in zip(self.layers, assignment, strict=True))
        return layer_cost + sum(float(t[assignment[u], assignment[v]]) for u, v, t in self.edges)


@final
@dataclass(frozen=True)
class Assignment:
    """The option of each layer, the cost, and a lower bound of all costs, which is the cost if
    elimination has left no layer to the relaxation."""

    options: tuple[int, ...]
    cost: float
    bound: float
