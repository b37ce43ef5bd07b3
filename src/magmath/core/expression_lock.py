"""The lock of expressions: one thread at a time computes, differentiates or updates them.

All of these follow the inputs of nodes. An evaluation changes the values of nodes and puts leaves
in place of inputs; an update in place reads the value of an array and then gives it another one, so
that two threads that write different elements would lose one of the writes. Other threads wait
meanwhile; programs of one pool run one after the other anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from magmath.core.module_locks import module_lock

P = ParamSpec("P")
Result = TypeVar("Result")

lock = module_lock(__name__, "lock")
"""Read as an attribute of this module, `expression_lock.lock`: a forked process has another one."""


def exclusive(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return the function with the lock: while a thread runs it, no other thread runs any function
    that is decorated so."""

    @wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> Result:
        with lock:
            return function(*args, **kwargs)

    return locked
