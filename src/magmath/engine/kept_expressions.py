"""Expressions that stay while a function is differentiated.

An array that is evaluated drops its expression, and with it the operands that nothing else refers
to. A function that is differentiated may evaluate arrays on its way to the result, and its
gradient needs what they were computed from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magmath.graph import Node

_kept: list[Node] | None = None


@contextmanager
def keeping_expressions() -> Iterator[None]:
    """Keep what is evaluated in this block as an expression, until the outermost block ends."""
    global _kept
    outer = _kept
    if outer is None:
        _kept = []
    try:
        yield
    finally:
        _kept = outer


def keep_expression(node: Node) -> None:
    """Keep a node that was evaluated, and what it was computed from, if a block asks for it."""
    if _kept is not None:
        _kept.append(node)
