"""The hoisted values of a compiled function, computed once for each state of its variables.

`passes/hoisting.py` finds them. They are kept while the function exists; the arrays from which they
are computed are compared by their content ids, which change with every assignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from magmath.core.optional_passes import HOISTING
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.ops.leaves import input_leaf
from magmath.ops.redistribute import redistribute
from magmath.passes.fold_scales import fold_scales
from magmath.passes.freeze_filters import freeze_filters
from magmath.passes.hoisting import hoisted_nodes, values_to_keep, with_leaves
from magmath.passes.simplify import simplify

if TYPE_CHECKING:
    from magmath.engine.engine import Engine


@final
@dataclass(frozen=True)
class HoistedGraph:
    """A graph without its hoisted values.

    graph            what each call computes; it reads the hoisted values as leaves
    hoisted          the source of these leaves
    content_scalars  scalars of `graph`, by which a kernel sees whether an operand has changed, and
                     the leaf of the array whose `content_id` each call passes
    """

    graph: Graph
    hoisted: HoistedValues
    content_scalars: Mapping[Node, Node]


def hoist(engine: Engine, graph: Graph, varying: Collection[Node]) -> HoistedGraph | None:
    """Return a graph without the values that do not depend on the leaves `varying`; None if there
    are none.

    A pool with a memory limit keeps no such values.
    """
    if HOISTING in engine.environment.without:
        return None
    if not hoisted_nodes(graph, varying) or engine.pool.memory_limit is not None:
        return None
    graph = fold_scales(simplify(graph, engine.environment.without), varying)
    nodes = hoisted_nodes(graph, varying)
    values = values_to_keep(graph, nodes)
    hoisted = HoistedValues(engine, values)
    remaining = with_leaves(graph, values, hoisted.leaves)
    unchanged = {leaf for leaf in graph.leaves if leaf in nodes and leaf.name != "scalar"}
    remaining, content_scalars = freeze_filters(remaining, unchanged | set(hoisted.leaves))
    if not values and not content_scalars:
        return None
    return HoistedGraph(remaining, hoisted, content_scalars)


@final
class HoistedValues:
    """Values that are computed again if the data of the leaves below them have changed."""

    def __init__(self, engine: Engine, values: Sequence[Node]) -> None:
        self._engine = engine
        self._content_ids: Sequence[int] | None = None
        self._data: Mapping[Node, RemoteArray] = {}
        self.leaves: list[Node] = []
        if not values:
            return
        self._graph = Graph(tuple([self._replicated(node) for node in values]))
        self._compiled = engine.compile(self._graph)
        leaves = self._graph.leaves
        self._read = [leaves[i] for i in self._compiled.inputs]
        self.leaves = [input_leaf(*result, None) for result in self._compiled.results]

    def _replicated(self, node: Node) -> Node:
        """Return the value in the layout of the arrays below it, if all workers store these."""
        if self._engine.environment.workers == 1:
            return node
        layouts = [x.layout for x in Graph((node,)).leaves if x.name != "scalar"]
        replicated = [layout for layout in layouts if layout is not None and layout.is_replicated]
        if not replicated or len(replicated) < len(layouts):
            return node
        mesh, shared = replicated[0].mesh, replicated[0].shared
        return redistribute(node, Layout.replicated_on(node.shape, mesh, shared=shared), node.line)

    def data(self) -> Mapping[Node, RemoteArray]:
        """Return the current data by leaf; compute them if their operands have changed."""
        if not self.leaves:
            return self._data
        operands = [remote_array_of(leaf) for leaf in self._read]
        content_ids = self._engine.runs.content_ids_of(operands)
        pool = self._engine.pool
        failed = pool.has_failures and any(pool.has_failed(x.array_id) for x in self._data.values())
        if content_ids != self._content_ids or failed:
            data, _ = self._engine.runs.run(self._compiled, self._graph.leaves)
            self._data = dict(zip(self.leaves, data, strict=True))
            self._content_ids = content_ids  # after the data: another thread may read them at once
        return self._data
