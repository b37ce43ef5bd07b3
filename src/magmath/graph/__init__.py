"""Nodes, graphs and operation records: the representation of a user's expressions before they are
computed."""

from magmath.graph.distributed import DistributedCall, DistributedKernel, Workspace
from magmath.graph.graph import Graph, rewrite, topological, users_of
from magmath.graph.node import Node, Shape
from magmath.graph.operation import KernelCall, Operation, applied, apply
from magmath.graph.provenance import (
    Operand,
    Provenance,
    Recipe,
    WeakResult,
    operand,
    recipe_of,
)

__all__ = [
    "DistributedCall",
    "DistributedKernel",
    "Graph",
    "KernelCall",
    "Node",
    "Operand",
    "Operation",
    "Provenance",
    "Recipe",
    "Shape",
    "WeakResult",
    "Workspace",
    "applied",
    "apply",
    "operand",
    "recipe_of",
    "rewrite",
    "topological",
    "users_of",
]
