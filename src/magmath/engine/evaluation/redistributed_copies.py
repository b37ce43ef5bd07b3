"""Redistributed copies: arrays in other layouts, made by a program of their own and cached."""

from __future__ import annotations

from typing import final

from magmath.engine.evaluation.result_provenance import record_provenance
from magmath.engine.lifetimes.redistribution_cache import NeededCopies, RedistributionCache
from magmath.engine.programs.pending_graph import pending_graph
from magmath.engine.programs.program_runs import ProgramRuns
from magmath.engine.programs.program_table import ProgramTable
from magmath.engine.remote_array import leaf_of, remote_array_of
from magmath.graph import Graph, Node
from magmath.graph.placed_nodes import layout_of
from magmath.ops.redistribute import REDISTRIBUTE, redistribute


@final
class RedistributedCopies:
    """Finds the copies that graphs need, and makes those that are missing."""

    def __init__(
        self, programs: ProgramTable, runs: ProgramRuns, cache: RedistributionCache
    ) -> None:
        self._programs = programs
        self._runs = runs
        self._cache = cache
        self._needed = NeededCopies()

    def substituted_in(self, graph: Graph, *, make: bool) -> Graph:
        """Return the graph with redistributed copies in place of arrays that it only redistributes.

        Uses cached copies; with `make`, also makes missing copies and caches them.
        """
        if self._programs.environment.workers == 1:
            return graph
        new: dict[Node, Node] = {}
        for position, layout in self._needed.of(graph, self._programs.environment):
            leaf = graph.leaves[position]
            if leaf in graph.targets:
                continue
            if make:
                new[leaf] = self.leaf(redistribute(leaf, layout))
            elif (copy := self._cache.find(remote_array_of(leaf), layout)) is not None:
                new[leaf] = leaf_of(copy)
        return graph.substituted(new) if new else graph

    def leaf(self, node: Node, *, concurrent: bool = False) -> Node:
        """Return the leaf of a copy of an array in another layout: a cached copy or a new one.

        With `concurrent`, the workers make a new copy concurrently with their next commands.
        """
        source, layout = remote_array_of(node.inputs[0]), layout_of(node)
        copy = self._cache.find(source, layout)
        if copy is None:
            graph = pending_graph(Graph((node,)))
            compiled = self._programs.program_of(graph)
            (copy,), _ = self._runs.run(compiled, graph.leaves, concurrent=concurrent)
            if self._programs.environment.workers > 1:
                self._cache.keep(source, layout, copy, self._runs.pool.array_bytes)
        leaf = leaf_of(copy)
        record_provenance({node: leaf}, [*node.inputs, node], ())
        return leaf


def is_redistribution_of_value(node: Node) -> bool:
    """Return True for the redistribution of an evaluated array, which is pending."""
    if node.operation is not REDISTRIBUTE or node.value is not None:
        return False
    source = node.inputs[0]
    return source.name == "input" or (not source.is_leaf and source.value is not None)
