"""Forward hooks: functions that receive the outputs of each call of a module."""

from __future__ import annotations

from contextlib import AbstractContextManager

from magmath.nn.call_state import CALLS, ForwardHook


def forward_hook(hook: ForwardHook) -> AbstractContextManager[object]:
    """Call `hook(module, outputs)` after each call of a module in this thread within the
    context."""
    return CALLS.hooks.replaced((*CALLS.hooks.value, hook))
