"""The cost of a placed node: its predicted seconds, and the traffic between workers."""

from __future__ import annotations

from magmath.cost import redistribution_seconds
from magmath.cost.roofline import compute_seconds, traffic
from magmath.graph import Node
from magmath.layout import plan
from magmath.passes.aliasing import is_materialised
from magmath.passes.environment import Environment


def node_seconds(node: Node, environment: Environment) -> float:
    """Return the predicted seconds of one node of a placed graph on the slowest worker."""
    layout = node.layout
    assert layout is not None
    if node.is_leaf or node.name == "constant":
        return 0.0
    if node.name == "redistribute":
        (source,) = node.inputs
        assert source.layout is not None
        itemsize = node.dtype.itemsize
        seconds = redistribution_seconds(plan(source.layout, layout), itemsize, environment.link)
        if layout.shared and not source.layout.shared and is_materialised(source):
            seconds += source.layout.max_local_size * itemsize / environment.bandwidth
        return seconds
    inputs = [source.layout for source in node.inputs if source.layout is not None]
    return environment.machine.call_seconds + compute_seconds(node, inputs, layout, environment)


def node_traffic(node: Node) -> tuple[int, int]:
    """Return the bytes and messages between workers during the computation of a placed node."""
    assert node.layout is not None
    return traffic(node, [x.layout for x in node.inputs if x.layout is not None], node.layout)
