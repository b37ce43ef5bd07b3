"""Periodic margins: rolls of one array by a few positions are views of one copy with margins.

A roll is a concatenation of two slices, so it copies its array, once for each axis. A program on a
torus, such as a finite difference or a cellular automaton, rolls one array by ±1 in each direction:
it copies more than it computes. This pass repeats the edges of the array at its other sides, once,
and reads each roll as a slice of that. The slices are views, which join the loops of their readers,
and the array itself is computed inside of its margins (`passes/assign_buffers.py`), so that only
the edges are copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, final

from magmath.core.shapes import Shape
from magmath.graph import Graph, Node, apply
from magmath.graph.operation import Line
from magmath.ops.concatenation import CONCAT
from magmath.ops.slicing import SLICE, slice_along
from magmath.passes.environment import Environment

MIN_ROLLS: Final = 2
"""Minimum number of rolls of an array: the copy with margins takes the place of this many."""
MARGIN_SHARE: Final = 16
"""A margin is at most one part in this many of the extent."""

Offsets = tuple[int, ...]
"""The position in the base of the first element of a roll, for each dimension; negative if that is
nearer to the end."""


@final
class _Roll(NamedTuple):
    """A roll: the array of which it is one, and its offsets."""

    base: Node
    offsets: Offsets


def share_margins(graph: Graph, environment: Environment) -> Graph:
    """Return the graph with slices of one array with margins in place of the rolls of an array."""
    rolls: defaultdict[Node, dict[Node, Offsets]] = defaultdict(dict)
    results = set(graph.roots)
    for node, roll in _rolls(graph.nodes).items():
        if node not in results and _is_near(roll.offsets, roll.base.shape):
            rolls[roll.base][node] = roll.offsets
    new: dict[Node, Node] = {}
    for base, members in rolls.items():
        if len(members) >= MIN_ROLLS:
            new |= _slices(base, members)
    return graph.replaced(new) if new else graph


def _rolls(nodes: Iterable[Node]) -> dict[Node, _Roll]:
    """Return the nodes that are rolls, also of other rolls of an array."""
    rolls: dict[Node, _Roll] = {}
    for node in nodes:
        rotation = _rotation(node)
        if rotation is not None:
            x, axis, start = rotation
            before = rolls.get(x, _Roll(x, (0,) * x.ndim))
            moved = [n + start if d == axis else n for d, n in enumerate(before.offsets)]
            rolls[node] = _Roll(before.base, tuple(map(_nearest, moved, x.shape)))
    return rolls


@final
class _Rotation(NamedTuple):
    """The elements of x along an axis from a position on, followed by those before it."""

    x: Node
    axis: int
    start: int


def _rotation(node: Node) -> _Rotation | None:
    """Return how a node rotates an array along one axis; None if it does not."""
    if node.operation is not CONCAT or len(node.inputs) != 2:
        return None
    (last, first), axis = node.inputs, node.attributes["axis"]
    if not (last.operation is first.operation is SLICE and last.inputs[0] is first.inputs[0]):
        return None
    x, start = last.inputs[0], first.shape[axis]
    bounds = [(0, n, 1) for n in x.shape]
    for part, bound in ((last, (start, x.shape[axis], 1)), (first, (0, start, 1))):
        bounds[axis] = bound
        if part.attributes["bounds"] != tuple(bounds):
            return None
    return _Rotation(x, axis, start)


def _nearest(offset: int, extent: int) -> int:
    """Return the offset of least size that is equal to this one on a circle of `extent`."""
    half = extent // 2
    return (offset + half) % max(extent, 1) - half


def _is_near(offsets: Offsets, shape: Shape) -> bool:
    return all(abs(o) * MARGIN_SHARE <= n for o, n in zip(offsets, shape, strict=True))


def _slices(base: Node, rolls: Mapping[Node, Offsets]) -> dict[Node, Node]:
    """Return for each roll the same elements as a slice of the base with margins."""
    before = [max(0, -min(o)) for o in zip(*rolls.values(), strict=True)]
    after = [max(0, *o) for o in zip(*rolls.values(), strict=True)]
    wide = _with_margins(base, before, after, next(iter(rolls)).line)
    slices: dict[Offsets, Node] = {}
    for node, offsets in rolls.items():
        starts = [b + o for b, o in zip(before, offsets, strict=True)]
        bounds = tuple([(i, i + n, 1) for i, n in zip(starts, base.shape, strict=True)])
        if offsets not in slices:
            slices[offsets] = apply(SLICE, wide, bounds=bounds, line=node.line)
    return {node: slices[offsets] for node, offsets in rolls.items()}


def _with_margins(x: Node, before: list[int], after: list[int], line: Line) -> Node:
    """Return x with its last elements in front and its first ones behind, along each axis."""
    for axis, (front, behind) in enumerate(zip(before, after, strict=True)):
        n = x.shape[axis]
        prepended = [slice_along(x, axis, n - front, n)] if front else []
        appended = [slice_along(x, axis, 0, behind)] if behind else []
        if prepended or appended:
            x = apply(CONCAT, *prepended, x, *appended, axis=axis, line=line)
    return x
