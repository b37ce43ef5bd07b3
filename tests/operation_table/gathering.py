"""Index arrays, masks and sorting: data determine the positions of elements."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.memory.torch_dtypes import to_torch
from operation_table.draws import ANY, BOOL, INTEGERS, NUMERIC, REAL, Case, Draws, Row, Shape

INDEX_TYPES = (
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


def _indices(draws: Draws, shape: Shape) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Index arrays for some axes, negative ones too, and where what they pick goes."""
    order = draws.draw(st.permutations(range(len(shape))))
    axes = tuple(order[: draws.draw(st.integers(1, min(3, len(shape))))])
    common = draws.shape(0, 2, (0, 4))
    indices = []
    for axis in axes:
        index_type = draws.draw(st.sampled_from(INDEX_TYPES))
        low = -shape[axis] if index_type.is_signed else 0
        values = draws.random.integers(low, shape[axis], draws.stretched(common))
        indices.append(torch.from_numpy(np.asarray(values)).to(index_type))
    return indices, {"axes": axes, "at": draws.draw(st.integers(0, len(shape) - len(axes)))}


def _picked(shape: Shape, indices: list[torch.Tensor], attributes: dict[str, Any]) -> Shape:
    common = np.broadcast_shapes(*(tuple(index.shape) for index in indices))
    rest = tuple(n for d, n in enumerate(shape) if d not in attributes["axes"])
    return (*rest[: attributes["at"]], *common, *rest[attributes["at"] :])


def _take(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 6))
    indices, attributes = _indices(draws, shape)
    return Case((draws.numbers(shape), *indices), attributes)


def _put(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 6))
    indices, attributes = _indices(draws, shape)
    values = draws.numbers(draws.stretched(_picked(shape, indices, attributes)))
    return Case((draws.numbers(shape), values, *indices), attributes)


def _scatter_add(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 6))
    indices, attributes = _indices(draws, shape)
    extents = tuple(shape[axis] for axis in attributes["axes"])
    x = draws.numbers(_picked(shape, indices, attributes), "count")
    return Case((x, *indices), {**attributes, "extents": extents})


def _along(draws: Draws) -> tuple[Shape, torch.Tensor, int]:
    """The shape of an array, and indices along an axis of it."""
    shape = draws.shape(1, extents=(1, 6))
    axis = draws.draw(st.integers(0, len(shape) - 1))
    index_type = draws.draw(st.sampled_from(INDEX_TYPES))
    count = draws.draw(st.integers(0, 4))
    low = -shape[axis] if index_type.is_signed else 0
    values = draws.random.integers(low, shape[axis], (*shape[:axis], count, *shape[axis + 1 :]))
    return shape, torch.from_numpy(values).to(index_type), axis


def _take_along(draws: Draws) -> Case:
    shape, indices, axis = _along(draws)
    return Case((draws.numbers(shape), indices), {"axis": axis})


def _scatter_along(draws: Draws) -> Case:
    shape, indices, axis = _along(draws)
    x = draws.numbers(tuple(indices.shape), "count")
    return Case((x, indices), {"axis": axis, "extent": shape[axis]})


def _mask(draws: Draws) -> tuple[Shape, torch.Tensor, dict[str, Any]]:
    """The shape of an array, a mask of some of its dimensions, and what is counted of it."""
    shape = draws.shape(1)
    axis = draws.draw(st.integers(0, len(shape) - 1))
    dims = draws.draw(st.integers(1, len(shape) - axis))
    mask = draws.random.random(shape[axis : axis + dims]) < draws.draw(st.sampled_from([0, 0.5, 1]))
    inner = draws.draw(st.lists(st.integers(0, shape[axis]), max_size=4))
    cuts = (0, *sorted(inner), shape[axis])
    counts = tuple(int(np.count_nonzero(mask[a:b])) for a, b in pairwise(cuts))
    return shape, torch.from_numpy(mask), {"axis": axis, "cuts": cuts, "counts": counts}


def _segment_counts(draws: Draws) -> Case:
    _, mask, attributes = _mask(draws)
    return Case((mask.to(to_torch(draws.dtype)),), {"cuts": attributes["cuts"]})


def _compress(draws: Draws) -> Case:
    shape, mask, attributes = _mask(draws)
    return Case((draws.numbers(shape), mask), attributes)


def _expand(draws: Draws) -> Case:
    shape, mask, attributes = _mask(draws)
    axis, count = attributes["axis"], sum(attributes["counts"])
    x = draws.numbers((*shape[:axis], count, *shape[axis + mask.ndim :]))
    return Case((x, mask), attributes)


def _true_positions(draws: Draws) -> Case:
    _, mask, attributes = _mask(draws)
    attributes = {**attributes, "axis": 0, "dim": draws.draw(st.integers(0, mask.ndim - 1))}
    return Case((mask.to(to_torch(draws.dtype)),), attributes)


def _sort(draws: Draws) -> Case:
    shape = draws.shape(1)
    axis = draws.draw(st.integers(0, len(shape) - 1))
    return Case((draws.numbers(shape),), {"axis": axis, "descending": draws.draw(st.booleans())})


def _octets(draws: Draws) -> Case:
    bits = draws.numbers((*draws.shape(), 8))
    return Case((bits,), {"bitorder": draws.draw(st.sampled_from(["big", "little"]))})


def _packed(draws: Draws) -> Case:
    octets = draws.numbers(draws.shape())
    return Case((octets,), {"bitorder": draws.draw(st.sampled_from(["big", "little"]))})


def _order_statistics(draws: Draws) -> Case:
    drawn = draws.shape(1)
    axis = draws.draw(st.integers(0, len(drawn) - 1))
    shape = (*drawn[:axis], max(drawn[axis], 1), *drawn[axis + 1 :])
    positions = draws.draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=3))
    return Case((draws.numbers(shape),), {"axis": axis, "positions": tuple(positions)})


def _quantile(draws: Draws) -> Case:
    *rest, extent = draws.shape(1)
    n = max(extent, 1)
    below = draws.draw(st.integers(0, n - 1))
    above = min(below + 1, n - 1)
    is_float = draws.dtype.kind == "float"
    weight = draws.draw(st.sampled_from([0.0, 0.25, 1.0])) if is_float else 0.0
    x = draws.numbers((*rest, n))
    return Case((x,), {"below": below, "above": above, "weight": weight})


def _searchsorted(draws: Draws) -> Case:
    x = draws.numbers(draws.shape(1, 1))
    half = x.dtype == torch.bfloat16
    ordered = torch.sort(x)[0] if half else torch.from_numpy(np.sort(x.numpy()))
    side = draws.draw(st.sampled_from(["left", "right"]))
    return Case((ordered, draws.numbers(draws.shape())), {"side": side})


def _bin_counts(draws: Draws) -> Case:
    values = np.asarray(draws.random.integers(0, 5, draws.shape()))
    return Case((torch.from_numpy(values).to(to_torch(draws.dtype)),), {"extent": 5})


def _interp(draws: Draws) -> Case:
    count = draws.draw(st.integers(1, 4))
    drawn = draws.numbers((count,))
    points = torch.sort(drawn)[0] if drawn.dtype == torch.float64 else drawn
    at, outside = draws.numbers(draws.shape()), [draws.numbers(()) for _ in range(2)]
    return Case((at, points, draws.numbers((count,)), *outside), {})


ROWS: dict[str, Row] = {
    "take": Row(_take, ANY, (0,)),
    "scatter_add": Row(_scatter_add, NUMERIC, (0,)),
    "segment_counts": Row(_segment_counts, BOOL),
    "compress": Row(_compress, ANY, (0,)),
    "expand": Row(_expand, ANY, (0,)),
    "true_positions": Row(_true_positions, BOOL),
    "sort": Row(_sort, (*BOOL, *REAL), (0,)),
    "argsort": Row(_sort, (*BOOL, *REAL)),
    "pack_bits": Row(_octets, BOOL),
    "unpack_bits": Row(_packed, ("uint8",)),
    "order_statistics": Row(_order_statistics, (*BOOL, *REAL), (0,)),
    "quantile": Row(_quantile, (*BOOL, *REAL), (0,)),
    "bin_counts": Row(_bin_counts, INTEGERS),
    "interp": Row(_interp, ("float64",), (0, 1, 2, 3, 4)),
    "searchsorted": Row(_searchsorted, (*BOOL, *REAL)),
    "put": Row(_put, ANY, (0, 1)),
    "take_along": Row(_take_along, ANY, (0,)),
    "scatter_along": Row(_scatter_along, NUMERIC, (0,)),
}
