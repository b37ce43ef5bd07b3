"""The parts of normalization."""

from __future__ import annotations

from hypothesis import strategies as st

from operation_table.draws import REAL_FLOATS, Case, Draws, Row, Shape


def _affine(draws: Draws) -> Case:
    if draws.draw(st.booleans()):
        x, m, _ = _shapes(draws)
        shapes = [x, m, m, m]
    else:
        shape = draws.shape()
        shapes = [shape, *[draws.stretched(shape) for _ in range(3)]]
    return Case(tuple(draws.numbers(s, "count") for s in shapes), {})


def _shapes(draws: Draws) -> tuple[Shape, Shape, tuple[int, ...]]:
    """Shapes of an array and its means, and the axes of these: often all but the channels."""
    x = draws.shape(0, 4, extents=(0, 4))
    if draws.draw(st.booleans()):
        axis = tuple(d for d in range(len(x)) if d != 1)
    else:
        axis = draws.axes(len(x))
    return x, tuple(1 if d in axis else n for d, n in enumerate(x)), axis


def _dot(draws: Draws) -> Case:
    x, m, axis = _shapes(draws)
    operands = tuple(draws.numbers(s, "count") for s in (x, x, m))
    return Case(operands, {"axis": axis})


def _squares(draws: Draws) -> Case:
    x, m, axis = _shapes(draws)
    return Case((draws.numbers(x, "count"), draws.numbers(m, "count")), {"axis": axis})


def _joint_dot(draws: Draws) -> Case:
    x, m, axis = _some_axes(draws)
    operands = tuple(draws.numbers(s, "count") for s in (x, x, m))
    return Case(operands, {"axis": axis})


def _joint_squares(draws: Draws) -> Case:
    x, _, axis = _some_axes(draws)
    return Case((draws.numbers(x, "count"),), {"axis": axis})


def _some_axes(draws: Draws) -> tuple[Shape, Shape, tuple[int, ...]]:
    """Like `_shapes`, with at least one axis."""
    x, m, axis = _shapes(draws)
    return (x, m, axis) if axis else ((3, *x), (1, *m), (0,))


ROWS: dict[str, Row] = {
    "affine": Row(_affine, REAL_FLOATS, (0, 1, 2, 3)),
    "centred_dot": Row(_dot, REAL_FLOATS, (0, 1, 2)),
    "centred_squares": Row(_squares, REAL_FLOATS, (0,)),
    "sum_and_dot": Row(_joint_dot, REAL_FLOATS, ()),
    "sum_and_squares": Row(_joint_squares, REAL_FLOATS, ()),
}
