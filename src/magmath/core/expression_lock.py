"""The lock of expressions: one thread at a time computes or differentiates them.

Both follow the inputs of nodes, and an evaluation changes the values of nodes and puts leaves in
place of inputs. Other threads wait meanwhile; programs of one pool run one after the other anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")

_lock = RLock()


def exclusive(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return the function with the lock: while a thread runs it, no other thread runs any function
    that is decorated so."""

    @wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> Result:
        with _lock:
            return function(*args, **kwargs)

    return locked


def _renew() -> None:
    """Replace the lock in a process that `os.fork` has created, which has one thread."""
    global _lock
    _lock = RLock()


os.register_at_fork(after_in_child=_renew)
