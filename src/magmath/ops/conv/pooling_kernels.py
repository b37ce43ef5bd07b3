"""Local kernels of pooling (`ops/conv/pooling.py`).

torch pools floating-point numbers over one to three dimensions; otherwise the kernels visit
one element of the window after the other, for all windows at once. A worker's segment of x is the
part within bounds of the range that its windows read. Out of bounds are zeros for sums, and the
least number of the type for maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np

from magmath.core.type_aliases import ReadyCall
from magmath.graph import KernelCall
from magmath.ops.conv.sliding_windows import (
    Attributes,
    PaddedRange,
    Range,
    extents_of,
    needs,
    offsets,
    overlap,
    ranges_held,
    reached,
)
from magmath.ops.kernel_binding import is_numpy_only

if TYPE_CHECKING:
    import torch

    from magmath.kernels.conv.channels_last import Windows

SpaceExtents = Sequence[int]


class _Pooling(Protocol):
    """Pooling of arrays that include their padding, over windows of extents `space`."""

    def max(self, x: Any, space: SpaceExtents) -> Any:
        """Return the maximum of each window."""

    def select(self, a: Any, x: Any, space: SpaceExtents) -> Any:
        """Return the element of a at the maximum of each window of x."""

    def scatter(self, g: Any, x: Any) -> Any:
        """Return zeros of the shape of x with g added at the maximum of each window of x."""

    def sum(self, x: Any, space: SpaceExtents) -> Any:
        """Return the sum of each window."""

    def add_windows(self, g: Any, extents: SpaceExtents) -> Any:
        """Return zeros of these extents of space with g added to each element of its windows."""


@final
class _ByElement:
    """Pooling that visits one element of the window after the other, of NumPy arrays or torch
    tensors."""

    def __init__(self, xp: Any, attributes: Attributes) -> None:
        self._xp, self._attributes = xp, attributes

    def _elements(self, x: Any, space: SpaceExtents) -> list[Any]:
        """Return each element of the window, as a view of x that contains it for all windows."""
        kernel = self._attributes["kernel"]
        return [x[(..., *where)] for _, where in offsets(kernel, space, self._attributes)]

    def _maxima(self, x: Any, space: SpaceExtents) -> tuple[Any, Any]:
        """Return the maximum of each window, and its number among the elements of the window."""
        xp, (best, *others) = self._xp, self._elements(x, space)
        number = xp.zeros_like(best, dtype=xp.int64)
        for i, element in enumerate(others, 1):
            better = (element > best) | (xp.isnan(element) & ~xp.isnan(best))
            best, number = xp.where(better, element, best), xp.where(better, i, number)
        return best, number

    def max(self, x: Any, space: SpaceExtents) -> Any:
        return self._maxima(x, space)[0]

    def select(self, a: Any, x: Any, space: SpaceExtents) -> Any:
        (result, *others), number = self._elements(a, space), self._maxima(x, space)[1]
        for i, element in enumerate(others, 1):
            result = self._xp.where(number == i, element, result)
        return result

    def scatter(self, g: Any, x: Any) -> Any:
        space = g.shape[g.ndim - len(self._attributes["kernel"]) :]
        number, total = self._maxima(x, space)[1], self._xp.zeros_like(x)
        for i, target in enumerate(self._elements(total, space)):
            target += g * (number == i)
        return total

    def sum(self, x: Any, space: SpaceExtents) -> Any:
        first, *others = self._elements(x, space)
        total = first + self._xp.zeros_like(first)
        for element in others:
            total += element
        return total

    def add_windows(self, g: Any, extents: SpaceExtents) -> Any:
        lead = g.ndim - len(extents)
        shape = *g.shape[:lead], *extents
        total = np.zeros(shape, g.dtype) if self._xp is np else g.new_zeros(shape)
        for target in self._elements(total, g.shape[lead:]):
            target += g
        return total


@final
class _ByTorch:
    """Pooling by torch's functions, which supply padding of their own: `padding` at both ends."""

    def __init__(self, attributes: Attributes, padding: SpaceExtents) -> None:
        import torch

        self._space = len(attributes["kernel"])
        flat = [1] * (self._space == 1)  # torch has fewer functions for one dimension
        self._kernel, self._stride, self._dilation = (
            [*flat, *attributes[name]] for name in ("kernel", "stride", "dilation")
        )
        self._padding = [*[0] * len(flat), *padding]
        self._functions, self._ndim = torch.ops.aten, max(self._space, 2)

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._functions, name.replace("*", f"{self._ndim}d"))(*arguments)

    def _images(self, x: torch.Tensor) -> torch.Tensor:
        """Return x as (images, channels, *space)."""
        lead = x.ndim - self._space
        space = (1, *x.shape[lead:]) if self._space == 1 else x.shape[lead:]
        if lead == 2:
            return x if self._space > 1 else x.unsqueeze(2)
        return x.reshape(1, -1, *space)

    def _maxima(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the maxima, and their positions in the space of x, counted as one dimension."""
        values, positions = self._call(
            "max_pool*_with_indices", x, self._kernel, self._stride, self._padding, self._dilation
        )
        return values, positions

    def max(self, x: torch.Tensor, space: SpaceExtents) -> torch.Tensor:
        return self._maxima(self._images(x))[0].reshape(*x.shape[: x.ndim - self._space], *space)

    def select(self, a: torch.Tensor, x: torch.Tensor, space: SpaceExtents) -> torch.Tensor:
        lead = a.shape[: a.ndim - self._space]
        positions = self._maxima(self._images(x))[1].reshape(*lead, -1)
        return a.reshape(*lead, -1).gather(-1, positions).reshape(*lead, *space)

    def scatter(self, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        images = self._images(x)
        result: torch.Tensor = self._call(
            "max_pool*_with_indices_backward", self._images(g), images, self._kernel,
            self._stride, self._padding, self._dilation, False, self._maxima(images)[1],
        )  # fmt: skip
        return result.reshape(x.shape)

    def sum(self, x: torch.Tensor, space: SpaceExtents) -> torch.Tensor:
        result: torch.Tensor = self._call(
            "avg_pool*", self._images(x), self._kernel, self._stride, self._padding, False, True, 1
        )
        return result.reshape(*x.shape[: x.ndim - self._space], *space)

    def add_windows(self, g: torch.Tensor, extents: SpaceExtents) -> torch.Tensor:
        lead = g.shape[: g.ndim - self._space]
        like = self._images(g.new_empty(()).expand(*lead, *extents))
        result: torch.Tensor = self._call(
            "avg_pool*_backward", self._images(g), like, self._kernel, self._stride,
            self._padding, False, True, 1,
        )  # fmt: skip
        return result.reshape(*lead, *extents)


# the references -----------------------------------------------------------------------------------


def _least(dtype: Any) -> float:
    """Return the least number of a NumPy type."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _space(x: Any, attributes: Attributes) -> list[int]:
    """Return the extents of space of the result of pooling x."""
    kernel = attributes["kernel"]
    parts = zip(
        x.shape[x.ndim - len(kernel) :], kernel, attributes["padding"], attributes["stride"],
        attributes["dilation"], strict=True,
    )  # fmt: skip
    return [(n + low + high - d * (k - 1) - 1) // s + 1 for n, k, (low, high), s, d in parts]


def _padded(x: Any, space: SpaceExtents, value: float, attributes: Attributes) -> Any:
    """Return the range of x that windows read, with a value out of bounds."""
    kernel = attributes["kernel"]
    want = needs([(0, n) for n in space], kernel, attributes)
    lead = x.ndim - len(kernel)
    result = np.full((*x.shape[:lead], *extents_of(want)), value, x.dtype)
    there, here = overlap([(0, n) for n in x.shape[lead:]], want)
    result[there] = x[here]
    return result


def _cropped(full: Any, windows: SpaceExtents, space: SpaceExtents, attributes: Attributes) -> Any:
    """Return the elements within bounds, of extents `space`, of the range that windows read."""
    want = needs([(0, n) for n in windows], attributes["kernel"], attributes)
    result = np.zeros((*full.shape[: full.ndim - len(space)], *space), full.dtype)
    there, here = overlap(want, [(0, n) for n in space])
    result[there] = full[here]
    return result


def max_reference(x: Any, **attributes: Any) -> Any:
    """Return the maxima of a NumPy array's windows."""
    space = _space(x, attributes)
    padded = _padded(x, space, _least(x.dtype), attributes)
    return _ByElement(np, attributes).max(padded, space)


def select_reference(a: Any, x: Any, **attributes: Any) -> Any:
    """Return the elements of a NumPy array at the maxima of x."""
    space = _space(x, attributes)
    padded = _padded(x, space, _least(x.dtype), attributes)
    return _ByElement(np, attributes).select(_padded(a, space, 0, attributes), padded, space)


def scatter_reference(g: Any, x: Any, **attributes: Any) -> Any:
    """Return a NumPy array with g added at the maxima of x."""
    space = _space(x, attributes)
    padded = _padded(x, space, _least(x.dtype), attributes)
    full = _ByElement(np, attributes).scatter(g, padded)
    return _cropped(full, space, x.shape[x.ndim - len(space) :], attributes)


def sum_reference(x: Any, **attributes: Any) -> Any:
    """Return the sums of a NumPy array's windows."""
    space = _space(x, attributes)
    return _ByElement(np, attributes).sum(_padded(x, space, 0, attributes), space)


def sum_input_reference(g: Any, *, space: SpaceExtents, **attributes: Any) -> Any:
    """Return a NumPy array with g added to each element of its windows."""
    windows = g.shape[g.ndim - len(space) :]
    extents = extents_of(needs([(0, n) for n in windows], attributes["kernel"], attributes))
    full = _ByElement(np, attributes).add_windows(g, extents)
    return _cropped(full, windows, space, attributes)


# on a worker's tensors ----------------------------------------------------------------------------


def _has_torch(x: torch.Tensor, attributes: Attributes, *, sums: bool) -> bool:
    """Return True if torch pools such tensors; it has no sums with dilation."""
    if not x.is_floating_point() or not 1 <= len(attributes["kernel"]) <= 3:
        return False
    return not sums or set(attributes["dilation"]) == {1}


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return x in the type in which its elements are added: halves as float32."""
    return x.float() if x.is_floating_point() and x.itemsize == 2 else x


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


def _held(call: KernelCall, operand: int | None = None) -> list[Range]:
    """Return the ranges of space that this worker has of an operand, or of the result."""
    tile = call.tile if operand is None else call.tiles[operand]
    return ranges_held(tile, call.out.ndim - len(call.attributes["kernel"]))


def _surrounded(
    call: KernelCall, operand: int, windows: Sequence[Range], value: float, *, native: bool = False
) -> PaddedRange:
    """Return the range of an operand that the windows read, with a value out of bounds."""
    kernel = call.attributes["kernel"]
    want = needs(windows, kernel, call.attributes)
    have = _held(call, operand)
    # torch pads by half of a window at most, and only images that are not smaller than a window
    max_padding = [k // 2 if n >= k else 0 for k, n in zip(kernel, extents_of(have), strict=True)]
    return PaddedRange(
        call.inputs[operand], have, want, native, value=value, max_padding=max_padding,
        stride=call.attributes["stride"],
    )  # fmt: skip


def _windows(
    call: KernelCall, windows: Sequence[Range], held: Sequence[Range] | None = None
) -> Windows:
    """Return windows over the part of the images that this worker has, by default the result."""
    from magmath.kernels.conv.channels_last import Windows

    names = ("kernel", "stride", "dilation")
    kernel, stride, dilation = (call.attributes[name] for name in names)
    found = needs(windows, kernel, call.attributes)
    start = [first - here for (first, _), (here, _) in zip(found, held or _held(call), strict=True)]
    return Windows(kernel, stride, dilation, start)


def _channel_window(call: KernelCall, *tensors: torch.Tensor) -> tuple[int, int] | None:
    """Return the extent of windows over channels alone, which read their own pixel, and the first
    channel of a window relative to its number; None for other windows or memory orders."""
    from magmath.kernels.conv.channels_last import can_compute

    (extent, *rest), (low, _) = call.attributes["kernel"], call.attributes["padding"][0]
    alike = {tuple(x.shape) for x in tensors}
    once = {*rest, *call.attributes["stride"], *call.attributes["dilation"]} == {1}
    whole = once and len(rest) == 2 and len(alike) == 1 and can_compute(*tensors)
    return (extent, -low) if whole else None


def _windows_of(call: KernelCall) -> tuple[list[Range], torch.Tensor] | None:
    """Return the windows that reach the result, and their cotangents; None if there are none."""
    kernel, g = call.attributes["kernel"], call.inputs[0]
    windows = []
    for d, ((start, stop), held) in enumerate(zip(_held(call), _held(call, 0), strict=True)):
        first, last = reached(call.attributes, d, kernel[d])(start, stop)
        windows.append((max(first, held[0]), min(last, held[1])))
        if start == stop or windows[-1][0] >= windows[-1][1]:
            return None
    return (windows, g[overlap(_held(call, 0), windows)[1]]) if g.numel() else None


def _nothing() -> None:
    """Compute nothing: this worker has no part of the result."""


def bind_max(call: KernelCall) -> ReadyCall:
    """Bind the maxima of windows."""
    from magmath.kernels.conv import max_pool
    from magmath.kernels.conv.channels_last import can_compute

    (x,), y = call.inputs, call.out
    if not y.numel():
        return _nothing
    windows, native = _held(call), _has_torch(x, call.attributes, sums=False)
    if len(call.attributes["kernel"]) == 2 and can_compute(x, y):
        return max_pool.bind_maxima(x, _windows(call, windows, _held(call, 0)), y)
    around = _surrounded(call, 0, windows, _least_of(x), native=native)
    xp, (source, out) = _arrays(around.tensor, y)
    pool = _pooling(xp, call.attributes, around.padding if native else None)
    space = extents_of(windows)

    def run() -> None:
        around.fill()
        out[...] = pool.max(source, space)

    return run


def bind_select(call: KernelCall) -> ReadyCall:
    """Bind the elements of the first operand at the maxima of the second one's windows."""
    (_, x), y = call.inputs, call.out
    if not y.numel():
        return _nothing
    windows, native = _held(call), _has_torch(x, call.attributes, sums=False)
    selected = _surrounded(call, 0, windows, 0)
    around = _surrounded(call, 1, windows, _least_of(x))
    xp, (a, source, out) = _arrays(selected.tensor, around.tensor, y)
    pool = _pooling(xp, call.attributes, [0] * len(windows) if native else None)
    space = extents_of(windows)

    def run() -> None:
        selected.fill()
        around.fill()
        out[...] = pool.select(a, source, space)

    return run


def bind_scatter(call: KernelCall) -> ReadyCall:
    """Bind the sum of cotangents at the maxima of windows."""
    from magmath.kernels.conv import max_pool
    from magmath.kernels.conv.channels_last import can_compute

    (_, x), result = call.inputs, call.out
    found = _windows_of(call)
    if found is None:
        return result.zero_
    windows, cotangents = found
    whole = len(windows) == 2 and _held(call) == _held(call, 1)
    if whole and can_compute(cotangents, x, result):
        return max_pool.bind_scatter(cotangents, x, _windows(call, windows), result)
    around = _surrounded(call, 1, windows, _least_of(x))
    native = _has_torch(x, call.attributes, sums=False)
    there, here = overlap(needs(windows, call.attributes["kernel"], call.attributes), _held(call))
    xp, (g, source, out) = _arrays(cotangents, around.tensor, result)
    pool = _pooling(xp, call.attributes, [0] * len(windows) if native else None)
    widen = _identity if xp is np else _wide
    parts = _parts(call)

    def run() -> None:
        around.fill()
        for i in parts:
            out[i] = 0
            out[i][there] = pool.scatter(widen(g[i]), widen(source[i]))[here]

    return run


def bind_sum(call: KernelCall) -> ReadyCall:
    """Bind the sums of windows."""
    from magmath.kernels.conv import sum_pool
    from magmath.kernels.conv.channels_last import can_compute

    (x,), y = call.inputs, call.out
    if not y.numel():
        return _nothing
    windows, native = _held(call), _has_torch(x, call.attributes, sums=True)
    if len(windows) == 2 and can_compute(x, y):
        return sum_pool.bind_sums(x, _windows(call, windows, _held(call, 0)), y)
    if len(windows) == 3 and (channels := _channel_window(call, x, y)) is not None:
        return sum_pool.bind_lines(x, *channels, y)
    around = _surrounded(call, 0, windows, 0, native=native)
    xp, (source, out) = _arrays(around.tensor, y)
    pool = _pooling(xp, call.attributes, around.padding if native else None)
    widen, space = _identity if xp is np else _wide, extents_of(windows)

    def run() -> None:
        around.fill()
        out[...] = pool.sum(widen(source), space)

    return run


def bind_sum_input(call: KernelCall) -> ReadyCall:
    """Bind the sum of cotangents over the windows that contain each element."""
    from magmath.kernels.conv import sum_pool
    from magmath.kernels.conv.channels_last import can_compute

    result = call.out
    found = _windows_of(call)
    if found is None:
        return result.zero_
    windows, cotangents = found
    if len(windows) == 2 and can_compute(cotangents, result):
        return sum_pool.bind_spread(cotangents, _windows(call, windows), result)
    if len(windows) == 3 and (channels := _channel_window(call, cotangents, result)) is not None:
        extent, first = channels
        return sum_pool.bind_lines(cotangents, extent, 1 - extent - first, result)
    want = needs(windows, call.attributes["kernel"], call.attributes)
    there, here = overlap(want, _held(call))
    native = _has_torch(cotangents, call.attributes, sums=True)
    xp, (g, out) = _arrays(cotangents, result)
    pool = _pooling(xp, call.attributes, [0] * len(windows) if native else None)
    widen, extents = _identity if xp is np else _wide, extents_of(want)

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


def _pooling(xp: Any, attributes: Attributes, padding: SpaceExtents | None) -> _Pooling:
    """Return torch's pooling with this padding, or (None) the one of single elements."""
    return _ByElement(xp, attributes) if padding is None else _ByTorch(attributes, padding)


def _identity(x: Any) -> Any:
    return x
