"""Forward hooks: functions that receive the outputs of each call of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magmath.nn.call_state import CALLS, ForwardHook


@contextmanager
def forward_hook(hook: ForwardHook) -> Iterator[None]:
    """Call `hook(module, outputs)` after each call of a module in this thread within the
    context."""
    CALLS.hooks.append(hook)
    try:
        yield
    finally:
        CALLS.hooks.remove(hook)
