"""Local kernels of pooling (`ops/conv/pooling.py`).

torch pools floating-point numbers over one to three dimensions; otherwise the kernels visit one
element of the window after the other (`pooling_methods.py`). A worker's segment of x is the part
within bounds of the range that its windows read. Out of bounds are zeros for sums, and the least
number of the type for maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall
from magmath.kernels.conv.padded_range import (
    PaddedRange,
    Range,
    extents_of,
    overlap,
    symmetric_padding,
)
from magmath.ops.conv.pooling_methods import (
    OutOfBounds,
    PoolingByElement,
    PoolingMethod,
    SpaceExtents,
    TorchPooling,
    first_numbers,
    first_positions,
)
from magmath.ops.conv.window_ranges import (
    Attributes,
    first_elements,
    input_ranges,
    tile_ranges,
    windows_of_inputs,
)
from magmath.ops.kernel_binding import is_numpy_only, widened

if TYPE_CHECKING:
    import torch

    from magmath.kernels.conv.channels_last import Windows


def _has_torch(x: torch.Tensor, attributes: Attributes, *, sums: bool) -> bool:
    """Return True if torch pools such tensors; it has no sums with dilation."""
    if not x.is_floating_point() or not 1 <= len(attributes["kernel"]) <= 3:
        return False
    return not sums or set(attributes["dilation"]) == {1}


def _least_of(x: torch.Tensor) -> float:
    import torch

    return -np.inf if x.is_floating_point() else torch.iinfo(x.dtype).min


def _arrays(*tensors: torch.Tensor) -> tuple[Any, list[Any]]:
    """Return the namespace to compute in, and the tensors as its arrays, which share their memory.

    NumPy computes on types that torch barely supports.
    """
    import torch

    if is_numpy_only(*tensors):
        return np, [x.numpy() for x in tensors]
    return torch, list(tensors)


def _stored_ranges(call: KernelCall, operand: int | None = None) -> list[Range]:
    """Return the ranges of space that this worker has of an operand, or of the result."""
    tile = call.tile if operand is None else call.tiles[operand]
    return tile_ranges(tile, call.out.ndim - len(call.attributes["kernel"]))


def _surrounded(
    call: KernelCall, operand: int, windows: Sequence[Range], value: float, *, native: bool = False
) -> PaddedRange:
    """Return the range of an operand that the windows read, with a value out of bounds, which torch
    (`native`) supplies if it can."""
    kernel = call.attributes["kernel"]
    needed = input_ranges(windows, kernel, call.attributes)
    stored = _stored_ranges(call, operand)
    padding = None
    if native:  # torch pads by half of a window, and only images that are not smaller than one
        limits = [k // 2 if n >= k else 0 for k, n in zip(kernel, extents_of(stored), strict=True)]
        padding = symmetric_padding(stored, needed, call.attributes["stride"], limits)
    return PaddedRange(call.inputs[operand], stored, needed, padding, value)


def _out_of_bounds(
    call: KernelCall, windows: Sequence[Range], padded: torch.Tensor, *, native: bool
) -> OutOfBounds | None:
    """Return how maxima of `padded`, the second operand with its padding, are found in bounds, by
    torch (`native`) or by element; None if it has no padding."""
    import torch

    x, kernel, attributes = call.inputs[1], call.attributes["kernel"], call.attributes
    if padded is x:
        return None
    firsts = first_elements(windows, _stored_ranges(call, 1), kernel, attributes)
    extents = padded.shape[padded.ndim - len(kernel) :]
    counted = (
        first_positions(firsts, extents, attributes) if native else first_numbers(firsts, kernel)
    )
    is_numpy = is_numpy_only(x)
    return OutOfBounds(
        _least_of(x), counted if is_numpy else torch.from_numpy(counted).to(x.device)
    )


def _windows(
    call: KernelCall, windows: Sequence[Range], stored_ranges: Sequence[Range] | None = None
) -> Windows:
    """Return windows over the part of the images that this worker has, by default the result."""
    from magmath.kernels.conv.channels_last import Windows

    names = ("kernel", "stride", "dilation")
    kernel, stride, dilation = (call.attributes[name] for name in names)
    ranges_read = input_ranges(windows, kernel, call.attributes)
    stored_ranges = stored_ranges or _stored_ranges(call)
    start = [first - here for (first, _), (here, _) in zip(ranges_read, stored_ranges, strict=True)]
    return Windows(kernel, stride, dilation, start)


def _channel_window(call: KernelCall, *tensors: torch.Tensor) -> tuple[int, int] | None:
    """Return the extent of windows over channels alone, which read their own pixel, and the first
    channel of a window relative to its number; None for other windows or memory orders."""
    from magmath.kernels.conv.channels_last import can_compute

    (extent, *space_extents), (low, _) = call.attributes["kernel"], call.attributes["padding"][0]
    alike = {tuple(x.shape) for x in tensors}
    once = {*space_extents, *call.attributes["stride"], *call.attributes["dilation"]} == {1}
    whole = once and len(space_extents) == 2 and len(alike) == 1 and can_compute(*tensors)
    return (extent, -low) if whole else None


def _windows_of(call: KernelCall) -> tuple[list[Range], torch.Tensor] | None:
    """Return the windows that reach the result, and their cotangents; None if there are none."""
    kernel, g = call.attributes["kernel"], call.inputs[0]
    windows = []
    for d, ((start, stop), stored_range) in enumerate(
        zip(_stored_ranges(call), _stored_ranges(call, 0), strict=True)
    ):
        first, last = windows_of_inputs(call.attributes, d, kernel[d])(start, stop)
        windows.append((max(first, stored_range[0]), min(last, stored_range[1])))
        if start == stop or windows[-1][0] >= windows[-1][1]:
            return None
    return (windows, g[overlap(_stored_ranges(call, 0), windows)[1]]) if g.numel() else None


def _nothing() -> None:
    """Compute nothing: this worker has no part of the result."""


def bind_max(call: KernelCall) -> BoundCall:
    """Bind the maxima of windows."""
    from magmath.kernels.conv import max_pool
    from magmath.kernels.conv.channels_last import can_compute

    (x,), y = call.inputs, call.out
    if not y.numel():
        return _nothing
    windows, native = _stored_ranges(call), _has_torch(x, call.attributes, sums=False)
    if len(call.attributes["kernel"]) == 2 and can_compute(x, y):
        return max_pool.bind_maxima(x, _windows(call, windows, _stored_ranges(call, 0)), y)
    around = _surrounded(call, 0, windows, _least_of(x), native=native)
    xp, (source, out) = _arrays(around.tensor, y)
    pool = _pooling(xp, call.attributes, around.padding if native else None)
    space = extents_of(windows)

    def run() -> None:
        around.fill()
        out[...] = pool.max(source, space)

    return run


def bind_select(call: KernelCall) -> BoundCall:
    """Bind the elements of the first operand at the maxima of the second one's windows."""
    (_, x), y = call.inputs, call.out
    if not y.numel():
        return _nothing
    windows, native = _stored_ranges(call), _has_torch(x, call.attributes, sums=False)
    selected = _surrounded(call, 0, windows, 0)
    around = _surrounded(call, 1, windows, _least_of(x))
    xp, (a, source, out) = _arrays(selected.tensor, around.tensor, y)
    outside = _out_of_bounds(call, windows, around.tensor, native=native)
    pool = _pooling(xp, call.attributes, [0] * len(windows) if native else None, outside)
    space = extents_of(windows)

    def run() -> None:
        selected.fill()
        around.fill()
        out[...] = pool.select(a, source, space)

    return run


def bind_scatter(call: KernelCall) -> BoundCall:
    """Bind the sum of cotangents at the maxima of windows."""
    from magmath.kernels.conv import max_pool
    from magmath.kernels.conv.channels_last import can_compute

    (_, x), result = call.inputs, call.out
    reaching = _windows_of(call)
    if reaching is None:
        return result.zero_
    windows, cotangents = reaching
    whole = len(windows) == 2 and _stored_ranges(call) == _stored_ranges(call, 1)
    if whole and can_compute(cotangents, x, result):
        return max_pool.bind_scatter(cotangents, x, _windows(call, windows), result)
    around = _surrounded(call, 1, windows, _least_of(x))
    native = _has_torch(x, call.attributes, sums=False)
    there, here = overlap(
        input_ranges(windows, call.attributes["kernel"], call.attributes), _stored_ranges(call)
    )
    xp, (g, source, out) = _arrays(cotangents, around.tensor, result)
    outside = _out_of_bounds(call, windows, around.tensor, native=native)
    pool = _pooling(xp, call.attributes, [0] * len(windows) if native else None, outside)
    widen = _identity if xp is np else widened
    parts = _parts(call)

    def run() -> None:
        around.fill()
        for i in parts:
            out[i] = 0
            out[i][there] = pool.scatter(widen(g[i]), widen(source[i]))[here]

    return run


def bind_sum(call: KernelCall) -> BoundCall:
    """Bind the sums of windows."""
    from magmath.kernels.conv import sum_pool
    from magmath.kernels.conv.channels_last import can_compute

    (x,), y = call.inputs, call.out
    if not y.numel():
        return _nothing
    windows, native = _stored_ranges(call), _has_torch(x, call.attributes, sums=True)
    if len(windows) == 2 and can_compute(x, y):
        return sum_pool.bind_sums(x, _windows(call, windows, _stored_ranges(call, 0)), y)
    if len(windows) == 3 and (channels := _channel_window(call, x, y)) is not None:
        return sum_pool.bind_lines(x, *channels, y)
    around = _surrounded(call, 0, windows, 0, native=native)
    xp, (source, out) = _arrays(around.tensor, y)
    pool = _pooling(xp, call.attributes, around.padding if native else None)
    widen, space = _identity if xp is np else widened, extents_of(windows)

    def run() -> None:
        around.fill()
        out[...] = pool.sum(widen(source), space)

    return run


def bind_sum_input(call: KernelCall) -> BoundCall:
    """Bind the sum of cotangents over the windows that contain each element."""
    from magmath.kernels.conv import sum_pool
    from magmath.kernels.conv.channels_last import can_compute

    result = call.out
    reaching = _windows_of(call)
    if reaching is None:
        return result.zero_
    windows, cotangents = reaching
    if len(windows) == 2 and can_compute(cotangents, result):
        return sum_pool.bind_spread(cotangents, _windows(call, windows), result)
    if len(windows) == 3 and (channels := _channel_window(call, cotangents, result)) is not None:
        extent, first = channels
        return sum_pool.bind_lines(cotangents, extent, 1 - extent - first, result)
    needed = input_ranges(windows, call.attributes["kernel"], call.attributes)
    there, here = overlap(needed, _stored_ranges(call))
    native = _has_torch(cotangents, call.attributes, sums=True)
    xp, (g, out) = _arrays(cotangents, result)
    pool = _pooling(xp, call.attributes, [0] * len(windows) if native else None)
    widen, extents = _identity if xp is np else widened, extents_of(needed)

    def run() -> None:
        out[...] = 0
        out[there] = pool.add_windows(widen(g), extents)[here]

    return run


def _parts(call: KernelCall) -> Sequence[Any]:
    """Return the parts of the result for which torch allocates gradients and positions."""
    from magmath.kernels.conv.batch_parts import batch_parts

    out = call.out
    lead = out.ndim - len(call.attributes["kernel"])
    return batch_parts(len(out), 2 * out.nbytes) if lead else [...]


def _pooling(
    xp: Any,
    attributes: Attributes,
    padding: SpaceExtents | None,
    outside: OutOfBounds | None = None,
) -> PoolingMethod:
    """Return torch's pooling with this padding, or (None) the one of single elements."""
    if padding is None:
        return PoolingByElement(xp, attributes, outside)
    return TorchPooling(attributes, padding, outside)


def _identity(x: Any) -> Any:
    return x
