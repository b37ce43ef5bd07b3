"""Sorting along an axis, which must be whole, and the place of values among sorted ones.

NaN comes last in either direction, as the largest number that there is would ascending. The sum of
the places of a value among parts of a sorted array is its place in the whole, so that the sorted
array of `searchsorted` may be split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.errors import DTypeError, ShapeError
from magmath.graph import LocalCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Kernel
from magmath.ops.along_axis import TAKE_ALONG
from magmath.ops.rules import (
    LETTERS,
    check_kind,
    is_numpy_only,
    letters_except,
    no_gradient,
)

if TYPE_CHECKING:
    import torch


def _sort_infer(name: str, result: DType | None) -> Callable[..., tuple[Shape, DType]]:
    def infer(x: Node, *, axis: int, descending: bool) -> tuple[Shape, DType]:
        check_kind(name, "ordered", x.dtype)
        return x.shape, result or x.dtype

    return infer


def _sort_axes(node: Node) -> str:
    letters = letters_except(node.ndim, (node.attributes["axis"],))
    return f"{letters}->{letters}"


def _comparisons(node: Node) -> float:
    extent = node.shape[node.attributes["axis"]]
    return float(node.size * max(extent - 1, 1).bit_length())


def _order(x: Any, axis: int, descending: bool) -> Any:
    """The positions that sort an array; equal elements keep their order."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    if x.dtype.kind == "f":
        return np.argsort(-x, axis=axis, kind="stable")
    return np.argsort(~x, axis=axis, kind="stable")  # reverses integers and truth values


def _sort_reference(x: Any, *, axis: int, descending: bool) -> Any:
    return np.take_along_axis(x, _order(x, axis, descending), axis)


def _sorted(x: torch.Tensor, axis: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and positions of a tensor, sorted."""
    import torch

    if is_numpy_only(x):
        places = _order(x.numpy(), axis, descending)
        values = np.take_along_axis(x.numpy(), places, axis)
        return torch.from_numpy(values), torch.from_numpy(places)
    if descending and x.is_floating_point():
        negated, order = torch.sort(-x, dim=axis, stable=True)
        return -negated, order
    ordered, order = torch.sort(x, dim=axis, descending=descending, stable=True)
    return ordered, order


def _sort_kernel(part: int) -> Kernel:
    """Values (0) or positions (1)."""

    def bind(call: LocalCall) -> Callable[[], object]:
        (x,), out = call.inputs, call.out
        axis, descending = call.attributes["axis"], call.attributes["descending"]
        return lambda: out.copy_(_sorted(x, axis, descending)[part])

    return bind


def _sort_vjp(node: Node, g: Node) -> Gradients:
    """Each cotangent goes where its element came from."""
    (x,) = node.inputs
    axis = node.attributes["axis"]
    order = apply(ARGSORT, x, **node.attributes)
    back = apply(ARGSORT, order, axis=axis, descending=False)
    return (apply(TAKE_ALONG, g, back, axis=axis),)


SORT = Operation(
    name="sort",
    infer=_sort_infer("sort", None),
    axes=_sort_axes,
    reduction=None,
    vjp=_sort_vjp,
    kernel=_sort_kernel(0),
    native=None,
    reference=_sort_reference,
    flops=_comparisons,
)

ARGSORT = Operation(
    name="argsort",
    infer=_sort_infer("argsort", int64),
    axes=_sort_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_sort_kernel(1),
    native=None,
    reference=_order,
    flops=_comparisons,
)


def _search_infer(x: Node, values: Node, *, side: str) -> tuple[Shape, DType]:
    check_kind("searchsorted", "ordered", x.dtype)
    if x.dtype != values.dtype:
        raise DTypeError(f"searchsorted: arrays have types {x.dtype} and {values.dtype}")
    if x.ndim != 1:
        raise ShapeError(f"searchsorted: needs a sorted array of 1 dimension, was given {x.shape}")
    return values.shape, int64


def _search_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{LETTERS[node.ndim]},{letters}->{letters}"


def _search_kernel(call: LocalCall) -> Callable[[], object]:
    import torch

    (x, values), out = call.inputs, call.out
    side = call.attributes["side"]
    if is_numpy_only(x):
        return lambda: out.copy_(
            torch.from_numpy(_search_reference(x.numpy(), values.numpy(), side=side))
        )
    if x.dtype == torch.bool:
        x, values = x.view(torch.uint8), values.view(torch.uint8)

    def run() -> None:
        count = len(x)
        if x.is_floating_point():  # torch would compare with the NaNs at the end
            count -= int(x.isnan().sum())
        found = torch.searchsorted(x[:count].contiguous(), values.contiguous(), side=side)
        if count < len(x) and side == "right":
            found.masked_fill_(values.isnan(), len(x))
        out.copy_(found)

    return run


def _search_reference(x: Any, values: Any, *, side: Any) -> Any:
    return np.asarray(np.searchsorted(x, values, side))


SEARCHSORTED = Operation(  # of parts of a sorted array, the places add up
    name="searchsorted",
    infer=_search_infer,
    axes=_search_axes,
    reduction="sum",
    vjp=no_gradient,
    kernel=_search_kernel,
    native=None,
    reference=_search_reference,
    flops=lambda node: float(node.size * (node.inputs[0].size + 1).bit_length()),
)

OPERATIONS = {record.name: record for record in (SORT, ARGSORT, SEARCHSORTED)}
