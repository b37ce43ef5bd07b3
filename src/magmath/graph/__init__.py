"""Nodes, graphs and definitions of operations: the representation of a user's expressions before
they are computed."""

from magmath.core.shapes import Shape
from magmath.graph.application import apply, apply_to
from magmath.graph.evaluation_state import (
    add_user_array,
    read_leaves,
    set_value,
    update_depth,
    user_arrays,
)
from magmath.graph.graph import Graph, rewrite, topological, users_of
from magmath.graph.kernel_call import CollectiveCall, KernelCall, Workspace
from magmath.graph.node_collection import collecting_new_nodes
from magmath.graph.node_layouts import NodeLayouts
from magmath.graph.operation import (
    CollectiveKernel,
    Node,
    Operation,
    WeakResult,
    make_node,
)
from magmath.graph.provenance.expression_recipes import recipe_of, recipe_of_nodes
from magmath.graph.provenance.operand_references import (
    OperandReference,
    set_provenance,
    weak_reference_to,
)
from magmath.graph.provenance.provenance import Provenance, provenance_of
from magmath.graph.provenance.recipe import Recipe
from magmath.graph.structure import structure_of

__all__ = [
    "CollectiveCall",
    "CollectiveKernel",
    "Graph",
    "KernelCall",
    "Node",
    "NodeLayouts",
    "OperandReference",
    "Operation",
    "Provenance",
    "Recipe",
    "Shape",
    "WeakResult",
    "Workspace",
    "add_user_array",
    "apply",
    "apply_to",
    "collecting_new_nodes",
    "make_node",
    "provenance_of",
    "read_leaves",
    "recipe_of",
    "recipe_of_nodes",
    "rewrite",
    "set_provenance",
    "set_value",
    "structure_of",
    "topological",
    "update_depth",
    "user_arrays",
    "users_of",
    "weak_reference_to",
]
