"""Tables of the candidates for the computation of a product or a factorization, with their costs.

`explain` shows a table for each of these operations in a graph, so that users can judge the choice
of layouts.
"""

from __future__ import annotations

from magmath.graph import Graph
from magmath.passes.candidate_cost import CandidateCost, NodeCosts
from magmath.passes.candidates import algorithm
from magmath.passes.environment import Environment
from magmath.passes.place import NodeCandidates, node_candidates
from magmath.passes.simplify import simplify

SHOWN = 8  # candidates per table; the others cost more
HEADER = ("", "algorithm", "operands", "result", "seconds", "bytes moved", "messages", "memory")


def describe_candidates(graph: Graph, environment: Environment) -> str:
    """Return a table for each contraction and factorization of a graph whose leaves have layouts.

    Returns an empty text for one worker, which has no choice.
    """
    if environment.workers == 1:
        return ""
    ranked = node_candidates(simplify(graph), environment)
    return "\n".join([_table(candidates) for candidates in ranked])


def _table(candidates: NodeCandidates) -> str:
    costs, ranked = candidates.costs, candidates.ranked
    node = costs.node
    operands = " @ ".join([str(list(x.shape)) for x in node.inputs])
    line = "" if node.line is None else f"  # {node.line[0]}:{node.line[1]}"
    chosen = candidates.panels > 0
    rows = [HEADER, *[_row(costs, x, chosen and i == 0) for i, x in enumerate(ranked[:SHOWN])]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    panels = f", summed in {candidates.panels} panels" if candidates.panels > 1 else ""
    panels = panels if chosen else ", computed by other operations instead"
    count = f"{len(ranked)} candidate" + "s" * (len(ranked) != 1)
    lines = [f"{node.name} {operands} {node.dtype}: {count}{panels}{line}"]
    for row in rows:
        cells = [
            cell.rjust(width) if i > 3 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _row(costs: NodeCosts, cost: CandidateCost, chosen: bool) -> tuple[str, ...]:
    candidate = cost.candidate
    moved, messages = costs.traffic(candidate)
    return (
        "*" if chosen else "",
        algorithm(costs.node, candidate),
        " ".join([layout.text() for layout in candidate.inputs]),
        candidate.output.text(),
        f"{cost.seconds:.2g}",
        f"{moved:,}",
        f"{messages:,}",
        f"{costs.worker_bytes(candidate):,}",
    )
