"""A step of a loop as a graph that updates arrays in place, and the rows that it reads and
writes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from magmath.core.dtypes import int64
from magmath.engine.user_line import user_line
from magmath.graph import Graph, Node, make_node
from magmath.ops import elementwise as e
from magmath.ops.indexing.dynamic_slice import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from magmath.ops.leaves import constant

ROW: Mapping[str, Any] = MappingProxyType({"axes": (0,), "extents": (None,), "steps": (1,)})


def row_number(counter: Node, steps: int, *, reverse: bool) -> Node:
    """Return the number of the row that a step reads and writes, given the number of steps before
    it."""
    return e.subtract(constant(steps - 1, int64), counter) if reverse else counter


def row_of(x: Node, number: Node) -> Node:
    """Return a row of an array by its number, which may be computed at run time."""
    return make_node(DYNAMIC_SLICE, (x, number), ROW, x.shape[1:], x.dtype, line=user_line())


def with_row(x: Node, number: Node, value: Node) -> Node:
    """Return an array with a value in place of a row, given by its number."""
    return make_node(
        DYNAMIC_UPDATE_SLICE, (x, value, number), ROW, x.shape, x.dtype, line=user_line()
    )


def step_graph(
    states: Mapping[Node, Node],
    collectors: Mapping[Node, Node],
    counter: Node,
    number: Node,
    assigned: Mapping[Node, Node] = MappingProxyType({}),
) -> Graph:
    """Return the graph of a step, which updates arrays in place.

    states      the next states, by the leaves of the states
    collectors  the values to collect, by the leaves of the arrays that collect one in each row
    counter     the leaf of the number of steps before this one
    number      the number of the row of this step
    assigned    the new values of variables, by their leaves
    """
    rows = [with_row(x, number, value) for x, value in collectors.items()]
    following = e.add(counter, constant(1, int64))
    return Graph(
        (*states.values(), *rows, following, *assigned.values()),
        (*states, *collectors, counter, *assigned),
    )
