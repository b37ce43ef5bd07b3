"""The parts of normalization: an affine map about a mean, and sums about a mean.

With means m, factors a and shifts b of each channel, `affine` is y = (x - m)·a + b: one pass over
memory, and for one channel dimension one call of torch's vectorized kernel. Its gradients need
Σ g·(x - m), which `centred_dot` computes without an intermediate array; `centred_squares` is
Σ (x - m)², from which the variance follows, and has the gradient of a sum about the mean. Sums over
a dimension that is divided over workers are pending, so a batch is normalized as a whole however it
is divided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import AxisNumbers, reduced_shape
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, any_memory_order
from magmath.ops.elementwise import add, multiply, negative, subtract
from magmath.ops.index_letters import LETTERS, letters_except, pointwise_axes
from magmath.ops.leaves import constant
from magmath.ops.shared_fields import is_always_exact
from magmath.ops.sums import sum_, sum_to
from magmath.ops.type_rules import pointwise_infer, require_kind

if TYPE_CHECKING:
    import torch

BLOCK_BYTES = 1 << 20

# index notation and gradients ---------------------------------------------------------------------


def _summed_axes(x: Node, m: Node) -> AxisNumbers | None:
    """Return the dimensions over which m is constant; None if m has fewer dimensions than x."""
    if m.ndim != x.ndim:
        return None
    return tuple([d for d in range(x.ndim) if m.shape[d] == 1])


def _affine_vjp(node: Node, g: Node) -> Gradients:
    x, m, a, b = node.inputs
    axis, by_x = _summed_axes(x, m), multiply(g, a)
    if axis is not None and x.shape == node.shape and a.shape == m.shape:
        total = sum_(g, axis, True)  # a is constant over the axis: no sum of g·a
        factor = apply(CENTRED_DOT, g, x, m, axis=axis)
        by_b = total if b.shape == m.shape else sum_to(total, b.shape)
        return by_x, negative(multiply(total, a)), factor, by_b
    factor = sum_to(multiply(g, subtract(x, m)), a.shape)
    return sum_to(by_x, x.shape), negative(sum_to(by_x, m.shape)), factor, sum_to(g, b.shape)


def _sums_infer(name: str, x: Node, m: Node, axis: AxisNumbers) -> tuple[Shape, DType]:
    require_kind(name, "real floating", x.dtype)
    needed = reduced_shape(x.shape, axis, True)
    if m.shape != needed:
        raise ShapeError(f"{name}: needs means of shape {needed}, was given {m.shape}")
    if m.dtype is not x.dtype:
        raise DTypeError(f"{name}: operands have types {x.dtype} and {m.dtype}")
    return needed, x.dtype


def _dot_infer(g: Node, x: Node, m: Node, *, axis: AxisNumbers) -> tuple[Shape, DType]:
    if g.shape != x.shape or g.dtype is not x.dtype:
        raise ShapeError(
            f"centred_dot: operands of shapes {g.shape} and {x.shape} and types {g.dtype} and "
            f"{x.dtype} do not fit"
        )
    return _sums_infer("centred_dot", x, m, axis)


def _squares_infer(x: Node, m: Node, *, axis: AxisNumbers) -> tuple[Shape, DType]:
    return _sums_infer("centred_squares", x, m, axis)


def _sums_axes(node: Node) -> str:
    letters, kept_letters = LETTERS[: node.ndim], letters_except(node.ndim, node.attributes["axis"])
    return f"{','.join([letters] * (len(node.inputs) - 1))},{kept_letters}->{kept_letters}"


def _dot_vjp(node: Node, h: Node) -> Gradients:
    g, x, m = node.inputs
    total = sum_(g, node.attributes["axis"], True)
    return affine(x, m, h, None), multiply(h, g), negative(multiply(h, total))


def _squares_vjp(node: Node, h: Node) -> Gradients:
    """Return 2·(x - m)·h, and nothing for m: m is the mean, where the derivative by it is 0."""
    x, m = node.inputs
    return affine(x, m, add(h, h), None), None


# kernels ------------------------------------------------------------------------------------------


def _is_by_channels(x: torch.Tensor, *vectors: torch.Tensor) -> bool:
    """Return True if torch's batch normalization takes x: vectors vary along dimension 1 at
    most."""
    if x.ndim < 2:
        return False
    shape = (1, x.shape[1], *(1,) * (x.ndim - 2))
    return (
        x.itemsize >= 4
        and x.numel() > 0
        and x.device.type == "cpu"
        and all(tuple(v.shape) == shape or v.numel() == 1 for v in vectors)
    )


def _all_but_channels(x: torch.Tensor) -> AxisNumbers:
    return tuple([d for d in range(x.ndim) if d != 1])


def _bind_affine(call: KernelCall) -> BoundCall:
    """Bind (x - m)·a + b, each operation rounded by itself, block by block."""
    import torch

    (x, m, a, b), y = call.inputs, call.out
    in_place = any(v.data_ptr() == y.data_ptr() for v in (m, a, b))
    if y.device.type != "cpu" or x.shape != y.shape or in_place:
        return lambda: torch.add(torch.sub(x, m).mul(a), b, out=y)

    def of_block(v: torch.Tensor, block: Any) -> torch.Tensor:
        return v[block] if v.ndim == y.ndim and v.shape[:1] == y.shape[:1] else v

    blocks = blocks_of(y) if y.numel() and y.ndim else [...]
    parts = [[of_block(v, block) for v in (x, y, m, a, b)] for block in blocks]

    def run() -> None:
        for source, target, mean, factor, shift in parts:
            torch.sub(source, mean, out=target).mul_(factor).add_(shift)

    return run


def _bind_dot(call: KernelCall) -> BoundCall:
    import torch

    (g, x, m), out, axis = call.inputs, call.out, call.attributes["axis"]
    if not x.numel():
        return out.zero_
    if _is_by_channels(x, m) and axis == _all_but_channels(x):
        ones, mean, target = x.new_ones(x.shape[1]), m.reshape(-1), out.view(-1)
        run = torch.ops.aten.native_batch_norm_backward
        mask = [False, True, True]
        return lambda: target.copy_(run(g, x, None, None, None, mean, ones, True, 0.0, mask)[1])
    wide = torch.promote_types(x.dtype, torch.float32)
    return lambda: out.copy_(_summed((x.to(wide) - m) * g, axis))


def _bind_squares(call: KernelCall) -> BoundCall:
    import torch

    (x, m), out, axis = call.inputs, call.out, call.attributes["axis"]
    if not x.numel():
        return out.zero_
    wide = torch.promote_types(x.dtype, torch.float32)
    blocks: list[Any] = blocks_of(x) if 0 in axis else [...]

    def run() -> None:
        total: Any = 0.0
        for block in blocks:
            squares = torch.sub(x[block].to(wide), m).square_()
            total = _summed(squares, axis) + total
        out.copy_(total)

    return run


def blocks_of(x: torch.Tensor) -> list[slice]:
    """Return parts of the first dimension of about `BLOCK_BYTES`, which stay in a cache."""
    step = max(1, BLOCK_BYTES * len(x) // x.nbytes)
    return [slice(first, first + step) for first in range(0, len(x), step)]


def _summed(x: torch.Tensor, axis: AxisNumbers) -> torch.Tensor:
    return x.sum(axis, keepdim=True) if axis else x  # torch sums over all dimensions for none


def _dot_reference(g: Any, x: Any, m: Any, *, axis: AxisNumbers) -> Any:
    return np.sum(g * (x - m), axis=axis, keepdims=True)


def _squares_reference(x: Any, m: Any, *, axis: AxisNumbers) -> Any:
    return np.sum(np.square(x - m), axis=axis, keepdims=True)


# the records --------------------------------------------------------------------------------------

AFFINE = Operation(
    name="affine",
    infer=pointwise_infer("affine", "real floating"),
    axes=pointwise_axes,
    reduction=None,
    vjp=_affine_vjp,
    kernel=_bind_affine,
    native="(({0} - {1}) * {2} + {3})",
    reference=lambda x, m, a, b: (x - m) * a + b,
    flops=lambda node: 3.0 * node.size,
    has_same_bits=is_always_exact,
    is_elementwise=True,
)

CENTRED_DOT = Operation(
    name="centred_dot",
    infer=_dot_infer,
    axes=_sums_axes,
    reduction="sum",
    vjp=_dot_vjp,
    kernel=_bind_dot,
    native=None,
    reference=_dot_reference,
    flops=lambda node: 3.0 * node.inputs[0].size,
    memory_orders=any_memory_order,
)

CENTRED_SQUARES = Operation(
    name="centred_squares",
    infer=_squares_infer,
    axes=_sums_axes,
    reduction="sum",
    vjp=_squares_vjp,
    kernel=_bind_squares,
    native=None,
    reference=_squares_reference,
    flops=lambda node: 3.0 * node.inputs[0].size,
    memory_orders=any_memory_order,
)


def affine(x: Node, m: Node, a: Node, b: Node | None) -> Node:
    """Return (x - m)·a + b; without b, (x - m)·a."""
    return apply(AFFINE, x, m, a, constant(0, x.dtype) if b is None else b)


def centred_squares(x: Node, mean: Node, axis: AxisNumbers) -> Node:
    """Return Σ (x - mean)² over `axis`, with these dimensions kept as 1.

    `mean` must be the mean of x over `axis`: the gradient relies on it.
    """
    return apply(CENTRED_SQUARES, x, mean, axis=axis)


OPERATIONS = {record.name: record for record in (AFFINE, CENTRED_DOT, CENTRED_SQUARES)}
