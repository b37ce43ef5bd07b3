"""Lookup of the program of an expression by its structure, without building the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final
from weakref import ref

from magmath.engine.programs.program_build import CompiledProgram
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.graph import Graph, Node

if TYPE_CHECKING:
    from magmath.core.type_aliases import Number


@final
class ExpressionProgram:
    """A weak reference to a program, and the positions of its operands among the leaves of an
    expression.

    graph    the graph of the first such expression
    leaves   its leaves in the order of `structure_of`
    """

    __slots__ = ("_inputs", "_scalars", "compiled")

    def __init__(self, compiled: CompiledProgram, graph: Graph, leaves: Sequence[Node]) -> None:
        position = {leaf: i for i, leaf in enumerate(leaves)}
        graph_leaves = graph.leaves
        self.compiled = ref(compiled)
        self._inputs = [position[graph_leaves[i]] for i in compiled.inputs]
        self._scalars = [position[graph_leaves[i]] for i in compiled.scalars]

    def operands(self, leaves: Sequence[Node]) -> tuple[list[RemoteArray], list[Number]]:
        """Return the program's input arrays and scalars, given an expression's leaves."""
        arrays = [remote_array_of(leaves[i]) for i in self._inputs]
        return arrays, [leaves[i].value for i in self._scalars]
