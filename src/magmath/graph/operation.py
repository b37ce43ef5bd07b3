"""The operation record: everything magmath knows about one operation, in one place.

Every field is required, so that a missing rule is found at import and not in a user's run.
`axes` names each dimension by a letter, one string an operand and one for the result
(`"mk,kn->mn"`); a letter may be split over workers if every operand that has it is split alike,
a letter missing from the result is combined by `reduction`, and `.` marks a dimension that must be
whole. From it the placements are derived, one mesh axis at a time (`passes/place.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from magmath.core.dtypes import DType
from magmath.core.index import Tile
from magmath.graph.node import NO_ATTRIBUTES, Line, Node, Shape

if TYPE_CHECKING:
    import torch


class KernelContext(Protocol):
    """What a kernel may ask of the executor that binds it."""

    def gemm(
        self,
        out: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        activation: str = "none",
        alpha: torch.Tensor | None = None,
        accumulate: bool = False,
    ) -> Callable[[], object]:
        """A ready product: out = activation(a·b + bias), or out += alpha·a·b."""


@dataclass(slots=True)
class LocalCall:
    """One operation on one worker's tensors, to be bound to a ready call.

    `out` and `inputs` are local tensors (0-d CPU tensors for Python numbers); `tile` and `shape`
    say which elements of the whole array `out` holds, for operations that count elements.
    """

    out: torch.Tensor
    inputs: list[torch.Tensor]
    attributes: Mapping[str, Any]
    tile: Tile
    shape: Shape
    context: KernelContext


Inference = tuple[Shape, DType]
Infer = Callable[..., Inference]
Axes = Callable[[Node], str]
Gradients = tuple["Node | None", ...]
Vjp = Callable[[Node, Node], Gradients]
Kernel = Callable[[LocalCall], Callable[[], object]]
Native = Any  # a scalar expression such as "({0} + {1})", an emitter, or None


def full_speed(shape: Shape) -> float:
    """The efficiency of operations that do not care how their result is cut."""
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation.

    infer      (*inputs, **attributes) → (shape, dtype); raises for operands it cannot take
    axes       node → index structure, as above
    reduction  how letters that the result lacks are combined over workers, or None
    vjp        (node, cotangent) → a cotangent for each input, or None where there is none
    kernel     LocalCall → ready call, on torch tensors of any device
    native     how it is written in a native function; None: programs with it are replayed
    reference  the same on NumPy arrays: (*arrays, **attributes)
    flops      node → arithmetic operations, for the cost model
    efficiency the local result's shape → share of the full speed that such a piece reaches
    """

    name: str
    infer: Infer
    axes: Axes
    reduction: str | None
    vjp: Vjp
    kernel: Kernel
    native: Native
    reference: Callable[..., Any]
    flops: Callable[[Node], float]
    efficiency: Callable[[Shape], float] = full_speed
    elementwise: bool = False
    leaf: bool = False

    def __repr__(self) -> str:
        return f"Operation({self.name})"


def apply(
    operation: Operation,
    *inputs: Node,
    line: Line = None,
    **attributes: Any,
) -> Node:
    """A new node; infers and checks the shape and dtype of the result."""
    shape, dtype = operation.infer(*inputs, **attributes)
    if line is None and inputs:
        line = inputs[0].line
    return Node(operation, inputs, attributes or NO_ATTRIBUTES, shape, dtype, line=line)
