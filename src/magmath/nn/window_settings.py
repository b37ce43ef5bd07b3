"""Settings of sliding windows as users write them: numbers for all dimensions of space or for each
one, and padding by number, by pair or by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

from magmath.core.integers import is_integer, require_integer
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape

Size: TypeAlias = int | Sequence[int]
"""One number for all dimensions of space, or one for each."""

AdaptiveSize: TypeAlias = int | Sequence[int | None] | None
"""The same for the number of windows; None is one for each element of the dimension."""

Padding: TypeAlias = int | str | Sequence[int | tuple[int, int]]
"""A number of elements at both ends of all dimensions, or for each dimension a number or a pair;
"valid" (none); or "same": as many that each dimension of n elements gives ⌈n / stride⌉."""

Pads: TypeAlias = tuple[tuple[int, int], ...]


def sizes(name: str, value: Size, count: int, min_size: int = 1) -> Shape:
    """Return one number for each of `count` dimensions. Raises OptionError for other values."""
    values = tuple(value) if is_sequence(value) else (value,) * count
    if len(values) != count:
        raise OptionError(
            f"{name} needs one number, or one for each of {count} dimensions; was given {value!r}"
        )
    return tuple([require_integer(name, n, min_size) for n in values])


def adaptive_sizes(name: str, value: AdaptiveSize, count: int) -> tuple[int | None, ...]:
    """Return one number of windows, or None, for each of `count` dimensions. Raises OptionError for
    other values."""
    if value is None:
        return (None,) * count
    given: tuple[Any, ...] = tuple(value) if is_sequence(value) else (value,) * count
    numbers = sizes(name, [1 if n is None else n for n in given], count)
    return tuple([None if n is None else m for n, m in zip(given, numbers, strict=True)])


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Return True for numbers of several dimensions, also in an array."""
    return isinstance(value, Iterable) and not is_integer(value)


def immutable_padding(operation: str, padding: Padding, count: int) -> Padding:
    """Return padding as layers store it: a tuple in place of a list, or another sequence. Raises
    OptionError for padding that is none of `count` dimensions."""
    if not isinstance(padding, str) and is_sequence(padding):
        padding = tuple(padding)
    ones = (1,) * count
    pads(operation, padding, ones, ones, ones, ones)
    return padding


def pads(
    operation: str,
    padding: Padding,
    space: Shape,
    kernel: Shape,
    stride: Shape,
    dilation: Shape,
) -> Pads:
    """Return the number of elements before and after each dimension of `space`.

    For "same" an odd number has its larger half after the elements, as in PyTorch and TensorFlow.
    """
    if isinstance(padding, str):
        if padding == "valid":
            return ((0, 0),) * len(space)
        if padding != "same":
            raise OptionError(
                f'{operation}: padding must be numbers, "same" or "valid", was given {padding!r}'
            )
        parts = zip(space, kernel, stride, dilation, strict=True)
        return tuple([same_pads(n, d * (k - 1) + 1, s) for n, k, s, d in parts])
    name, count = f"{operation}: padding", len(space)
    numbers: Any = padding
    values = tuple(numbers) if is_sequence(numbers) else (numbers,) * count
    if len(values) != count:
        raise OptionError(
            f"{name} needs one number, or one for each of {count} dimensions; was given {padding!r}"
        )
    pairs = []
    for pad in values:
        low, high = sizes(name, pad, 2, 0)
        pairs.append((low, high))
    return tuple(pairs)


def same_pads(extent: int, reach: int, stride: int) -> tuple[int, int]:
    """Return the padding with which windows that reach over so many elements give ⌈extent / stride⌉
    results; an odd number has its larger half at the end."""
    missing = max((-(-extent // stride) - 1) * stride + reach - extent, 0)
    return missing // 2, missing - missing // 2


def check_images(operation: str, shape: Shape, space: int | None) -> None:
    """Raise ShapeError unless a shape is (N, channels, *space), of `space` dimensions if given."""
    dimensions = len(shape) - 2
    if dimensions < 1 or (space is not None and dimensions != space):
        axes = ("L", "H, W", "D, H, W")[space - 1] if space in (1, 2, 3) else "*space"
        hint = "; reshape the input"
        if dimensions == (space or 1) - 1:
            hint = "; x[None] is a batch of one image, x[:, None] one channel"
            hint += "; build takes the batch too"
        raise ShapeError(f"{operation}: takes (N, channels, {axes}), was given {shape}{hint}")


def check_covered(
    operation: str, space: Shape, padding: Pads, kernel: Shape, dilation: Shape
) -> None:
    """Raise ShapeError if a filter is larger than the padded image."""
    for d, (n, (low, high), k, step) in enumerate(
        zip(space, padding, kernel, dilation, strict=True)
    ):
        reach = step * (k - 1) + 1
        if n + low + high < reach:
            raise ShapeError(
                f"{operation}: a filter of {kernel} with dilation {dilation} covers {reach} "
                f"elements of dimension {d} of space, but images of {space} have {n + low + high} "
                f"there with padding {low} and {high}; use larger images, a smaller filter or "
                f'padding="same"'
            )
