"""Loop parts: the pending expression of a Python loop is computed in parts of equal structure.

    for _ in range(1000):
        u = u + 0.1 * laplacian(u)

To plan an operation takes longer than to compute it on some hundred kilobytes, and an expression of
all steps is planned as a whole. A part of some steps is planned once, and its program runs again
for the next steps, if each part ends at the same operation of a step. So a part ends where a line
repeats an operation in an expression that is `MIN_DEPTH` operations deep, and from then on at this
line.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from magmath.core.bounded_memo import store_bounded
from magmath.engine.lifetimes.live_references import exclusive_arrays
from magmath.graph import Node, provenance_of, update_depth
from magmath.graph.operation import Line, Operation

MIN_DEPTH: Final = 64
"""Operations of the deepest chain of a part, unless one step of the loop has more."""
MAX_BYTES: Final = 2 << 20
"""Bytes of the largest value in a part, integers apart: to compute larger ones takes longer than to
plan them, and gradients may need what the expression holds."""
MAX_HELD_BYTES: Final = 4 << 20
"""Bytes of the arrays that a part may hold alone: later gradients need those that could not be
computed again, so its record keeps them."""
_MAX_PLACES: Final = 1024

_Place: TypeAlias = tuple[Line, Operation]


@final
class LoopParts:
    """Where the parts of loops end, and a place that may be one if it is repeated."""

    def __init__(self) -> None:
        self._ends: dict[_Place, bool] = {}
        """False for a place at which parts hold too much."""
        self._candidate: tuple[_Place, int] | None = None
        """A place, and the depth of its operation in the present expression."""

    def ends_at(self, node: Node) -> list[Node] | None:
        """Return the arrays that the expression of a new node holds alone and that could not be
        computed again, if a part ends here; otherwise None.

        Expressions with variables are no parts: gradients will need them whole.
        """
        if node.reads_version or _is_large(node) or not self._is_end(node):
            return None
        order = update_depth(node)
        if node.depth < MIN_DEPTH:  # some of it was computed
            return None
        unrecoverable = [x for x in exclusive_arrays(order) if _is_lost(x)]
        if (
            not any(map(_is_large, order))
            and sum([x.nbytes for x in unrecoverable]) <= MAX_HELD_BYTES
        ):
            return unrecoverable
        self._store_place(node, False)
        return None

    def _is_end(self, node: Node) -> bool:
        place, candidate = _place(node), self._candidate
        is_end = self._ends.get(place)
        if is_end is not None:
            return is_end
        if candidate is None or node.depth <= candidate[1]:  # of another expression
            self._candidate = place, node.depth
            return False
        if place != candidate[0]:
            return False
        self._candidate = None
        self._store_place(node, True)
        return True

    def _store_place(self, node: Node, is_end: bool) -> None:
        store_bounded(self._ends, _place(node), is_end, _MAX_PLACES)


def _place(node: Node) -> _Place:
    return node.line, node.operation


def _is_large(node: Node) -> bool:
    return _has_gradients(node) and node.nbytes > MAX_BYTES


def _is_lost(node: Node) -> bool:
    """Return True for an array that a gradient could not compute again once it is freed."""
    return _has_gradients(node) and provenance_of(node.leaf_or_self) is None


def _has_gradients(node: Node) -> bool:
    return node.dtype.kind in ("float", "complex")
