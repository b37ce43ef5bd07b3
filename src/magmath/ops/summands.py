"""Explicit sums over workers: the summands of a pending sum, and sums by named algorithms.

Gradients over a divided batch are pending sums, which the planner reduces as it finds cheapest.
Strategies that prescribe the exchange make the summands explicit: `summands` returns an array
(workers, …) of which every worker stores its own part, without moving anything. The values of the
parts depend on the division; their sum does not. `sum_parts` adds such parts on all workers by
a ring or a tree of messages. `sum_signs` adds parts that were sent in one bit for each element.
"""

from __future__ import annotations

import numpy as np

from magmath.core.dtypes import DTYPES, DType, uint8
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import (
    CollectiveCall,
    CollectiveKernel,
    KernelCall,
    Node,
    NodeLayouts,
    Operation,
    Shape,
    Workspace,
    apply,
)
from magmath.graph.operation import Gradients, ShapeAndType
from magmath.layout import Layout, Mesh
from magmath.ops.index_letters import whole_letters
from magmath.ops.manipulation import reshape
from magmath.ops.shared_fields import no_flops, no_gradient
from magmath.ops.sums import broadcast_to

ALGORITHMS = ("ring", "tree")


def _summands_infer(x: Node, *, count: int) -> tuple[Shape, DType]:
    return (count, *x.shape), x.dtype


def _summands_layouts(node: Node, mesh: Mesh) -> NodeLayouts:
    pending = Layout(node.shape[1:], mesh, (None,) * (node.ndim - 1), ("sum",))
    return NodeLayouts((pending,), Layout.even(node.shape, mesh, 0))


def _summands_kernel(call: KernelCall) -> BoundCall:
    """Bind the copy of this worker's summand; the others are zero where one worker computes all."""
    out, x = call.out, call.inputs[0]

    def run() -> None:
        out[0].copy_(x)
        out[1:].zero_()

    return run


def _summands_reference(x: np.ndarray, *, count: int) -> np.ndarray:
    return np.concatenate([x[np.newaxis], np.zeros((count - 1, *x.shape), x.dtype)])


SUMMANDS = Operation(  # the summands of a pending sum, one for each worker
    name="summands",
    infer=_summands_infer,
    axes=lambda node: f"{whole_letters(node.ndim - 1)}->a{whole_letters(node.ndim - 1)}",
    reduction=None,
    vjp=no_gradient,
    kernel=_summands_kernel,
    native=None,
    reference=_summands_reference,
    flops=no_flops,
    only_layouts=_summands_layouts,
)


def _sum_parts_infer(x: Node, *, algorithm: str, messages: str) -> tuple[Shape, DType]:
    if not x.ndim:
        raise ShapeError("sum_parts: needs parts (workers, …), was given a 0-d array")
    return x.shape[1:], x.dtype


def _sum_parts_layouts(node: Node, mesh: Mesh) -> NodeLayouts:
    parts = Layout.even(node.inputs[0].shape, mesh, 0)
    return NodeLayouts((parts,), Layout.replicated_on(node.shape, mesh))


def _sum_parts_kernel(call: KernelCall) -> BoundCall:
    import torch

    out, x = call.out, call.inputs[0]
    return lambda: torch.sum(x, 0, out=out)


def _bind_sum_parts(call: CollectiveCall) -> BoundCall:
    from magmath.kernels import allreduce

    bind = {"ring": allreduce.ring, "tree": allreduce.tree}[call.attributes["algorithm"]]
    return bind(call.comm, call.out, call.inputs[0], call.attributes["messages"])


def _sum_parts_traffic(node: Node, workers: int) -> tuple[int, int]:
    """Return the bytes and messages: each of `workers` chunks, or the whole, passes 2·(workers - 1)
    links."""
    hops = 2 * (workers - 1)
    itemsize = DTYPES[node.attributes["messages"]].itemsize
    messages = hops * workers if node.attributes["algorithm"] == "ring" else hops
    return hops * node.size * itemsize, messages


def _sum_parts_vjp(node: Node, g: Node) -> Gradients:
    return (broadcast_to(g, node.inputs[0].shape),)


SUM_PARTS = Operation(  # the sum along the first axis, by a ring or a tree of messages
    name="sum_parts",
    infer=_sum_parts_infer,
    axes=lambda node: f"{whole_letters(node.ndim + 1)}->{whole_letters(node.ndim)}",
    reduction=None,
    vjp=_sum_parts_vjp,
    kernel=_sum_parts_kernel,
    native=None,
    reference=lambda x, *, algorithm, messages: np.sum(x, 0, dtype=x.dtype),
    flops=lambda node: float(node.inputs[0].size),
    collective=CollectiveKernel(
        layouts=_sum_parts_layouts,
        kernel=_bind_sum_parts,
        workspace=lambda node, workers: Workspace(0),
        traffic=_sum_parts_traffic,
        is_all_to_all=True,
    ),
    only_layouts=_sum_parts_layouts,
)


def _sum_signs_infer(signs: Node, positive: Node, negative: Node, *, count: int) -> ShapeAndType:
    if signs.ndim != 2 or signs.dtype is not uint8 or 8 * signs.shape[1] < count:
        raise ShapeError(
            f"sum_signs: needs bits (parts, ⌈{count} / 8⌉) in uint8, was given {signs.shape} in "
            f"{signs.dtype}"
        )
    for x in (positive, negative):
        if x.shape != (signs.shape[0], 1):
            raise ShapeError(f"sum_signs: needs values {(signs.shape[0], 1)}, was given {x.shape}")
    return (count,), positive.dtype


def _sum_signs_kernel(call: KernelCall) -> BoundCall:
    import torch

    out, (signs, positive, negative) = call.out, call.inputs
    shifts = torch.arange(7, -1, -1, device=out.device, dtype=torch.uint8)

    def run() -> None:
        out.zero_()
        for octets, high, low in zip(signs, positive, negative, strict=True):
            bits = octets.unsqueeze(1).bitwise_right_shift(shifts).bitwise_and_(1)
            out.add_(torch.where(bits.view(-1)[: out.numel()].bool(), high, low))

    return run


def _sum_signs_reference(
    signs: np.ndarray, positive: np.ndarray, negative: np.ndarray, *, count: int
) -> np.ndarray:
    bits = np.unpackbits(signs, axis=1, count=count)
    return np.asarray(np.where(bits, positive, negative).sum(0, dtype=positive.dtype))


SUM_SIGNS = Operation(  # the sum of parts (workers, n) that are given by their packed signs
    name="sum_signs",
    infer=_sum_signs_infer,
    axes=lambda node: "..,..,..->.",
    reduction=None,
    vjp=no_gradient,
    kernel=_sum_signs_kernel,
    native=None,
    reference=_sum_signs_reference,
    flops=lambda node: 8.0 * node.inputs[0].size,
)


def summands(x: Node, workers: int) -> Node:
    """Return arrays (workers, …) whose sum is x: the summands that the workers store."""
    if workers == 1:
        return reshape(x, (1, *x.shape))
    return apply(SUMMANDS, x, count=workers)


def sum_parts(x: Node, algorithm: str, messages: DType) -> Node:
    """Return the sum of parts (workers, …), which the workers exchange in messages of a type.

    `algorithm`: "ring" or "tree".
    """
    return apply(SUM_PARTS, x, algorithm=algorithm, messages=messages.name)


def sum_signs(signs: Node, positive: Node, negative: Node, count: int) -> Node:
    """Return the sum (count,) of parts whose elements are one of two values each.

    signs      bits (parts, ⌈count / 8⌉), packed in uint8: 1 for the first value
    positive   the first value of each part, (parts, 1); `negative`: the second value
    """
    return apply(SUM_SIGNS, signs, positive, negative, count=count)


OPERATIONS = {record.name: record for record in (SUMMANDS, SUM_PARTS, SUM_SIGNS)}
