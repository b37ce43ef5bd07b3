"""Reshaping, joining and slicing: where elements go is known beforehand."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from magmath.ops.dynamic_slice import window_shape
from operation_table.dice import ANY, FLOATS, Case, Dice, Row, Shape


def _reshape(dice: Dice) -> Case:
    """Some dimensions joined, then some parted, as far as the extents have divisors."""
    shape = dice.shape()
    new = list(shape)
    if len(new) > 1 and dice.draw(st.booleans()):
        place = dice.draw(st.integers(0, len(new) - 2))
        new[place : place + 2] = [new[place] * new[place + 1]]
    if new and dice.draw(st.booleans()):
        place = dice.draw(st.integers(0, len(new) - 1))
        extent = new[place]
        part = dice.draw(st.sampled_from([n for n in (1, 2, 3, 5) if extent % n == 0]))
        new[place : place + 1] = [part, extent // part]
    return Case((dice.numbers(shape),), {"shape": tuple(new)})


def _permute(dice: Dice) -> Case:
    shape = dice.shape()
    axes = tuple(dice.draw(st.permutations(range(len(shape)))))
    return Case((dice.numbers(shape),), {"axes": axes})


def _broadcast(dice: Dice) -> Case:
    shape = dice.shape()
    return Case((dice.numbers(dice.stretched(shape)),), {"shape": shape})


def _concat(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    extents = dice.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [dice.numbers((*shape[:axis], n, *shape[axis + 1 :])) for n in extents]
    return Case(tuple(parts), {"axis": axis})


def _slice(dice: Dice) -> Case:
    shape = dice.shape()
    return Case((dice.numbers(shape),), {"bounds": dice.bounds(shape)})


def _set_slice(dice: Dice) -> Case:
    shape = dice.shape()
    bounds = dice.bounds(shape)
    part = tuple(len(range(*bound)) for bound in bounds)
    return Case((dice.numbers(shape), dice.numbers(dice.stretched(part))), {"bounds": bounds})


def _windows(dice: Dice, shape: Shape) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """First positions of a window of some dimensions, and its attributes."""
    axes = tuple(d for d in dice.axes(len(shape)) if shape[d])
    starts, extents, steps = [], [], []
    for axis in axes:
        first, last, step = dice.bound(shape[axis])
        count = len(range(first, last, step))
        single = count > 0 and dice.draw(st.booleans())
        starts.append(torch.tensor(first - shape[axis] * (single and dice.draw(st.booleans()))))
        extents.append(None if single else count)
        steps.append(1 if single else step)
    return starts, {"axes": axes, "extents": tuple(extents), "steps": tuple(steps)}


def _window(dice: Dice) -> Case:
    shape = dice.shape()
    starts, attributes = _windows(dice, shape)
    return Case((dice.numbers(shape), *starts), attributes)


def _set_window(dice: Dice) -> Case:
    shape = dice.shape()
    starts, attributes = _windows(dice, shape)
    part = window_shape(shape, attributes["axes"], attributes["extents"])
    values = dice.numbers(dice.stretched(part))
    return Case((dice.numbers(shape), values, *starts), attributes)


def _recompute(dice: Dice) -> Case:
    return Case((dice.numbers(dice.shape()), dice.numbers(dice.shape())), {})


def _buffer(dice: Dice) -> torch.Tensor:
    """A matrix and room for one more column."""
    rows, wide = dice.shape(2, 2, extents=(1, 6))
    return dice.numbers((rows, wide))


def _shift_right(dice: Dice) -> Case:
    return Case((_buffer(dice),), {"value": dice.draw(st.sampled_from([0.0, 1.0]))})


def _shift_left(dice: Dice) -> Case:
    return Case((_buffer(dice),), {})


def _insert_column(dice: Dice) -> Case:
    return Case(
        (dice.numbers(dice.shape(2, 2)),), {"value": dice.draw(st.sampled_from([0.0, 1.0]))}
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
    "window": Row(_window, ANY, (0,)),
    "set_window": Row(_set_window, ANY, (0, 1)),
}
