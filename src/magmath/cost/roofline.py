"""The roofline: predicts the seconds of the local arithmetic of a node on the busiest worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from magmath.core.dtypes import float32
from magmath.cost.link import Link
from magmath.cost.machine import Machine
from magmath.cost.operation_rate import (
    CONVOLUTIONS,
    OperationRate,
    is_counted_in_flops,
    rate_name,
)
from magmath.graph import Node
from magmath.graph.collective_nodes import is_collective
from magmath.layout import Layout, Mesh


class WorkerProperties(Protocol):
    """The properties of the workers that predictions read; `passes/environment.py` implements
    them."""

    @property
    def machine(self) -> Machine:
        """The constants of the hardware."""

    @property
    def link(self) -> Link:
        """The link between workers."""

    @property
    def workers(self) -> int:
        """The number of workers."""

    @property
    def threads(self) -> int:
        """The threads of each worker."""

    @property
    def shares_memory(self) -> bool:
        """True if workers read one another's memory."""

    @property
    def bandwidth(self) -> float:
        """Bytes of local memory per second for each worker."""


def compute_seconds(
    node: Node, inputs: Sequence[Layout], output: Layout, environment: WorkerProperties
) -> float:
    """Return the predicted seconds of a node with operands and result in these layouts.

    It is the time of its arithmetic, at the speed for tiles of this shape, or of the bytes
    that it touches, whichever is longer (Williams et al. 2009, the roofline), plus that of its
    exchanges.
    """
    exchange = exchange_seconds(node, inputs, output, environment)
    flops, touched = local_work(node, inputs, output)
    rate = _rate(node, output, environment)
    if rate is not None and not is_collective(node, inputs, output):
        min_seconds = (
            touched / environment.bandwidth if touched > environment.machine.cache else 0.0
        )
        if not (node.operation.is_elementwise or is_counted_in_flops(node.name)):
            min_seconds = max(
                min_seconds, flops / environment.machine.gemm_flops(node.dtype, environment.threads)
            )
        return max(rate.seconds(flops, touched), min_seconds) + exchange
    arithmetic = _arithmetic_seconds(node, flops, output, environment)
    return max(arithmetic, touched / environment.bandwidth) + exchange


def _rate(node: Node, output: Layout, environment: WorkerProperties) -> OperationRate | None:
    """Return the measured rate of a node's operation; None if there is none for its type."""
    machine = environment.machine
    if not machine.operations or (node.name in CONVOLUTIONS and node.dtype is not float32):
        return None
    threads = environment.threads
    if _has_threads_of_all(node, output, environment):
        threads *= environment.workers
    of_shape = machine.operation_rate(rate_name(node), threads)
    return of_shape or machine.operation_rate(node.name, threads)


def _has_threads_of_all(node: Node, output: Layout, environment: WorkerProperties) -> bool:
    """Return True for LAPACK on one worker: the others wait, and it uses their threads."""
    return node.operation.uses_lapack and output.mesh.size == 1 and environment.shares_memory


def local_work(node: Node, inputs: Sequence[Layout], output: Layout) -> tuple[float, float]:
    """Return the arithmetic operations of the busiest worker, and the bytes that it touches."""
    itemsizes = [operand.dtype.itemsize for operand in node.inputs]
    sizes = [layout.max_local_size for layout in inputs]
    result = output.max_local_size * node.dtype.itemsize
    nbytes = [size * itemsize for size, itemsize in zip(sizes, itemsizes, strict=True)]
    if node.operation.reads_subset:
        nbytes[0] = min(nbytes[0], output.max_local_size * itemsizes[0])
    touched = float(sum(nbytes) + result)
    if node.operation.collective is not None and is_collective(node, inputs, output):
        touched += node.operation.collective.touched_bytes(node, output.mesh.size)
    return node.operation.flops(node) * _busiest_share(inputs, output), touched


def _busiest_share(inputs: Sequence[Layout], output: Layout) -> float:
    """Return the share of the arithmetic that the busiest worker computes: of the elements of the
    result, and of the summed dimension that a mesh axis with a pending reduction splits."""
    share = output.max_local_size / max(output.size, 1)
    for mesh_axis, reduction in enumerate(output.partial):
        if reduction is not None:
            share *= max(_largest_pieces(inputs, output.mesh, mesh_axis), default=1.0)
    return share


def _largest_pieces(layouts: Sequence[Layout], mesh: Mesh, mesh_axis: int) -> Iterator[float]:
    """Yield the shares of the largest pieces of the dimensions that a mesh axis splits."""
    for layout in layouts:
        axis = layout.axis_of(mesh_axis) if layout.mesh.shape == mesh.shape else None
        if axis is not None:
            yield layout.max_local_shape[axis] / max(layout.shape[axis], 1)


def _arithmetic_seconds(
    node: Node, flops: float, output: Layout, environment: WorkerProperties
) -> float:
    """Return the predicted seconds of a worker's share of the arithmetic, with its operands in
    cache."""
    machine, operation = environment.machine, node.operation
    if operation.is_elementwise:
        weight = operation.flops(node) / max(node.size, 1)
        return machine.elementwise_seconds(flops / max(weight, 1.0), weight, environment.threads)
    speed = machine.gemm_flops(node.dtype, environment.threads)
    speed *= operation.efficiency(node, output.max_local_shape)
    if _has_threads_of_all(node, output, environment):
        speed *= max(1.0, machine.lapack_scaling * environment.workers)
    return flops / speed


def exchange_seconds(
    node: Node, inputs: Sequence[Layout], output: Layout, environment: WorkerProperties
) -> float:
    """Return the predicted seconds of the exchanges between workers during the computation of a
    node."""
    nbytes, messages = traffic(node, inputs, output)
    collective = node.operation.collective
    if collective is None or not messages:
        return 0.0
    machine = environment.machine
    if environment.shares_memory and collective.reads_peers:
        steps, synchronization = 1.0, machine.exchange_seconds
    elif collective.is_all_to_all:
        steps, synchronization = messages / output.mesh.size, machine.exchange_seconds
    else:
        steps, synchronization = messages, machine.panel_seconds
    link = environment.link
    latency, bandwidth = link.latency, link.bandwidth
    if link.network is not None:
        latency = link.network.latency
        bandwidth = link.network.bandwidth / link.network.workers_per_host
    seconds = steps * (synchronization + latency)
    if environment.shares_memory:  # the arithmetic itself reads the data in place
        return seconds
    busiest = nbytes / output.mesh.size if collective.is_all_to_all else nbytes
    return seconds + busiest / bandwidth


def traffic(node: Node, inputs: Sequence[Layout], output: Layout) -> tuple[int, int]:
    """Return the bytes and messages between workers during the collective computation of a node."""
    if not is_collective(node, inputs, output):
        return 0, 0
    collective = node.operation.collective
    assert collective is not None
    return collective.traffic(node, output.mesh.size)


def reduction_seconds(node: Node, reduced: Layout, environment: WorkerProperties) -> float:
    """Return the predicted seconds of combining all contributions to a pending result, without
    moving them: each contribution is read and written once."""
    nbytes = reduced.max_local_size * node.dtype.itemsize * (environment.workers + 1)
    return nbytes / environment.bandwidth
