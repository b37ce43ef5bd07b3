"""The pipeline of passes, from a user's graph to a planned one: each pass maps a graph to a graph,
in the order of this file."""

from __future__ import annotations

from dataclasses import dataclass

from magmath.core.stage_times import stage
from magmath.graph import Graph
from magmath.passes.blocks import reduce_in_blocks
from magmath.passes.environment import Environment
from magmath.passes.fuse import fuse
from magmath.passes.place import place
from magmath.passes.schedule import ExecutionOrder, schedule
from magmath.passes.simplify import simplify
from magmath.passes.storage_sharing import Storage, assign_storage


@dataclass(frozen=True)
class Planned:
    """A planned graph: every node has a layout, a position in the order, and storage."""

    graph: Graph
    schedule: ExecutionOrder
    storage: Storage


def run(graph: Graph, environment: Environment) -> Planned:
    """Run all passes."""
    with stage("simplify"):
        graph = simplify(graph)
    with stage("place"):
        graph = place(graph, environment)
    with stage("fuse"):
        graph = fuse(graph)
        graph = reduce_in_blocks(graph, environment)
    with stage("schedule"):
        several = environment.workers > 1 and not environment.shares_memory
        order = schedule(graph, environment.workspace if several else 0)
    with stage("memory"):
        return Planned(graph, order, assign_storage(graph, order))
