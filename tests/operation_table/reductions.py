"""Reductions and running totals, of whole axes and of pieces of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st

from magmath.ops import scans
from operation_table.dice import ANY, BOOL, NUMERIC, REAL, Case, Dice, Draw, Row, Shape


def _reduction(domain: str, *, empty: bool = True, extents: tuple[int, int] = (0, 6)) -> Draw:
    def draw(dice: Dice) -> Case:
        low, high = extents
        shape = dice.shape(extents=(low if empty else max(low, 1), high))
        attributes = {"axis": dice.axes(len(shape)), "keepdims": dice.draw(st.booleans())}
        return Case((dice.numbers(shape, domain),), attributes)

    return draw


def _position_of(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 6))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    attributes = {"axis": axis, "keepdims": dice.draw(st.booleans())}
    return Case((dice.numbers(shape),), attributes)


def _running(domain: str) -> Draw:
    def draw(dice: Dice) -> Case:
        shape = dice.shape(1)
        axis = dice.draw(st.integers(0, len(shape) - 1))
        return Case((dice.numbers(shape, domain),), {"axis": axis})

    return draw


def _pieces(dice: Dice) -> tuple[Shape, dict[str, Any]]:
    """A shape, and pieces of one of its axes."""
    shape = dice.shape(1, extents=(1, 6))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    inner = dice.draw(st.sets(st.integers(0, shape[axis]), max_size=4))
    return shape, {"axis": axis, "cuts": tuple(sorted({0, shape[axis], *inner}))}


def _piece_positions(dice: Dice) -> Case:
    shape, attributes = _pieces(dice)
    name = dice.draw(st.sampled_from(["argmax", "argmin"]))
    return Case((dice.numbers(shape),), {**attributes, "name": name})


def _piece_elements(dice: Dice) -> Case:
    shape, attributes = _pieces(dice)
    axis = attributes["axis"]
    ends = [dice.random.integers(a, b) for a, b in pairwise(attributes["cuts"])]
    places = torch.tensor(ends).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    indices = places.expand(*shape[:axis], len(ends), *shape[axis + 1 :]).contiguous()
    return Case((dice.numbers(shape), indices), attributes)


def _piece_totals(dice: Dice) -> Case:
    shape, attributes = _pieces(dice)
    name = dice.draw(st.sampled_from(["sum", "prod"]))
    return Case((dice.numbers(shape, "count"),), {**attributes, "name": name})


def _piece_scan(dice: Dice) -> Case:
    (x,), attributes = (case := _piece_totals(dice)).operands, case.attributes
    axis, count = attributes["axis"], len(attributes["cuts"]) - 1
    wide = replace(dice, dtype=scans.long_sum_dtype(dice.dtype))
    totals = wide.numbers((*x.shape[:axis], count, *x.shape[axis + 1 :]), "count")
    return Case((x, totals), attributes)


ROWS: dict[str, Row] = {
    "sum": Row(_reduction("count"), ANY, (0,)),
    "prod": Row(_reduction("factor", extents=(0, 3)), NUMERIC, (0,)),
    "max": Row(_reduction("any", empty=False), REAL, (0,)),
    "min": Row(_reduction("any", empty=False), REAL, (0,)),
    "any": Row(_reduction("any"), BOOL),
    "all": Row(_reduction("any"), BOOL),
    "argmax": Row(_position_of, REAL),
    "argmin": Row(_position_of, REAL),
    "piece_positions": Row(_piece_positions, REAL),
    "piece_elements": Row(_piece_elements, REAL),
    "piece_totals": Row(_piece_totals, NUMERIC),
    "piece_scan": Row(_piece_scan, NUMERIC),
    "cumulative_sum": Row(_running("count"), NUMERIC, (0,)),
    "cumulative_prod": Row(_running("factor"), NUMERIC, (0,)),
}
