"""Operations that mark functions to recompute for their gradient (`mm.remat`).

`checkpoint` is the value of such a function, with the inputs from which it can be
recomputed; only `autodiff` reads them, and the passes replace the node by the value. The gradient
contains the function again, applied to `recompute` of its inputs: the same arrays as nodes that
equal no others, so that the second computation is not merged with the first. The recomputation
starts after the cotangent that needs it is known. In the same way a part of a batch starts after
the gradients of the part before it.
"""

from __future__ import annotations

from magmath.core.dtypes import DType
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.index_letters import LETTERS, whole_letters
from magmath.ops.kernel_binding import copy_kernel
from magmath.ops.marks import mark
from magmath.ops.shared_fields import no_flops


def _checkpoint_infer(value: Node, *inputs: Node, recomputed: int) -> tuple[Shape, DType]:
    return value.shape, value.dtype


CHECKPOINT = mark(
    "checkpoint", infer=_checkpoint_infer, reference=lambda value, *inputs, recomputed: value
)


def checkpoint(value: Node, recomputed: tuple[Node, ...], captured: tuple[Node, ...]) -> Node:
    """Mark the value of a function that is recomputed for its gradient.

    recomputed  inputs from which it is recomputed: intermediates are not kept
    captured    other inputs that have gradients, such as captured parameters
    """
    return apply(CHECKPOINT, value, *recomputed, *captured, recomputed=len(recomputed))


def _recompute_infer(x: Node, *after: Node) -> tuple[Shape, DType]:
    return x.shape, x.dtype


def _recompute_vjp(node: Node, cotangent: Node) -> Gradients:
    return cotangent, *[None] * (len(node.inputs) - 1)


RECOMPUTE = Operation(  # a view of x if the passes see the whole graph; `after` is not read
    name="recompute",
    infer=_recompute_infer,
    axes=lambda node: (
        ",".join([LETTERS[: node.ndim], *[whole_letters(x.ndim) for x in node.inputs[1:]]])
        + f"->{LETTERS[: node.ndim]}"
    ),
    reduction=None,
    vjp=_recompute_vjp,
    kernel=copy_kernel,
    native=None,
    reference=lambda x, *after: x,
    flops=no_flops,
    is_view=True,
    is_move=True,
)


def recompute(x: Node, *after: Node) -> Node:
    """Return x as an input of a computation that starts after all of `after` are known."""
    return apply(RECOMPUTE, x, *after)


OPERATIONS = {record.name: record for record in (CHECKPOINT, RECOMPUTE)}
