"""Forward hooks: functions that receive the outputs of each call of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ForwardHook = Callable[[object, Any], None]
"""A function of the called module and its outputs."""

active_hooks: list[ForwardHook] = []
"""The hooks of the contexts that are open."""


@contextmanager
def forward_hook(hook: ForwardHook) -> Iterator[None]:
    """Call `hook(module, outputs)` after each call of a module within the context."""
    active_hooks.append(hook)
    try:
        yield
    finally:
        active_hooks.remove(hook)
