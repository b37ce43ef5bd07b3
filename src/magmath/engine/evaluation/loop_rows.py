"""The rows that a step of a loop reads and writes, as expressions of its counter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from magmath.core.dtypes import int64
from magmath.engine.user_line import user_line
from magmath.graph import Node, make_node
from magmath.ops import elementwise as e
from magmath.ops.indexing.dynamic_slice import SET_WINDOW, WINDOW
from magmath.ops.leaves import constant

ROW: Mapping[str, Any] = MappingProxyType({"axes": (0,), "extents": (None,), "steps": (1,)})


def row_number(counter: Node, steps: int, *, reverse: bool) -> Node:
    """Return the number of the row that a step reads and writes, given the number of steps before
    it."""
    return e.subtract(constant(steps - 1, int64), counter) if reverse else counter


def next_counter(counter: Node) -> Node:
    """Return the counter of the next step."""
    return e.add(counter, constant(1, int64))


def row_of(x: Node, number: Node) -> Node:
    """Return a row of an array by its number, which may be computed at run time."""
    return make_node(WINDOW, (x, number), ROW, x.shape[1:], x.dtype, line=user_line())


def with_row(x: Node, number: Node, value: Node) -> Node:
    """Return an array with a value in place of a row, given by its number."""
    return make_node(SET_WINDOW, (x, value, number), ROW, x.shape, x.dtype, line=user_line())
