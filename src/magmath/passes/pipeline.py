"""The pipeline of passes, from a user's graph to a planned one.

A rewrite maps a graph to a graph; an analysis describes a graph. `PASSES` lists both, in order. If
the planned program needs more memory than there is, `reduce_memory` computes some of its values a
second time, and repeats the analyses of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from magmath.core.optional_passes import OPTIONAL_PASSES
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
    """A planned graph: every node has a layout, a position in the schedule, and a buffer.

    `orders` has the memory orders of the nodes that are not stored row-major.
    `originals` maps the second computation of a value to the first one (`reduce_memory`).
    """

    graph: Graph
    schedule: ExecutionOrder
    buffers: BufferAssignment
    orders: Mapping[Node, MemoryOrder]
    originals: Mapping[Node, Node] = field(default_factory=dict)


Rewrite = Callable[[Graph, Environment], Graph]


def _fold_epilogues(graph: Graph, environment: Environment) -> Graph:
    bias, sums = environment.fold_bias != SEPARATE, not environment.deterministic
    return fold_epilogues(graph, bias=bias, sums=sums)


@final
class Pass(NamedTuple):
    """The name of a pass, which is that of its function, and what it does."""

    name: str
    summary: str

    @property
    def switch(self) -> str:
        """The name by which `MAGMATH_DEBUG=without=…` omits the pass, if it is optional."""
        return self.name.replace("_", "-")

    @property
    def is_optional(self) -> bool:
        """True if programs are right without the pass, and a switch omits it."""
        return self.switch in OPTIONAL_PASSES


REWRITES: Mapping[str, Sequence[tuple[Pass, Rewrite]]] = {
    "simplify": (
        (Pass("simplify", "merges equal nodes and applies algebraic identities"),
         lambda graph, environment: simplify(graph, environment.without)),
        (Pass("join_sums", "joins sums over the same elements, so that they are read once"),
         lambda graph, environment: join_sums(graph)),
        (Pass("share_margins", "makes rolls of one array views of one copy with margins"),
         share_margins),
    ),
    "place": (
        (Pass("place", "chooses the layout of every node and inserts redistributions"), place),
        (Pass("share_halos", "makes slices across borders of workers views of a copy with halos"),
         share_halos),
    ),
    "fold": (
        (Pass("fold_epilogues", "folds bias, residual, activation and update into products"),
         _fold_epilogues),
        (Pass("merge_equal", "merges equal nodes that fold_epilogues has made"),
         lambda graph, environment: merge_equal(graph)),
        (Pass("fold_bias", "computes a product and its bias from one matrix, where that is faster"),
         fold_bias),
        (Pass("reduce_in_blocks", "computes operands that are too large to store block by block"),
         reduce_in_blocks),
    ),
}  # fmt: skip
"""The rewrites, in the stages that `magmath bench plan` measures."""

ANALYSES = (
    Pass("schedule", "orders the nodes"),
    Pass("assign_buffers", "finds nodes that can share memory"),
    Pass("assign_memory_orders", "chooses the order of dimensions in memory"),
)

PASSES = (*[row for rows in REWRITES.values() for row, _ in rows], *ANALYSES)
"""All passes of `run`, in order."""


def run(graph: Graph, environment: Environment, changing: Collection[Node] = ()) -> PlannedGraph:
    """Return the planned graph, by the passes of `PASSES`; `reduce_memory` may change it later.

    `changing`: leaves that change between the steps of a run, in addition to the targets.
    """
    for name, rewrites in REWRITES.items():
        with stage(name):
            for row, rewrite in rewrites:
                if row.switch not in environment.without:
                    graph = rewrite(graph, environment)
    with stage("schedule"):
        several = environment.workers > 1 and not environment.shares_memory
        order = schedule(graph, environment.max_moved_bytes if several else 0, changing)
    with stage("memory"):
        buffers = assign_buffers(graph, order, environment.without)
        orders = assign_memory_orders(graph, order, buffers, environment)
        return PlannedGraph(graph, order, buffers, orders)


def reduce_memory(planned: PlannedGraph, environment: Environment, excess: int) -> PlannedGraph:
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
