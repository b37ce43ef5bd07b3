"""The pipeline of passes, from a user's graph to a planned one.

The passes of `run`, in order; a rewrite maps a graph to a graph, an analysis describes a graph:

simplify              rewrite   merges equal nodes and applies algebraic identities
join_sums             rewrite   joins sums over the same elements
share_margins         rewrite   makes rolls of one array views of one copy with margins
place                 rewrite   chooses the layout of every node and inserts redistributions
share_halos           rewrite   makes slices across workers' borders views of one copy with halos
fold_epilogues        rewrite   folds element-wise nodes into the kernels that can apply them
merge_equal           rewrite   merges equal nodes (of `simplify`) that the folding has made
fold_bias             rewrite   computes a product and its bias from one matrix
reduce_in_blocks      rewrite   computes large operands of reductions block by block
schedule              analysis  the order in which every worker computes the nodes
assign_buffers        analysis  the nodes that share the buffer of others
assign_memory_orders  analysis  the order in which the dimensions of temporary arrays are stored

If the planned program needs more memory than there is, `rematerialized` computes some of its values
a second time (`rematerialize`), and repeats the last two analyses.

A pass is a function in a module of its name; `simplify.py` has two. `core/optional_passes.py` names
those that can be omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from magmath.core.optional_passes import (
    FOLD_EPILOGUES,
    JOIN_SUMS,
    MERGE_EQUAL,
    REDUCE_IN_BLOCKS,
    SHARE_HALOS,
    SHARE_MARGINS,
)
from magmath.core.stage_times import stage
from magmath.graph import Graph, Node
from magmath.graph.operation import MemoryOrder
from magmath.passes.assign_buffers import BufferAssignment, assign_buffers
from magmath.passes.assign_memory_orders import assign_memory_orders
from magmath.passes.environment import Environment
from magmath.passes.fold_bias import SEPARATE, fold_bias
from magmath.passes.fold_epilogues import fold_epilogues
from magmath.passes.join_sums import join_sums
from magmath.passes.place import place
from magmath.passes.reduce_in_blocks import reduce_in_blocks
from magmath.passes.rematerialize import rematerialize
from magmath.passes.schedule import ExecutionOrder, schedule
from magmath.passes.share_halos import share_halos
from magmath.passes.share_margins import share_margins
from magmath.passes.simplify import merge_equal, simplify


@final
@dataclass(frozen=True)
class PlannedGraph:
    """A planned graph: every node has a layout, a position in the schedule, buffers, and there a
    memory order (row-major if it is not in `orders`).

    `originals` maps the second computation of a value to the first one (`rematerialized`).
    """

    graph: Graph
    schedule: ExecutionOrder
    buffers: BufferAssignment
    orders: Mapping[Node, MemoryOrder]
    originals: Mapping[Node, Node] = field(default_factory=dict)


Rewrite = Callable[[Graph, Environment], Graph]


def _fold_epilogues(graph: Graph, environment: Environment) -> Graph:
    return fold_epilogues(graph, bias=environment.fold_bias != SEPARATE)


REWRITES: Mapping[str, Sequence[tuple[str, Rewrite]]] = {
    "simplify": (
        ("simplify", lambda graph, environment: simplify(graph, environment.without)),
        (JOIN_SUMS, lambda graph, environment: join_sums(graph)),
        (SHARE_MARGINS, share_margins),
    ),
    "place": (("place", place), (SHARE_HALOS, share_halos)),
    "fold": (
        (FOLD_EPILOGUES, _fold_epilogues),
        (MERGE_EQUAL, lambda graph, environment: merge_equal(graph)),
        ("fold_bias", fold_bias),
        (REDUCE_IN_BLOCKS, reduce_in_blocks),
    ),
}
"""The rewrites by name, in the stages that `magmath bench plan` measures."""


def run(graph: Graph, environment: Environment, changing: Collection[Node] = ()) -> PlannedGraph:
    """Return the planned graph, by the passes listed above; `rematerialized` may change it later.

    `changing`: leaves that change between the steps of a run, in addition to the targets.
    """
    for name, rewrites in REWRITES.items():
        with stage(name):
            for switch, rewrite in rewrites:
                if switch not in environment.without:
                    graph = rewrite(graph, environment)
    with stage("schedule"):
        several = environment.workers > 1 and not environment.shares_memory
        order = schedule(graph, environment.workspace if several else 0, changing)
    with stage("memory"):
        buffers = assign_buffers(graph, order, environment.without)
        orders = assign_memory_orders(graph, order, buffers, environment)
        return PlannedGraph(graph, order, buffers, orders)


def rematerialized(planned: PlannedGraph, environment: Environment, excess: int) -> PlannedGraph:
    """Return the plan with second computations instead of stored values, so that its temporaries
    need at least `excess` bytes less, or as few as the pass can reach."""
    with stage("memory"):
        graph, order, buffers = planned.graph, planned.schedule, planned.buffers
        rematerialization = rematerialize(graph, order, buffers, environment, excess)
        buffers = assign_buffers(
            rematerialization.graph, rematerialization.schedule, environment.without
        )
        orders = assign_memory_orders(
            rematerialization.graph,
            rematerialization.schedule,
            buffers,
            environment,
            rematerialization.originals,
        )
        return PlannedGraph(
            rematerialization.graph,
            rematerialization.schedule,
            buffers,
            orders,
            rematerialization.originals,
        )
