"""Reshaping, joining and slicing: the positions of elements do not depend on data."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from magmath.ops.indexing.dynamic_slice import slice_shape
from operation_table.draws import ANY, FLOATS, Case, Draws, Row, Shape


def _reshape(draws: Draws) -> Case:
    """Some dimensions joined, then some parted, as far as the extents have divisors."""
    shape = draws.shape()
    new = list(shape)
    if len(new) > 1 and draws.draw(st.booleans()):
        place = draws.draw(st.integers(0, len(new) - 2))
        new[place : place + 2] = [new[place] * new[place + 1]]
    if new and draws.draw(st.booleans()):
        place = draws.draw(st.integers(0, len(new) - 1))
        extent = new[place]
        part = draws.draw(st.sampled_from([n for n in (1, 2, 3, 5) if extent % n == 0]))
        new[place : place + 1] = [part, extent // part]
    return Case((draws.numbers(shape),), {"shape": tuple(new)})


def _permute(draws: Draws) -> Case:
    shape = draws.shape()
    axes = tuple(draws.draw(st.permutations(range(len(shape)))))
    return Case((draws.numbers(shape),), {"axes": axes})


def _broadcast(draws: Draws) -> Case:
    shape = draws.shape()
    return Case((draws.numbers(draws.stretched(shape)),), {"shape": shape})


def _concat(draws: Draws) -> Case:
    shape = draws.shape(1)
    axis = draws.draw(st.integers(0, len(shape) - 1))
    extents = draws.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [draws.numbers((*shape[:axis], n, *shape[axis + 1 :])) for n in extents]
    return Case(tuple(parts), {"axis": axis})


def _slice(draws: Draws) -> Case:
    shape = draws.shape()
    return Case((draws.numbers(shape),), {"bounds": draws.bounds(shape)})


def _set_slice(draws: Draws) -> Case:
    shape = draws.shape()
    bounds = draws.bounds(shape)
    part = tuple(len(range(*bound)) for bound in bounds)
    return Case((draws.numbers(shape), draws.numbers(draws.stretched(part))), {"bounds": bounds})


def _windows(draws: Draws, shape: Shape) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """First positions of a window of some dimensions, and its attributes."""
    axes = tuple(d for d in draws.axes(len(shape)) if shape[d])
    starts, extents, steps = [], [], []
    for axis in axes:
        first, last, step = draws.bound(shape[axis])
        count = len(range(first, last, step))
        single = count > 0 and draws.draw(st.booleans())
        starts.append(torch.tensor(first - shape[axis] * (single and draws.draw(st.booleans()))))
        extents.append(None if single else count)
        steps.append(1 if single else step)
    return starts, {"axes": axes, "extents": tuple(extents), "steps": tuple(steps)}


def _window(draws: Draws) -> Case:
    shape = draws.shape()
    starts, attributes = _windows(draws, shape)
    return Case((draws.numbers(shape), *starts), attributes)


def _set_window(draws: Draws) -> Case:
    shape = draws.shape()
    starts, attributes = _windows(draws, shape)
    part = slice_shape(shape, attributes["axes"], attributes["extents"])
    values = draws.numbers(draws.stretched(part))
    return Case((draws.numbers(shape), values, *starts), attributes)


def _recompute(draws: Draws) -> Case:
    return Case((draws.numbers(draws.shape()), draws.numbers(draws.shape())), {})


def _buffer(draws: Draws) -> torch.Tensor:
    """A matrix and room for one more column."""
    rows, wide = draws.shape(2, 2, extents=(1, 6))
    return draws.numbers((rows, wide))


def _shift_right(draws: Draws) -> Case:
    return Case((_buffer(draws),), {"value": draws.draw(st.sampled_from([0.0, 1.0]))})


def _shift_left(draws: Draws) -> Case:
    return Case((_buffer(draws),), {})


def _insert_column(draws: Draws) -> Case:
    return Case(
        (draws.numbers(draws.shape(2, 2)),), {"value": draws.draw(st.sampled_from([0.0, 1.0]))}
    )


ROWS: dict[str, Row] = {
    "insert_column": Row(_insert_column, FLOATS, (0,)),
    "shift_right": Row(_shift_right, FLOATS, (0,)),
    "shift_left": Row(_shift_left, FLOATS, (0,)),
    "recompute": Row(_recompute, ANY, (0,)),
    "reshape": Row(_reshape, ANY, (0,)),
    "permute_dims": Row(_permute, ANY, (0,)),
    "broadcast_to": Row(_broadcast, ANY, (0,)),
    "concat": Row(_concat, ANY, (0,)),
    "slice": Row(_slice, ANY, (0,)),
    "set_slice": Row(_set_slice, ANY, (0, 1)),
    "dynamic_slice": Row(_window, ANY, (0,)),
    "dynamic_update_slice": Row(_set_window, ANY, (0, 1)),
}
