"""The search for a plan: all meshes, a memory limit, and a simulation of the best few.

The sum of tables does not see that a gradient exchange proceeds while earlier layers compute. The
search therefore minimizes it for each mesh with several shares of the gradient exchange hidden, and
simulates the best candidates of each share event by event. The fastest one is the plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from magmath.errors import MemoryLimitError
from magmath.parallel.planner.assignment import AssignmentProblem
from magmath.parallel.planner.costs import CostModel, CostTables
from magmath.parallel.planner.elimination import best_assignment
from magmath.parallel.planner.layer_graph import BATCH, Layer, LayerGraph
from magmath.parallel.planner.layer_options import (
    OUTPUT,
    REPLICATED,
    Option,
    PlannerMesh,
    meshes,
)
from magmath.parallel.planner.step_program import step_program, tasks
from magmath.parallel.simulator.events import Timeline, simulate

HIDDEN: Final = (0.0, 0.5, 0.9)
"""Assumed shares of the gradient exchange that backward computation hides."""
SIMULATED: Final = 4
"""Candidates of each share that are simulated."""
FIXED_STRATEGIES: Final = {"data": BATCH, "model": OUTPUT, "hybrid": "hybrid"}
"""Fixed strategies that every plan is compared with."""
_ROUNDS: Final = 30
"""Bisections of the price of memory."""


@final
@dataclass(frozen=True)
class MeshCandidate:
    """Options for all layers on a mesh.

    hidden   the assumed share of the exchange of gradients that is hidden
    seconds  the sum of the tables
    bound    a lower bound of it over all options of this mesh that fit the memory
    memory   bytes that a worker needs
    """

    tables: CostTables
    options: tuple[Option, ...]
    hidden: float
    seconds: float
    bound: float
    memory: float

    @property
    def mesh(self) -> PlannerMesh:
        """The mesh of workers."""
        return self.tables.mesh

    @property
    def gap(self) -> float:
        """The largest possible excess of `seconds` over the optimum, as a share."""
        return max(0.0, (self.seconds - self.bound) / self.seconds) if self.seconds else 0.0


def assignment_problem(
    tables: CostTables, hidden: float = 0.0, price: float = 0.0
) -> AssignmentProblem:
    """Return the assignment problem of the tables.

    hidden  share of the exchange of gradients that backward computation hides
    price   seconds for each byte of memory
    """
    known: dict[int, np.ndarray] = {}
    layer_costs = []
    for i in range(len(tables.graph.layers)):
        costs = tables.layer_tables(i)
        if id(costs) not in known:
            seconds = costs.seconds + (1.0 - hidden) * costs.gradient
            known[id(costs)] = seconds + price * costs.memory if price else seconds
        layer_costs.append(known[id(costs)])
    edges = [(u, v, tables.edge_seconds(u, v, edge)) for u, v, edge in tables.graph.edges()]
    return AssignmentProblem(layer_costs, edges)


def assignment_memory(tables: CostTables, options: Sequence[int]) -> float:
    """Return the bytes that an assignment needs on a worker."""
    return sum(float(tables.layer_tables(i).memory[o]) for i, o in enumerate(options))


def best_candidate(tables: CostTables, limit: float, hidden: float = 0.0) -> MeshCandidate | None:
    """Return the cheapest candidate of a mesh within a limit of memory, or None if none fits.

    The limit enters with a price for memory (Lagrangian relaxation), which bisection raises as far
    as necessary; the relaxed optimum is a lower bound.
    """
    problem = assignment_problem(tables, hidden)
    unlimited = best_assignment(problem)
    if assignment_memory(tables, unlimited.options) <= limit:
        return _candidate(tables, unlimited.options, problem, unlimited.bound, hidden)
    price, best = _price_that_fits(tables, limit, hidden)
    if best is None:
        return None
    bound, low = unlimited.bound, 0.0
    for _ in range(_ROUNDS):
        middle = (low + price) / 2
        tried = best_assignment(assignment_problem(tables, hidden, middle))
        bound = max(bound, tried.bound - middle * limit)
        if assignment_memory(tables, tried.options) <= limit:
            price = middle
            best = min(best, tried.options, key=problem.cost)
        else:
            low = middle
    return _candidate(tables, best, problem, bound, hidden)


def _price_that_fits(
    tables: CostTables, limit: float, hidden: float
) -> tuple[float, tuple[int, ...] | None]:
    """Return a price of memory that makes the assignment fit, and the assignment."""
    layer_tables = [tables.layer_tables(i) for i in range(len(tables.graph.layers))]
    price = sum(float(np.max(layer.seconds)) for layer in layer_tables) / max(limit, 1.0)
    for _ in range(_ROUNDS):
        tried = best_assignment(assignment_problem(tables, hidden, price))
        if assignment_memory(tables, tried.options) <= limit:
            return price, tried.options
        price *= 4
    return price, None


def _candidate(
    tables: CostTables,
    numbers: Sequence[int],
    problem: AssignmentProblem,
    bound: float,
    hidden: float,
) -> MeshCandidate:
    """Return the candidate with these numbers of options."""
    options = tuple(tables.options[i][o] for i, o in enumerate(numbers))
    memory = assignment_memory(tables, numbers)
    return MeshCandidate(tables, options, hidden, problem.cost(numbers), bound, memory)


def uniform_candidate(tables: CostTables, division: str) -> MeshCandidate:
    """Return the candidate that divides every layer alike where that is possible: pure data
    parallelism for "batch", pure model parallelism for "output", one weird trick (Krizhevsky 2014)
    for "hybrid": the samples in convolutions, the outputs in dense layers."""
    chosen = []
    for layer, options in zip(tables.graph.layers, tables.options, strict=True):
        choice = uniform_division(layer, division)
        divided = (choice,) * len(tables.mesh.shape)
        whole = (REPLICATED,) * len(tables.mesh.shape)
        chosen.append(options.index(divided if divided in options else whole))
    return _candidate(tables, chosen, assignment_problem(tables), 0.0, 0.0)


def uniform_division(layer: Layer, division: str) -> str:
    """Return the division (one of `DIVISIONS`) of a layer under a fixed strategy."""
    dense = layer.has_product and layer.columns == layer.extents.get(BATCH)
    return division if division != "hybrid" else OUTPUT if dense else BATCH


@final
@dataclass(frozen=True)
class SimulatedPlanStep:
    """A simulated training step: its seconds in the steady state, and the timeline of some steps
    of one worker that represents all."""

    seconds: float
    timeline: Timeline


def simulated_step(
    candidate: MeshCandidate,
    *,
    every_worker: bool = False,
    overlap: bool = True,
    sharded: bool = False,
    slowdown: dict[int, float] | None = None,
) -> SimulatedPlanStep:
    """Simulate training steps of a candidate; the slowest worker ends a step.

    See `step_program` and `tasks` for the options.
    """
    program = step_program(candidate.tables, candidate.options, sharded=sharded)
    simulated, ends = tasks(program, candidate.tables, every_worker=every_worker, overlap=overlap)
    levels = candidate.tables.model.machine.levels
    timeline = simulate(simulated, levels, slowdown)
    former, last = (max(timeline.spans[task].end for task in end) for end in ends[-2:])
    return SimulatedPlanStep(last - former, timeline)


@final
@dataclass(frozen=True)
class SearchResult:
    """The result of a search: the best candidate with its simulated step, the fixed strategies
    (None where one does not fit the memory), the largest gap of a mesh (None without a search), and
    the numbers of meshes and of simulated plans."""

    best: MeshCandidate
    step: SimulatedPlanStep
    strategies: Mapping[str, SimulatedPlanStep | None]
    gap: float | None
    meshes: int
    simulated: int


def search_meshes(graph: LayerGraph, model: CostModel, workers: int, limit: float) -> SearchResult:
    """Return the fastest plan over all meshes, within a limit of memory for each worker.

    Raises MemoryLimitError if no candidate fits the memory.
    """
    all_tables = [CostTables(graph, mesh, model) for mesh in meshes(workers)]
    fixed = {
        name: uniform_candidate(all_tables[0], division)
        for name, division in FIXED_STRATEGIES.items()
    }
    chosen: dict[Hashable, MeshCandidate] = {
        (candidate.mesh, candidate.options): candidate
        for candidate in fixed.values()
        if candidate.memory <= limit
    }
    gap = 0.0
    for hidden in HIDDEN:
        candidates = [best_candidate(tables, limit, hidden) for tables in all_tables]
        fitting = sorted(
            [candidate for candidate in candidates if candidate is not None],
            key=lambda candidate: candidate.seconds,
        )
        chosen |= {
            (candidate.mesh, candidate.options): candidate for candidate in fitting[:SIMULATED]
        }
        gap = max([gap, *[candidate.gap for candidate in fitting]])
    if not chosen:
        raise MemoryLimitError(
            f"plan: no division of the network over {workers} workers fits {limit / 1e9:.3g} GB a "
            f"worker; use more workers, a smaller batch, or memory=… with more bytes"
        )
    steps = {key: simulated_step(candidate) for key, candidate in chosen.items()}
    best = min(chosen, key=lambda key: steps[key].seconds)
    compared = {
        name: steps.get((candidate.mesh, candidate.options)) for name, candidate in fixed.items()
    }
    return SearchResult(chosen[best], steps[best], compared, gap, len(all_tables), len(steps))
