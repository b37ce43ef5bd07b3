"""The parts of normalization."""

from __future__ import annotations

from hypothesis import strategies as st

from operation_table.dice import REAL_FLOATS, Case, Dice, Row, Shape


def _affine(dice: Dice) -> Case:
    if dice.draw(st.booleans()):
        x, m, _ = _shapes(dice)
        shapes = [x, m, m, m]
    else:
        shape = dice.shape()
        shapes = [shape, *[dice.stretched(shape) for _ in range(3)]]
    return Case(tuple(dice.numbers(s, "count") for s in shapes), {})


def _shapes(dice: Dice) -> tuple[Shape, Shape, tuple[int, ...]]:
    """Shapes of an array and its means, and the axes of these: often all but the channels."""
    x = dice.shape(0, 4, extents=(0, 4))
    if dice.draw(st.booleans()):
        axis = tuple(d for d in range(len(x)) if d != 1)
    else:
        axis = dice.axes(len(x))
    return x, tuple(1 if d in axis else n for d, n in enumerate(x)), axis


def _dot(dice: Dice) -> Case:
    x, m, axis = _shapes(dice)
    operands = tuple(dice.numbers(s, "count") for s in (x, x, m))
    return Case(operands, {"axis": axis})


def _squares(dice: Dice) -> Case:
    x, m, axis = _shapes(dice)
    return Case((dice.numbers(x, "count"), dice.numbers(m, "count")), {"axis": axis})


ROWS: dict[str, Row] = {
    "affine": Row(_affine, REAL_FLOATS, (0, 1, 2, 3)),
    "centred_dot": Row(_dot, REAL_FLOATS, (0, 1, 2)),
    "centred_squares": Row(_squares, REAL_FLOATS, (0,)),
}
