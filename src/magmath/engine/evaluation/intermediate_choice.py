"""Chooses the referenced intermediates of an expression that are worth storing with its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magmath.engine.lifetimes.live_references import has_array
from magmath.graph import Node
from magmath.ops.counted_loops import SCAN
from magmath.ops.custom_gradients import CUSTOM_CALL
from magmath.passes.candidates import is_contraction

MAX_PARTS: Final = 4
"""Limit of the elements of stored intermediate values that only other pending expressions read,
relative to the elements of the largest evaluated array."""
SHORT: Final = 1 << 20
"""Elements of an array that is stored at once if it is referenced."""


def worthwhile_intermediates(order: Sequence[Node], live: Iterable[Node]) -> list[Node]:
    """Return the referenced intermediates that should be computed now, and not once more later.

    So `while float(error(x)) > 0.1: x = step(x)` computes each x once, and `q, r = qr(x)` both
    results. Long intermediates of other operations than products and factorizations are omitted if
    they are larger than every evaluated array of the expression, for example by broadcasting, or if
    many of them have no array, and are only parts of other pending expressions.
    """
    candidates = [
        x for x in live if not (x.is_leaf_or_constant or x.operation in (SCAN, CUSTOM_CALL))
    ]
    if not candidates:
        return candidates
    max_elements = max([node.size for node in order if node.value is not None], default=0)
    max_elements = max(max_elements, SHORT)
    parts = [node for node in candidates if not has_array(node)]
    if sum([node.size for node in parts]) > MAX_PARTS * max_elements:
        candidates = [node for node in candidates if has_array(node) or _is_expensive(node)]
    fitting = {node for node in candidates if node.size <= max_elements or _is_expensive(node)}
    return [node for node in order if node in fitting]


def _is_expensive(node: Node) -> bool:
    """Return True if computing a node again takes much longer than storing its result."""
    operation = node.operation
    return operation.uses_lapack or (not operation.is_mark and is_contraction(node.index_notation))
