"""The cost of a placed node: its predicted seconds, and the traffic between workers."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.cost import redistribution_seconds
from magmath.cost.roofline import compute_seconds, local_work, traffic
from magmath.graph import Node
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout, plan_redistribution
from magmath.passes.aliasing import is_materialized
from magmath.passes.environment import Environment


def node_seconds(node: Node, environment: Environment) -> float:
    """Return the predicted seconds of one node of a placed graph on the slowest worker."""
    layout = layout_of(node)
    if node.is_leaf:
        return 0.0
    inputs = [layout_of(source) for source in node.inputs]
    if node.name == "redistribute":
        stored = is_materialized(node.inputs[0])
        return copy_seconds(inputs[0], layout, node.dtype.itemsize, stored, environment)
    return call_seconds(node, inputs, layout, environment)


def call_seconds(
    node: Node, inputs: Sequence[Layout], layout: Layout, environment: Environment
) -> float:
    """Return the predicted seconds of a node with operands and result in these layouts."""
    if node.name == "constant":
        return 0.0
    return environment.machine.call_seconds + compute_seconds(node, inputs, layout, environment)


def copy_seconds(
    have: Layout, want: Layout, itemsize: int, is_stored: bool, environment: Environment
) -> float:
    """Return the predicted seconds of a redistribution; `is_stored`: its operand is in memory
    before anything is computed, so a copy that all workers share cannot be computed in place."""
    seconds = redistribution_seconds(plan_redistribution(have, want), itemsize, environment.link)
    if want.shared and not have.shared and is_stored:
        seconds += have.max_local_size * itemsize / environment.bandwidth
    return seconds


def node_traffic(node: Node) -> tuple[int, int]:
    """Return the bytes and messages between workers during the computation of a placed node."""
    return traffic(node, [layout_of(x) for x in node.inputs], layout_of(node))


def node_work(node: Node) -> tuple[float, float]:
    """Return the arithmetic operations of the busiest worker for a placed node, and the bytes that
    it touches in its own memory."""
    return local_work(node, [layout_of(x) for x in node.inputs], layout_of(node))
