"""Bounds of pending expressions, which are computed before a value is needed.

A long expression is computed, that of a loop in parts (`loop_parts.py`). So is one that references
much more memory than its value needs: `x += a * p` in a loop that computes another p in each step
does not keep every p. Small arrays, which the interpreter computes, have no advantage from longer
expressions. Memory is checked at depths that are powers of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from magmath.engine.lifetimes.kept_expressions import is_keeping_expressions
from magmath.engine.lifetimes.loop_parts import MIN_DEPTH, LoopParts
from magmath.engine.lifetimes.pending_memory import PendingMemory
from magmath.engine.traces import tracing
from magmath.graph import Node, Provenance, topological, update_depth

MAX_PENDING: Final = 1000
"""Maximum depth of a pending expression, in operations."""
INTERPRETED_PENDING: Final = 128
"""The same for small arrays, which the interpreter computes: more nodes leave the processor's
cache."""
FIRST_CHECK: Final = 4
"""Depth from which a pending expression may hold more memory than its value."""
MIN_HELD: Final = 1 << 17
"""Minimum number of elements of the value for this check."""

Keep = Callable[[Provenance], object]
"""What lets the record of a value keep operands alive that gradients need, as if the value were
pending."""


class NodeInterpreter(Protocol):
    """What computes small arrays operation by operation."""

    def can_compute(self, node: Node) -> bool:
        """Return True for a node that it can compute."""


class BoundingEngine(Protocol):
    """The parts of an engine on which the bounds depend."""

    @property
    def interpreter(self) -> NodeInterpreter:
        """The interpreter of small arrays."""

    @property
    def loop_parts(self) -> LoopParts:
        """Where the parts of loops end."""

    @property
    def pending_memory(self) -> PendingMemory:
        """The memory that pending expressions hold."""


def early_evaluation(engine: BoundingEngine, node: Node) -> Keep | None:
    """Return None if a new expression of `FIRST_CHECK` operations or more remains pending;
    otherwise it is to be computed, and its record to keep what the result keeps."""
    if tracing.current() is not None:  # nothing is computed, however long the function is
        return None
    depth = node.depth
    is_checked = depth > MAX_PENDING or not depth & (depth - 1)
    if depth > MAX_PENDING:
        update_depth(node)
    if node.depth > MAX_PENDING or (is_checked and _is_inefficient(engine, node)):
        return Provenance.keep_arrays
    if node.depth < MIN_DEPTH or is_keeping_expressions():
        return None
    unrecoverable = engine.loop_parts.ends_at(node)
    return None if unrecoverable is None else lambda record: record.keep(unrecoverable)


def _is_inefficient(engine: BoundingEngine, node: Node) -> bool:
    """Return True if an expression references much more memory than its value needs, or is
    interpreted."""
    if node.reads_version:
        return False
    if node.size >= MIN_HELD:
        return engine.pending_memory.has_excess(node)
    if node.depth < INTERPRETED_PENDING:
        return False
    return all(map(engine.interpreter.can_compute, topological((node,), pending=True)))
