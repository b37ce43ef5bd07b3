"""PyTorch's operators that rearrange arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, promoted
from magmath.nn import functional as f


def _transposed(x: mm.Array, i: int = 0, j: int = 1) -> mm.Array:
    return x if x.ndim < 2 else mm.swapaxes(x, i, j)


def _flatten(x: mm.Array, start: int = 0, end: int = -1) -> mm.Array:
    if not x.ndim:
        return mm.reshape(x, (1,))
    start, end = start % x.ndim, end % x.ndim
    return mm.reshape(x, (*x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def _unflatten(x: mm.Array, axis: int, sizes: Sequence[int]) -> mm.Array:
    axis %= x.ndim
    inner = mm.reshape(mm.zeros((x.shape[axis], 0)), (*sizes, 0)).shape[:-1]
    return mm.reshape(x, (*x.shape[:axis], *inner, *x.shape[axis + 1 :]))


def _squeeze(x: mm.Array, axis: int | Sequence[int] | None = None) -> mm.Array:
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    alone = tuple([d % x.ndim for d in axes if x.shape[d] == 1])
    return mm.squeeze(x, axis=alone) if alone else x


def _expand(x: mm.Array, shape: Sequence[int], *, implicit: bool = False) -> mm.Array:
    new = len(shape) - x.ndim
    return mm.broadcast_to(
        x, tuple([x.shape[d - new] if n == -1 else n for d, n in enumerate(shape)])
    )


def _slice(
    x: mm.Array, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> mm.Array:
    return x[(*[slice(None)] * (axis % x.ndim), slice(start, stop, step))]


def _select(x: mm.Array, axis: int, index: int) -> mm.Array:
    return x[(*[slice(None)] * (axis % x.ndim), index)]


def _split(x: mm.Array, size: int | Sequence[int], axis: int = 0) -> list[mm.Array]:
    extent = x.shape[axis]
    sizes = [size] * max(1, -(-extent // size)) if isinstance(size, int) else list(size)
    ends = [0, *np.minimum(np.cumsum(sizes), extent).tolist()]
    return [_slice(x, axis, start, end) for start, end in pairwise(ends)]


def _chunk(x: mm.Array, count: int, axis: int = 0) -> list[mm.Array]:
    return _split(x, max(1, -(-x.shape[axis] // count)), axis)


def _windows(x: mm.Array, axis: int, size: int, step: int) -> mm.Array:
    """Return the windows along one axis, with their elements along a new last axis."""
    windows = mm.lib.stride_tricks.sliding_window_view(x, size, axis)
    return windows[(*[slice(None)] * (axis % x.ndim), slice(None, None, step))]


def _repeat(x: mm.Array, repeats: Sequence[int]) -> mm.Array:
    return mm.tile(x, tuple(repeats))


def _roll(x: mm.Array, shifts: Any, axes: Any = ()) -> mm.Array:
    axis = tuple(axes) if isinstance(axes, (list, tuple)) else axes
    shift = tuple(shifts) if isinstance(shifts, (list, tuple)) else shifts
    return mm.roll(x, shift, axis=axis if axis != () else None)


def _constant_pad(x: mm.Array, padding: Sequence[int], value: Any = 0) -> mm.Array:
    return f.pad(x, list(padding), value=value)


def _pad(x: mm.Array, padding: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    return f.pad(x, list(padding), mode, 0.0 if value is None else value)


def _triangle(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, k=0: function(x, k=k)


SHAPES: dict[str, Operator] = {
    "view": lambda x, shape: mm.reshape(x, tuple(shape)),
    "reshape": lambda x, shape: mm.reshape(x, tuple(shape)),
    "_unsafe_view": lambda x, shape: mm.reshape(x, tuple(shape)),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "squeeze": _squeeze,
    "unsqueeze": lambda x, axis: mm.expand_dims(x, axis=axis),
    "expand": _expand,
    "expand_as": lambda x, other: _expand(x, other.shape),
    "broadcast_to": _expand,
    "t": _transposed,
    "transpose": _transposed,
    "swapaxes": _transposed,
    "numpy_T": lambda x: mm.permute_dims(x, tuple(range(x.ndim))[::-1]),
    "mT": mm.matrix_transpose,
    "permute": lambda x, axes: mm.permute_dims(x, tuple([d % x.ndim for d in axes])),
    "movedim": mm.moveaxis,
    "cat": lambda arrays, axis=0: mm.concat(promoted(*arrays), axis=axis),
    "concat": lambda arrays, axis=0: mm.concat(promoted(*arrays), axis=axis),
    "stack": lambda arrays, axis=0: mm.stack(promoted(*arrays), axis=axis),
    "split": _split,
    "split_with_sizes": _split,
    "unsafe_split": _split,
    "unfold": _windows,
    "diag": mm.diag,
    "broadcast_tensors": lambda arrays: list(mm.broadcast_arrays(*arrays)),
    "chunk": _chunk,
    "unbind": lambda x, axis=0: list(mm.unstack(x, axis=axis)),
    "slice": _slice,
    "select": _select,
    "narrow": lambda x, axis, start, length: _slice(x, axis, start, start + length),
    "repeat": _repeat,
    "tile": _repeat,
    "repeat_interleave": lambda x, n, axis=None, output_size=None: mm.repeat(x, n, axis=axis),
    "roll": _roll,
    "flip": lambda x, axes: mm.flip(x, axis=tuple(axes)),
    "tril": _triangle(mm.tril),
    "triu": _triangle(mm.triu),
    "diagonal": lambda x, k=0, i=0, j=1: mm.diagonal(x, k, i, j),
    "constant_pad_nd": _constant_pad,
    "pad": _pad,
    **{
        f"{name}_pad{space}d": partial(_pad, mode=mode)
        for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for space in (1, 2, 3)
    },
    "pixel_shuffle": f.pixel_shuffle,
    "pixel_unshuffle": f.pixel_unshuffle,
    "channel_shuffle": f.channel_shuffle,
}
