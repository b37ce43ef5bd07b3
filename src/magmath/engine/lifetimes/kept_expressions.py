"""Kept expressions: those that stay referenced while a function is differentiated.

An array drops its expression when it is evaluated, and with it the operands that have no other
references. A function that is differentiated may evaluate intermediate arrays, and its gradient
needs their operands.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from magmath.core.scoped_value import ScopedValue
from magmath.graph import Node

KEPT = ScopedValue[list[Node] | None](None)
"""The expressions that the present thread keeps, for the functions below and for what runs at each
operation; None outside of the blocks."""


def keeping_expressions() -> AbstractContextManager[list[Node] | None]:
    """Keep the expressions of arrays that this block evaluates until the outermost block ends, and
    as long as the list that it returns exists."""
    return KEPT.replaced([] if KEPT.value is None else KEPT.value)


def keep_expression(node: Node) -> None:
    """Keep an evaluated node and its operands, if a `keeping_expressions` block is active."""
    if KEPT.value is not None:
        KEPT.value.append(node)


def is_keeping_expressions() -> bool:
    """Return True within a `keeping_expressions` block."""
    return KEPT.value is not None
