"""Nodes, graphs and operation records: what a user's lines become before anything is computed."""

from magmath.graph.collective import Collective, CollectiveCall, Workspace
from magmath.graph.graph import Graph, rewrite, topological, users_of
from magmath.graph.node import Node, Shape
from magmath.graph.operation import LocalCall, Operation, applied, apply
from magmath.graph.past import Past

__all__ = [
    "Collective",
    "CollectiveCall",
    "Graph",
    "LocalCall",
    "Node",
    "Operation",
    "Past",
    "Shape",
    "Workspace",
    "applied",
    "apply",
    "rewrite",
    "topological",
    "users_of",
]
