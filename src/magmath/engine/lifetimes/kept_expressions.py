"""Kept expressions: those that stay referenced while a function is differentiated.

An array drops its expression when it is evaluated, and with it the operands that have no other
references. A function that is differentiated may evaluate intermediate arrays, and its gradient
needs their operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import final

from magmath.graph import Node


@final
class _Kept(local):
    """The expressions that a thread keeps; None outside of the blocks."""

    expressions: list[Node] | None = None


KEPT = _Kept()
"""The state of the present thread, for the functions below and for what runs at each operation."""


@contextmanager
def keeping_expressions() -> Iterator[list[Node]]:
    """Keep the expressions of arrays that this block evaluates until the outermost block ends, and
    as long as the list that it returns exists."""
    outer = KEPT.expressions
    expressions = KEPT.expressions = [] if outer is None else outer
    try:
        yield expressions
    finally:
        KEPT.expressions = outer


def keep_expression(node: Node) -> None:
    """Keep an evaluated node and its operands, if a `keeping_expressions` block is active."""
    if KEPT.expressions is not None:
        KEPT.expressions.append(node)


def is_keeping_expressions() -> bool:
    """Return True within a `keeping_expressions` block."""
    return KEPT.expressions is not None
