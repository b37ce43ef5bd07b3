"""Local kernels of a correlation and its transposes (`ops/conv/convolution.py`).

`kernels/conv/convolution.py` computes floating-point and complex numbers in one to three spatial
dimensions; for all other cases the kernels add the contributions of one kernel element after
another. A worker's segment of x is the part within bounds of the range that its segment of y needs;
zeros surround it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node
from magmath.kernels.conv.padded_range import PaddedRange, extents_of, overlap
from magmath.ops.conv.window_ranges import (
    Attributes,
    input_ranges,
    tile_ranges,
    window_counts,
    window_elements,
)
from magmath.ops.kernel_binding import is_numpy_only, widened

if TYPE_CHECKING:
    import torch

    from magmath.core.index_set import IndexSet
    from magmath.kernels.epilogue import Epilogue

OPTIONAL_OPERANDS = ("frozen", "bias", "residual")
"""The operands that a correlation has in addition if its attribute of the same name is True, in
this order; the passes set them.

frozen    a number, equal in two runs only if w is: the content id of w
bias      a number for each output, (1, outputs, 1, …), which is added
residual  an array like y, which is added
"""

MAX_PRODUCTS = 1 << 18
"""Products of two vectors up to which NumPy computes their correlation."""

# sums over kernel elements, for NumPy arrays and torch tensors ----------------------------------


def _grouped(array: Any, groups: int, dim: int) -> Any:
    """Return the array with dimension `dim` divided into groups, a new dimension before it."""
    shape = tuple(array.shape)
    return array.reshape((*shape[:dim], groups, shape[dim] // groups, *shape[dim + 1 :]))


def _flat(array: Any, ndim: int) -> Any:
    """Return the array with all dimensions after the first `ndim` joined."""
    return array.reshape((*array.shape[:ndim], -1))


def _add_correlation(einsum: Any, x: Any, w: Any, y: Any, attributes: Attributes) -> None:
    """Add the correlation of w with x, which includes its padding, to y."""
    groups = attributes["groups"]
    a, b, total = _grouped(x, groups, 1), _grouped(w, groups, 0), _grouped(y, groups, 1)
    for element, where in window_elements(w.shape[2:], y.shape[2:], attributes):
        part = einsum("ngco,gkc->ngko", _flat(a[(..., *where)], 3), b[(..., *element)])
        total += part.reshape(total.shape)


def _add_input(einsum: Any, y: Any, w: Any, x: Any, attributes: Attributes) -> None:
    """Add the transposed correlation of y with w to x, which includes its padding."""
    groups = attributes["groups"]
    a, b, total = _grouped(y, groups, 1), _grouped(w, groups, 0), _grouped(x, groups, 1)
    for element, where in window_elements(w.shape[2:], y.shape[2:], attributes):
        part = einsum("ngko,gkc->ngco", _flat(a, 3), b[(..., *element)])
        target = total[(..., *where)]
        target += part.reshape(target.shape)


def _set_kernel(einsum: Any, x: Any, y: Any, w: Any, attributes: Attributes) -> None:
    """Set w to its cotangent from x, which includes its padding, and y."""
    groups = attributes["groups"]
    a, b, result = _grouped(x, groups, 1), _grouped(y, groups, 1), _grouped(w, groups, 0)
    for element, where in window_elements(w.shape[2:], y.shape[2:], attributes):
        result[(..., *element)] = einsum("ngco,ngko->gkc", _flat(a[(..., *where)], 3), _flat(b, 3))


# the references ---------------------------------------------------------------------------------


def _padded(x: Any, y: Sequence[int], kernel: Sequence[int], attributes: Attributes) -> Any:
    """Return the range of x that y needs, with zeros out of bounds."""
    needed = input_ranges([(0, n) for n in y], kernel, attributes)
    result = np.zeros((*x.shape[:2], *extents_of(needed)), x.dtype)
    there, here = overlap([(0, n) for n in x.shape[2:]], needed)
    result[there] = x[here]
    return result


def correlation_reference(x: Any, w: Any, *more: Any, **attributes: Any) -> Any:
    """Return the correlation of NumPy arrays."""
    space = window_counts(x.shape[2:], w.shape[2:], attributes)
    y = np.zeros((x.shape[0], w.shape[0], *space), x.dtype)
    _add_correlation(np.einsum, _padded(x, space, w.shape[2:], attributes), w, y, attributes)
    for added in more[1:] if attributes.get("frozen") else more:  # bias and residual
        y = y + added
    return np.maximum(y, 0) if attributes.get("activation") == "relu" else y


def numpy_correlation(node: Node) -> Callable[..., object] | None:
    """Return NumPy's correlation of two short real vectors, for a node that computes no more."""
    attributes = node.attributes
    (x, w), steps = node.inputs[:2], (*attributes["stride"], *attributes["dilation"])
    are_vectors = x.ndim == 3 and x.shape[:2] == w.shape[:2] == (1, 1) and steps == (1, 1)
    is_short = x.size * w.size <= MAX_PRODUCTS and x.dtype.kind == "float"
    has_epilogue = len(node.inputs) > 2 or attributes.get("activation", "none") != "none"
    is_half = node.dtype is not x.dtype  # which NumPy would round after each addition
    if not are_vectors or not is_short or has_epilogue or is_half:
        return None
    ((low, high),) = attributes["padding"]

    def correlate_into(x: Any, w: Any, out: Any) -> None:
        vector = np.pad(x[0, 0], (low, high)) if low or high else x[0, 0]
        out[0, 0] = np.correlate(vector, w[0, 0], "valid")

    return correlate_into


def input_reference(y: Any, w: Any, *, space: Sequence[int], **attributes: Any) -> Any:
    """Return the transposed correlation of NumPy arrays."""
    whole = input_ranges([(0, n) for n in y.shape[2:]], w.shape[2:], attributes)
    channels = w.shape[1] * attributes["groups"]
    full = np.zeros((y.shape[0], channels, *extents_of(whole)), y.dtype)
    _add_input(np.einsum, y, w, full, attributes)
    x = np.zeros((y.shape[0], channels, *space), y.dtype)
    there, here = overlap(whole, [(0, n) for n in space])
    x[there] = full[here]
    return x


def kernel_reference(x: Any, y: Any, *, kernel: Sequence[int], **attributes: Any) -> Any:
    """Return the cotangent of the kernel from NumPy arrays x and y."""
    w = np.zeros((y.shape[1], x.shape[1] // attributes["groups"], *kernel), x.dtype)
    _set_kernel(np.einsum, _padded(x, y.shape[2:], kernel, attributes), y, w, attributes)
    return w


# on a worker's tensors --------------------------------------------------------------------------


def _is_native(x: torch.Tensor) -> bool:
    """Return True for tensors that torch's convolutions accept."""
    return (x.is_floating_point() or x.is_complex()) and 3 <= x.ndim <= 5


def _einsum(
    a: torch.Tensor, b: torch.Tensor, result: torch.Tensor
) -> tuple[Any, tuple[Any, Any, Any]]:
    """Return the einsum function and its arrays: NumPy's for types that torch barely supports.

    NumPy uses the same memory. Sums of products of half types are float32.
    """
    if is_numpy_only(a):
        return np.einsum, (a.numpy(), b.numpy(), result.numpy())
    return _wide_einsum, (a, b, result)


def _wide_einsum(subscripts: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.einsum(subscripts, widened(a), widened(b))


def _bind_native(
    call: KernelCall,
    direction: str,
    x: torch.Tensor,
    w: torch.Tensor,
    y: torch.Tensor,
    tiles: Sequence[Sequence[IndexSet]],
) -> BoundCall:
    """Bind one pass of a convolution of a type that torch accepts; `tiles`: those of x and y.

    Results that several workers compute must have the same bits, so only the default candidate
    computes them.
    """
    from magmath.kernels.conv.convolution import bind_convolution
    from magmath.kernels.conv.convolution_problem import ConvolutionProblem
    from magmath.kernels.dispatch.tuner import tuner_for

    attributes = call.attributes
    starts = [[first for first, _ in tile_ranges(tile)] for tile in tiles]
    low = [pads[0] for pads in attributes["padding"]]
    steps = zip(*starts, attributes["stride"], low, strict=True)
    epilogue, content_id = _epilogue_and_content_id(call)
    problem = ConvolutionProblem(
        direction, x, w, y,
        offset=tuple(stride * of_y - pad - of_x for of_x, of_y, stride, pad in steps),
        stride=tuple(attributes["stride"]), dilation=tuple(attributes["dilation"]),
        groups=x.shape[1] // w.shape[1], epilogue=epilogue, content_id=content_id,
        w_tile=None if content_id is None else tuple(call.tiles[1]),
    )  # fmt: skip
    tuner = tuner_for(call.context.deterministic or call.repeated)
    context = call.context
    return bind_convolution(
        problem,
        tuner=tuner,
        winograd=context.winograd and attributes["transforms"] != "none",
        workspace_limit=context.workspace_limit,
    )


def _epilogue_and_content_id(call: KernelCall) -> tuple[Epilogue, torch.Tensor | None]:
    """Return the epilogue, and the content id of w."""
    from magmath.kernels.epilogue import Epilogue

    attributes = call.attributes
    names = [name for name in OPTIONAL_OPERANDS if attributes.get(name)]
    operands = dict(zip(names, call.inputs[2:], strict=True))
    content_id = operands.pop("frozen", None)
    return Epilogue(**operands, activation=attributes.get("activation", "none")), content_id


def _bind_empty(call: KernelCall) -> BoundCall:
    """Bind the correlation of no elements: zeros, and the epilogue."""
    from magmath.kernels.epilogue import blocks, finish

    (epilogue, _), y = _epilogue_and_content_id(call), call.out
    if not epilogue:
        return y.zero_
    zeros = y.new_zeros(()).expand(y.shape)
    return lambda: finish(zeros, y, epilogue, blocks(y))


def bind_correlation(call: KernelCall) -> BoundCall:
    """Bind the computation of y from w and the range of x that it covers."""
    import torch

    from magmath.kernels.epilogue import blocks, finish

    (x, w, *_), y = call.inputs, call.out
    if not x.numel() or not w.numel():
        return _bind_empty(call)
    if _is_native(x):
        return _bind_native(call, "forward", x, w, y, (call.tiles[0], call.tile))
    attributes = {**call.attributes, "groups": x.shape[1] // w.shape[1]}
    needed = input_ranges(tile_ranges(call.tile), w.shape[2:], attributes)
    around = PaddedRange(x, tile_ranges(call.tiles[0]), needed)
    total = widened(torch.zeros_like(y, memory_format=torch.contiguous_format))
    einsum, arrays = _einsum(around.tensor, w, total)
    epilogue, _ = _epilogue_and_content_id(call)
    return sequence(
        around.fill,
        total.zero_,
        lambda: _add_correlation(einsum, *arrays, attributes),
        lambda: finish(total, y, epilogue, blocks(y)),
    )


def bind_input(call: KernelCall) -> BoundCall:
    """Bind the computation of x from w and the range of y that depends on it."""
    (y, w), x = call.inputs, call.out
    if not y.numel() or not w.numel():
        return x.zero_
    if _is_native(y):
        return _bind_native(call, "data", x, w, y, (call.tile, call.tiles[0]))
    attributes = {**call.attributes, "groups": x.shape[1] // w.shape[1]}
    reach = input_ranges(tile_ranges(call.tiles[0]), w.shape[2:], attributes)
    there, here = overlap(reach, tile_ranges(call.tile))
    target = x[there]
    total = widened(x.new_zeros((y.shape[0], x.shape[1], *extents_of(reach))))
    einsum, arrays = _einsum(y, w, total)
    return sequence(
        x.zero_,
        total.zero_,
        lambda: _add_input(einsum, *arrays, attributes),
        lambda: target.copy_(total[here]),
    )


def bind_kernel(call: KernelCall) -> BoundCall:
    """Bind the computation of w from y and the range of x that it covers."""
    import torch

    (x, y), w = call.inputs, call.out
    if not x.numel() or not y.numel() or not w.numel():
        return w.zero_
    if _is_native(x):
        return _bind_native(call, "filter", x, w, y, (call.tiles[0], call.tiles[1]))
    attributes = {**call.attributes, "groups": x.shape[1] // w.shape[1]}
    needed = input_ranges(tile_ranges(call.tiles[1]), w.shape[2:], attributes)
    around = PaddedRange(x, tile_ranges(call.tiles[0]), needed)
    result = widened(torch.zeros_like(w, memory_format=torch.contiguous_format))
    einsum, arrays = _einsum(around.tensor, y, result)
    return sequence(
        around.fill, lambda: _set_kernel(einsum, *arrays, attributes), lambda: w.copy_(result)
    )
