"""Expressions that stay referenced while a function is differentiated.

An array drops its expression when it is evaluated, and with it the operands that have no other
references. A function that is differentiated may evaluate intermediate arrays, and its gradient
needs their operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magmath.graph import Node

_kept: list[Node] | None = None


@contextmanager
def keeping_expressions() -> Iterator[None]:
    """Keep the expressions of arrays that this block evaluates until the outermost block ends."""
    global _kept
    outer = _kept
    if outer is None:
        _kept = []
    try:
        yield
    finally:
        _kept = outer


def keep_expression(node: Node) -> None:
    """Keep an evaluated node and its operands, if a `keeping_expressions` block is active."""
    if _kept is not None:
        _kept.append(node)


def keeps_expressions() -> bool:
    """Return True within a `keeping_expressions` block."""
    return _kept is not None
