"""What the local arithmetic of a node costs, in seconds on the busiest worker."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.graph import Node
from magmath.graph.structure import is_collective
from magmath.layout import Layout
from magmath.passes.environment import Environment

THREADED = 0.75  # of their speed, if threads meet within LAPACK: more than workers who pass panels
MEETING_SECONDS = 3e-5  # of a collective kernel, for each exchange
PANEL_SECONDS = 1e-4  # of one that passes panels on, for each: what one makes others wait for


def compute_seconds(
    node: Node, inputs: Sequence[Layout], output: Layout, environment: Environment
) -> float:
    """The predicted seconds of a node computed on operands and into a result laid out like this:
    its arithmetic at the speed that pieces of this shape reach, or the bytes it touches, whichever
    takes longer (Williams et al. 2009, the roofline)."""
    share = 1
    for axis, count in enumerate(output.mesh.shape):
        used = output.dim_of(axis) is not None or output.partial[axis] is not None
        share *= count if used else 1
    shape = output.local_shape(output.mesh.workers[0])
    speed = environment.flops * node.operation.efficiency(node, shape)
    if node.operation.lapack and output.mesh.size == 1 and environment.shares_memory:
        # While it computes, the others wait and lend their threads.
        speed *= max(1.0, THREADED * environment.workers)
    exchange = exchange_seconds(node, inputs, output, environment)
    sizes = [layout.max_local_size for layout in (*inputs, output)]
    if node.operation.selects:
        sizes[0] = min(sizes[0], sizes[-1])
    touched = sum(sizes) * node.dtype.itemsize
    if node.operation.collective is not None and is_collective(node, inputs, output):
        touched += node.operation.collective.touched(node, output.mesh.size)
    local = max(node.operation.flops(node) / share / speed, touched / environment.bandwidth)
    return local + exchange


def exchange_seconds(
    node: Node, inputs: Sequence[Layout], output: Layout, environment: Environment
) -> float:
    """The predicted seconds in which the workers exchange data while they compute a node."""
    nbytes, messages = traffic(node, inputs, output)
    collective = node.operation.collective
    if collective is None or not messages:
        return 0.0
    if environment.shares_memory and collective.reads:
        steps, meeting = 1.0, MEETING_SECONDS
    elif collective.spread:
        steps, meeting = messages / output.mesh.size, MEETING_SECONDS
    else:
        steps, meeting = messages, PANEL_SECONDS
    seconds = steps * (meeting + environment.link.latency)
    if environment.shares_memory:  # read where it lies, by the arithmetic itself
        return seconds
    busiest = nbytes / output.mesh.size if collective.spread else nbytes
    return seconds + busiest / environment.link.bandwidth


def traffic(node: Node, inputs: Sequence[Layout], output: Layout) -> tuple[int, int]:
    """The bytes and messages between workers while they compute a node together."""
    if not is_collective(node, inputs, output):
        return 0, 0
    collective = node.operation.collective
    assert collective is not None
    return collective.traffic(node, output.mesh.size)


def reduction_seconds(node: Node, reduced: Layout, environment: Environment) -> float:
    """The predicted seconds of adding up everybody's contribution to a pending result, besides
    moving it: read and written once for each contributor."""
    nbytes = reduced.max_local_size * node.dtype.itemsize * (environment.workers + 1)
    return nbytes / environment.bandwidth
