"""The planner: decides how each layer of a network is divided over the workers of a machine."""

from __future__ import annotations

from magmath.parallel.planner.costs import CostModel
from magmath.parallel.planner.layer_graph import Layer, LayerGraph
from magmath.parallel.planner.layer_grouping import layer_graph
from magmath.parallel.planner.layer_plan import LayerPlan
from magmath.parallel.planner.plan import Plan, measured_speed, plan, plan_graph

__all__ = [
    "CostModel",
    "Layer",
    "LayerGraph",
    "LayerPlan",
    "Plan",
    "layer_graph",
    "measured_speed",
    "plan",
    "plan_graph",
]
